"""What the links of consumers send while no application asks for anything, to a scripted node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from scalable.api.sockets.base import error_frame
from scalable.client.bucket_inbox import OwnedBucket
from scalable.client.connection import Endpoint
from scalable.client.consume_link import ConsumeLink
from scalable.client.consumer import StreamConsumer
from scalable.client.inbox import Inbox, OwnedSegment
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.client.queue_inbox import QueueInbox
from scalable.client.queue_link import QueueLink
from scalable.domain.errors import (
    GenerationSuperseded,
    Internal,
    ScalableError,
    SegmentNotFound,
    SegmentNotOwned,
)
from scalable.domain.subscriptions import BucketKey
from scalable.wire.data_frames import encode_delivery
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    Ack,
    AssignedSegment,
    Attach,
    ConsumeClientFrame,
    Detach,
    Detached,
    Flow,
    Frame,
    Hello,
    QueueAck,
    QueueAttach,
    QueueClientFrame,
    QueueFlow,
    Welcome,
    decode,
    decoder,
    encode,
)
from scalable.wire.queue_frames import encode_queue_delivery
from tests.client import test_queue_inbox as queue
from tests.client.test_inbox import TOPIC, assigned, assignment, delivery, offsets, take

PATIENCE_SECONDS = 60


class ScriptedNode:
    """One socket of a node, whose frames a test sends and receives."""

    def __init__(self, frames: msgspec.json.Decoder[Frame]) -> None:
        self._frames = frames
        self._open: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    async def serve(self, socket: ServerConnection) -> None:
        assert isinstance(decode(self._frames, await socket.recv()), Hello)
        welcome = Welcome(
            protocol=PROTOCOL_VERSION,
            node="",
            max_frame_bytes=0,
            max_message_bytes=0,
            ack_timeout_ms=3_600_000,
        )
        await socket.send(encode(welcome))
        self._open.set_result(socket)
        await socket.wait_closed()

    async def send(self, *frames: Frame | bytes) -> None:
        for frame in frames:
            await (await self._open).send(frame if isinstance(frame, bytes) else encode(frame))

    async def receive(self) -> Frame:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return decode(self._frames, await (await self._open).recv())


@asynccontextmanager
async def serving(node: ScriptedNode) -> AsyncIterator[str]:
    async with serve(node.serve, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)]) as server:
        yield url_of(server)


def url_of(server: Server) -> str:
    (socket,) = server.sockets
    return f"http://127.0.0.1:{socket.getsockname()[1]}"


@asynccontextmanager
async def running(link: ConsumeLink | QueueLink) -> AsyncIterator[None]:
    task = asyncio.create_task(link.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Consumer:
    """An inbox that owns segment 0, and the link that fills it from a scripted node."""

    def __init__(self, url: str, owning: Callable[[AssignedSegment], OwnedSegment], *, prefetch: int) -> None:
        self.inbox = Inbox(TOPIC, owning)
        self.url = url
        self.link = ConsumeLink(
            Endpoint(url, "token"),
            Membership("c", TOPIC, "group"),
            inbox=self.inbox,
            prefetch=Prefetch(prefetch),
            changed=self._note,
        )
        self._changed = asyncio.Event()
        self.assign(generation=1)

    def _note(self) -> None:
        self._changed.set()

    def assign(self, *, generation: int, releasing: tuple[int, ...] = ()) -> None:
        """Take an assignment over, as a member does."""
        mine = msgspec.structs.replace(assigned(0), url=self.url)
        self.inbox.apply(assignment(mine, generation=generation, releasing=releasing))
        self.link.wake()

    async def until_received(self, position: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.inbox.owned[BucketKey(0)].received < position:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def consuming(
    owning: Callable[[AssignedSegment], OwnedSegment] = OwnedSegment, *, prefetch: int
) -> AsyncIterator[tuple[ScriptedNode, Consumer]]:
    node = ScriptedNode(decoder(ConsumeClientFrame))
    async with serving(node) as url:
        consumer = Consumer(url, owning, prefetch=prefetch)
        async with running(consumer.link):
            assert await node.receive() == attach(prefetch)
            yield node, consumer


def attach(permits: int) -> Attach:
    return Attach(segment_id=0, generation=1, permits=permits, bucket=0)


@pytest.mark.parametrize("owning", [OwnedSegment, OwnedBucket])
async def test_what_is_delivered_twice_gives_its_permits_back_at_once(
    owning: Callable[[AssignedSegment], OwnedSegment],
) -> None:
    async with consuming(owning, prefetch=1) as (node, consumer):
        await node.send(encode_delivery(delivery(0, 1)))
        await consumer.until_received(1)
        assert offsets(take(consumer.inbox)) == [0]
        consumer.link.wake()
        flow = Flow(segment_id=0, permits=1, bucket=0)
        assert await node.receive() == flow
        for _ in range(3):
            await node.send(encode_delivery(delivery(0, 1)))
            assert await node.receive() == flow


async def test_a_hand_over_that_is_called_off_at_once_brings_what_was_dropped_again() -> None:
    async with consuming(prefetch=10) as (node, consumer):
        await node.send(encode_delivery(delivery(0, 4)))
        await consumer.until_received(4)
        consumer.inbox.next_message()
        consumer.assign(generation=2, releasing=(0,))
        consumer.assign(generation=3)
        assert await node.receive() == Detach(segment_id=0, bucket=0)
        await node.send(encode_delivery(delivery(4, 2)), Detached(segment_id=0, generation=1))
        assert await node.receive() == attach(10)
        await node.send(encode_delivery(delivery(0, 6)))
        await consumer.until_received(6)
        assert offsets(take(consumer.inbox)) == [1, 2, 3, 4, 5]


async def test_a_refused_attachment_is_tried_again() -> None:
    async with consuming(prefetch=10) as (node, _):
        refusal = error_frame(SegmentNotOwned(consumer="c", segment_id=0), segment_id=0)
        await node.send(refusal, Detached(segment_id=0, generation=1))
        assert await node.receive() == attach(10)


async def test_a_refused_acknowledgement_is_sent_again_and_skips_nothing() -> None:
    async with consuming(prefetch=2) as (node, consumer):
        await node.send(encode_delivery(delivery(0, 1)))
        await consumer.until_received(1)
        take(consumer.inbox)
        consumer.inbox.acknowledge(0, 1)
        consumer.link.wake()
        ack = Ack(segment_id=0, generation=1, position=1)
        assert await node.receive() == ack
        assert await node.receive() == Flow(segment_id=0, permits=1, bucket=0)
        await node.send(error_frame(Internal(reference="r"), segment_id=0))
        assert await node.receive() == ack
        assert await node.receive() == Detach(segment_id=0, bucket=0)
        await node.send(Detached(segment_id=0, generation=1))
        assert await node.receive() == attach(2)


@asynccontextmanager
async def queueing() -> AsyncIterator[tuple[ScriptedNode, QueueLink, QueueInbox]]:
    """A queue's link that attached segment 0 with one permit, and was delivered one message."""
    node, changed = ScriptedNode(decoder(QueueClientFrame)), asyncio.Event()
    inbox = queue.inbox_of(0)
    async with serving(node) as url:
        link = QueueLink(
            Endpoint(url, "token"),
            Membership("c", TOPIC, "queue"),
            inbox=inbox,
            prefetch=Prefetch(1),
            ack_timeout_seconds=None,
            socket=0,
            changed=changed.set,
        )
        async with running(link):
            assert isinstance(await node.receive(), QueueAttach)
            await node.send(encode_queue_delivery(queue.delivery((0, 1, 1))))
            await until_waiting(inbox, changed)
            yield node, link, inbox


