"""Consumers of the QUEUE subscription `q` of the topic `orders`, as bare peers."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

from launch.sandbox import LiveNode
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import messages, subscriptions
from scalable.services.topics import TopicView
from scalable.wire.batch import decode_batch
from scalable.wire.frames import (
    Frame,
    NegativeAck,
    QueueAck,
    QueueAcked,
    QueueAttach,
    QueueDelivery,
    Welcome,
)
from tests.api.peers import Peer, ask, socket
from tests.topology import make_topic

F = TypeVar("F", bound=Frame)
QUEUE = "queue/public/default/orders/q"


class Taken(NamedTuple):
    """One message that a peer was given."""

    segment_id: int
    offset: int
    deliveries: int
    incarnation: int
    value: bytes


class QueuePeer:
    """One consumer, and what it was given so far and has not taken out of here."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.frames: list[Frame] = []
        self._taken: list[Taken] = []

    async def attach(
        self, segment_id: int = 0, *, permits: int = 1_000, ack_timeout_ms: int | None = None
    ) -> None:
        """Ask for a segment's messages."""
        attach = QueueAttach(segment_id=segment_id, permits=permits, ack_timeout_ms=ack_timeout_ms)
        await self.peer.send(attach)

    async def take(self, count: int) -> list[Taken]:
        """The next so many messages; control frames on the way are kept in `frames`."""
        while len(self._taken) < count:
            frame = await self.peer.receive()
            if isinstance(frame, QueueDelivery):
                self._taken += taken_of(frame)
            elif isinstance(frame, Frame):
                self.frames.append(frame)
        found, self._taken = self._taken[:count], self._taken[count:]
        return found

    async def nothing_comes(self, seconds: float = 0.5) -> None:
        """No message is sent for a while; control frames may be."""
        assert not self._taken
        try:
            async with asyncio.timeout(seconds):
                found = await self.take(1)
        except TimeoutError:
            return
        raise AssertionError(f"nothing was to come, but {found} did")

    async def acknowledge(self, *taken: Taken) -> None:
        """Acknowledge messages of one segment and wait until that is durable."""
        await self.peer.send(
            QueueAck(
                segment_id=taken[0].segment_id,
                incarnation=taken[0].incarnation,
                ranges=[(each.offset, each.offset + 1) for each in taken],
            )
        )
        left = {each.offset for each in taken}
        while left:
            frame = await self.wait_for(QueueAcked)
            left -= {offset for first, end in frame.ranges for offset in range(first, end)}

    async def give_back(self, *taken: Taken, delay_ms: int = 0, counted: bool = True) -> None:
        """Give messages of one segment back."""
        ranges = [(each.offset, each.offset + 1) for each in taken]
        await self.peer.send(
            NegativeAck(
                segment_id=taken[0].segment_id, ranges=ranges, delay_ms=delay_ms, count_delivery=counted
            )
        )

    async def wait_for(self, kind: type[F]) -> F:
        """The next control frame of a kind; messages on the way are kept."""
        while True:
            for frame in self.frames:
                if isinstance(frame, kind):
                    self.frames.remove(frame)
                    return frame
            received = await self.peer.receive()
            if isinstance(received, QueueDelivery):
                self._taken += taken_of(received)
            elif isinstance(received, Frame):
                self.frames.append(received)


def taken_of(delivery: QueueDelivery) -> list[Taken]:
    """The messages of a delivery that are for its receiver."""
    records = decode_batch(delivery.batch)
    return [
        Taken(
            delivery.segment_id,
            offset,
            deliveries,
            delivery.incarnation,
            records[offset - delivery.base_offset].value,
        )
        for first, end, deliveries in delivery.ranges
        for offset in range(first, end)
    ]


def offsets(taken: Iterable[Taken]) -> list[int]:
    """Where messages lie, in the order in which they came."""
    return [each.offset for each in taken]


@asynccontextmanager
async def queue_peer(node: LiveNode, name: str) -> AsyncIterator[QueuePeer]:
    """A consumer with nothing attached."""
    async with socket(node, QUEUE, consumer=name) as peer:
        await peer.expect(Welcome)
        yield QueuePeer(peer)


def make_queue(*, segments: int = 1) -> TopicView:
    """The topic `orders` with its subscription `q`."""
    topic = make_topic("orders", segments=segments)
    subscriptions.create_subscription(name=topic.name, subscription="q", kind=SubscriptionType.QUEUE)
    return topic


async def publish(topic: TopicView, *batches: bytes, segment_id: int = 0) -> None:
    """Append from the test's own process, which is no node."""
    await ask(
        messages.append,
        name=topic.name,
        incarnation=topic.incarnation,
        segment_id=segment_id,
        batches=batches,
        producer=None,
    )
