"""A segment that the controller names at another node: what the former one still has leaps over nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from scalable.api.sockets.base import error_frame
from scalable.client.bucket_inbox import OwnedBucket
from scalable.client.checkpoint_consumer import CheckpointSegment
from scalable.client.connection import Endpoint
from scalable.client.consume_link import ConsumeLink
from scalable.client.inbox import Inbox, OwnedSegment
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.domain.errors import Internal
from scalable.domain.subscriptions import BucketKey
from scalable.wire.frames import (
    Ack,
    AssignedSegment,
    Attach,
    ConsumeClientFrame,
    Detach,
    Detached,
    EndOfSegment,
    Skipped,
    decoder,
    encode_delivery,
)
from tests.client.test_inbox import TOPIC, assigned, assignment, delivery, offsets, take
from tests.client.test_links import PATIENCE_SECONDS, ScriptedNode, running, serving

Owning = Callable[[AssignedSegment], OwnedSegment]
KINDS: dict[str, Owning] = {
    "stream": OwnedSegment,
    "key-shared": OwnedBucket,
    "checkpoint": lambda one: CheckpointSegment(one, lambda note: pytest.fail(f"nothing was pruned: {note}")),
}
DETACH, DETACHED = Detach(segment_id=0, bucket=0), Detached(segment_id=0, generation=1)


class Roaming:
    """An inbox that owns segment 0 at one of two scripted nodes, and a link to each."""

    def __init__(self, urls: list[str], owning: Owning) -> None:
        self.inbox, self.urls = Inbox(TOPIC, owning), urls
        self._changed = asyncio.Event()
        self.links = [self._link(url) for url in urls]
        self.move_to(0)

    def _link(self, url: str) -> ConsumeLink:
        return ConsumeLink(
            Endpoint(url, "token"),
            Membership("c", TOPIC, "group"),
            inbox=self.inbox,
            prefetch=Prefetch(100),
            changed=self._changed.set,
        )

    def move_to(self, node: int, *, generation: int = 1) -> None:
        """Hear from the controller that the segment is at this node."""
        segment = msgspec.structs.replace(assigned(0, generation=generation), url=self.urls[node])
        self.inbox.apply(assignment(segment))
        for link in self.links:
            link.wake()

    async def until(self, holds: Callable[[OwnedSegment], bool]) -> None:
        """Wait for what frames make of the segment."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(self.inbox.owned[BucketKey(0)]):
                self._changed.clear()
                await self._changed.wait()

    async def until_received(self, position: int) -> None:
        """Wait until everything below a position has come."""
        await self.until(lambda held: held.received >= position)


@asynccontextmanager
async def roaming(owning: Owning) -> AsyncIterator[tuple[ScriptedNode, ScriptedNode, Roaming]]:
    one, other = nodes = [ScriptedNode(decoder(ConsumeClientFrame)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(node)) for node in nodes]
        consumer = Roaming(urls, owning)
        for link in consumer.links:
            await stack.enter_async_context(running(link))
        assert isinstance(await one.receive(), Attach)
        yield one, other, consumer


@pytest.mark.parametrize("owning", KINDS.values(), ids=KINDS)
async def test_what_was_dropped_while_acknowledgements_were_refused_comes_from_the_next_node(
    owning: Owning,
) -> None:
    async with roaming(owning) as (one, other, consumer):
        await one.send(encode_delivery(delivery(0, 2)))
        await consumer.until_received(2)
        await one.send(error_frame(Internal(reference="r"), segment_id=0))
        await consumer.until(lambda held: held.has_gap)
        await one.send(encode_delivery(delivery(2, 2)))
        consumer.move_to(1)
        assert await one.receive() == DETACH
        await one.send(encode_delivery(delivery(4, 2)))  # it was on its way
        await one.send(Skipped(segment_id=0, bucket=0, position=6, generation=1))
        await one.send(EndOfSegment(segment_id=0, end_offset=6, generation=1), DETACHED)
        assert isinstance(await other.receive(), Attach)
        await other.send(encode_delivery(delivery(0, 4)), encode_delivery(delivery(4, 2)))
        await consumer.until_received(6)
        assert offsets(take(consumer.inbox)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("owning", KINDS.values(), ids=KINDS)
async def test_a_segment_that_comes_back_is_attached_anew_behind_the_end_of_the_former_attachment(
    owning: Owning,
) -> None:
    async with roaming(owning) as (one, other, consumer):
        await one.send(encode_delivery(delivery(0, 2)))
        await consumer.until_received(2)
        consumer.move_to(1)
        assert await one.receive() == DETACH
        assert isinstance(await other.receive(), Attach)
        consumer.move_to(0)
        assert await other.receive() == DETACH
        await one.send(encode_delivery(delivery(4, 2)))  # of the former attachment, behind what was dropped
        await other.send(encode_delivery(delivery(6, 2)), DETACHED)
        await one.send(DETACHED)
        assert isinstance(await one.receive(), Attach)
        await one.send(encode_delivery(delivery(2, 4)))
        await consumer.until_received(6)
        assert offsets(take(consumer.inbox)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("owning", KINDS.values(), ids=KINDS)
async def test_who_owns_it_anew_at_the_former_node_need_not_wait_for_the_end_there(owning: Owning) -> None:
    async with roaming(owning) as (one, other, consumer):
        consumer.move_to(1)
        assert await one.receive() == DETACH
        assert isinstance(await other.receive(), Attach)
        consumer.move_to(0, generation=2)  # a seek, and a leader that came back, in one push
        attach = await one.receive()
        assert isinstance(attach, Attach)
        assert attach.generation == 2
        await one.send(DETACHED, encode_delivery(delivery(0, 2, generation=2)))
        await consumer.until_received(2)
        assert offsets(take(consumer.inbox)) == [0, 1]


class Slow:
    """A connection that waits for room, while the controller names the segment at the other node."""

    def __init__(self, consumer: Roaming) -> None:
        self._consumer, self.sent = consumer, list[object]()

    async def send(self, frame: object) -> None:
        self.sent.append(frame)
        self._consumer.move_to(1)


async def test_what_moves_while_a_frame_waits_for_room_is_not_attached_at_the_former_node() -> None:
    consumer = Roaming(["http://one", "http://other"], OwnedSegment)
    consumer.inbox.deliver(delivery(0, 2))
    take(consumer.inbox)
    consumer.inbox.acknowledge(0, 2)
    slow, held = Slow(consumer), consumer.inbox.owned[BucketKey(0)]
    await consumer.links[0]._attend(slow, held)  # type: ignore[arg-type]
    assert slow.sent == [Ack(segment_id=0, generation=1, position=2)]
    assert not held.attached


async def test_an_error_of_the_former_node_does_not_hold_up_the_next_one() -> None:
    async with roaming(OwnedSegment) as (one, other, consumer):
        await one.send(encode_delivery(delivery(0, 1)))
        await consumer.until_received(1)
        take(consumer.inbox)
        consumer.move_to(1)
        assert await one.receive() == DETACH
        await one.send(error_frame(Internal(reference="r"), segment_id=0), DETACHED)
        assert isinstance(await other.receive(), Attach)
        consumer.inbox.acknowledge(0, 1)
        consumer.links[1].wake()
        assert await other.receive() == Ack(segment_id=0, generation=1, position=1)
        assert not consumer.inbox.owned[BucketKey(0)].refused