async def test_a_queue_message_that_is_delivered_twice_gives_its_permit_back_at_once() -> None:
    async with queueing() as (node, link, inbox):
        (message,) = queue.take(inbox, asyncio.get_running_loop().time())
        inbox.acknowledge(message)
        link.wake()
        assert isinstance(await node.receive(), QueueAck)
        for _ in range(3):
            assert await node.receive() == QueueFlow(segment_id=0, permits=1)
            await node.send(encode_queue_delivery(queue.delivery((0, 1, 2))))


async def test_an_attachment_that_the_node_ended_leaves_nothing_to_hand_out() -> None:
    async with queueing() as (node, _, inbox):
        await node.send(Detached(segment_id=0))
        assert isinstance(await node.receive(), QueueAttach)
        assert not inbox.waiting_count


@pytest.mark.parametrize("known", [True, False], ids=["told-here-first", "told-by-the-watch-first"])
async def test_the_end_of_a_pruned_segment_is_nothing_to_warn_of(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scalable.client")
    async with queueing() as (node, link, inbox):
        inbox.set_segments([0, 1])
        link.wake()
        assert isinstance(await node.receive(), QueueAttach)
        if not known:
            inbox.set_segments([1])
        await node.send(error_frame(SegmentNotFound(segment_id=0), segment_id=0), Detached(segment_id=0))
        await node.send(error_frame(Internal(reference="r"), segment_id=1), Detached(segment_id=1))
        assert isinstance(await node.receive(), QueueAttach)
        assert list(inbox.segments) == [1]
    own = [record for record in caplog.records if record.name == "scalable.client"]
    assert [(record.levelname, "segment 1" in record.message) for record in own] == [("WARNING", True)]


@pytest.mark.parametrize(
    ("refusal", "levels"),
    [
        (GenerationSuperseded(segment_id=0, generation=1, current_generation=2), []),
        (SegmentNotOwned(consumer="c", segment_id=0), []),
        (Internal(reference="r"), ["WARNING"]),
    ],
    ids=["superseded", "not-owned", "internal"],
)
def test_what_a_hand_over_overtook_is_nothing_to_warn_of(
    refusal: ScalableError, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scalable.client")
    consumer = StreamConsumer("http://node", TOPIC, "group", "token")
    consumer._refused(error_frame(refusal, segment_id=0))
    assert [record.levelname for record in caplog.records] == levels


async def until_waiting(inbox: QueueInbox, changed: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not inbox.waiting_count:
            changed.clear()
            await changed.wait()
