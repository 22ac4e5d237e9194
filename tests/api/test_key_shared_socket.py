"""Entry buckets on the wire: who owns what, what is delivered for a bucket, and who may acknowledge."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from launch.sandbox import LiveNode
from scalable.domain.buckets import equal_splits
from scalable.domain.cursors import bucket_ranges
from scalable.domain.keyspace import bucket_hash, key_hash
from scalable.domain.subscriptions import BucketKey
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import scaling
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, encode_batch
from scalable.wire.bucket_batch import decode_cut
from scalable.wire.frames import (
    Ack,
    Acked,
    Assignment,
    Attach,
    Delivery,
    EndOfSegment,
    ErrorFrame,
    Flow,
    Register,
    Released,
    Skipped,
    Welcome,
)
from tests.api.members import CONTROL, reader
from tests.api.peers import Peer, ask, rest, socket
from tests.api.test_consume_socket import nothing_comes, publish
from tests.topology import ACTOR, drive, make_topic

FOUR = equal_splits(4)
RANGES = bucket_ranges(FOUR)
KEYS = {
    bucket: next(key for key in map(str, range(1_000)) if RANGES[bucket].contains(bucket_hash(key_hash(key))))
    for bucket in range(4)
}


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with one segment of four entry buckets."""
    return make_topic("orders", segments=1)


class Sharer:
    """A member of the key-shared subscription `s`, and the newest assignment that it was told."""

    def __init__(self, peer: Peer, assignment: Assignment) -> None:
        self.peer, self.assignment = peer, assignment

    @property
    def owned(self) -> dict[BucketKey, int]:
        """The generations of the buckets that it owns and need not give up."""
        releasing = set(map(tuple, self.assignment.releasing))
        found = {BucketKey(one.segment_id, one.bucket): one.generation for one in self.assignment.segments}
        return {key: generation for key, generation in found.items() if key not in releasing}

    async def until_owning(self, count: int) -> None:
        """Take assignments until so many buckets are owned and none is asked back."""
        while len(self.owned) != count or self.assignment.releasing:
            self.assignment = await self.peer.expect(Assignment)


@asynccontextmanager
async def sharer(node: LiveNode, name: str) -> AsyncIterator[Sharer]:
    async with socket(node, CONTROL, consumer=name) as peer:
        await peer.expect(Welcome)
        await peer.send(Register(key_shared=True))
        yield Sharer(peer, await peer.expect(Assignment))


def batch_of(*buckets: int, starts: tuple[int, ...] = FOUR) -> bytes:
    """A batch with a record for each of these buckets."""
    return encode_batch(
        [Record(KEYS[bucket], b"v") for bucket in buckets], published_at_ms=0, bucket_starts=starts
    )


async def attach(peer: Peer, owner: Sharer, bucket: int, *, permits: int = 1_000) -> None:
    generation = owner.owned[BucketKey(0, bucket)]
    await peer.send(Attach(segment_id=0, generation=generation, permits=permits, bucket=bucket))


def keys_of(delivery: Delivery) -> list[tuple[int, str | None]]:
    """The offsets and keys that a delivery has for its bucket."""
    bucket_range = RANGES[delivery.bucket]
    decoded = decode_cut(delivery.batch, bucket_range, base_offset=delivery.base_offset)
    return [(delivery.base_offset + position, record.key) for position, record in decoded.records]


async def test_one_two_and_five_consumers_of_a_segment_of_four_buckets(
    live_node: LiveNode, topic: TopicView
) -> None:
    """Vector 77."""
    shared = {"0": [(one.start, one.end) for one in RANGES]}
    async with sharer(live_node, "c0") as first:
        assert sorted(first.owned) == [BucketKey(0, bucket) for bucket in range(4)]
        assert first.assignment.shared_buckets == {}
        assert [(one.bucket_start, one.bucket_end) for one in first.assignment.segments] == shared["0"]
        async with sharer(live_node, "c1") as second:
            await release_all(first)
            await second.until_owning(2)
            await first.until_owning(2)
            assert first.owned.keys().isdisjoint(second.owned)
            assert first.assignment.shared_buckets == second.assignment.shared_buckets == shared
            for door in ("", "/assignments"):
                told = await asyncio.to_thread(entry_buckets, live_node, door)
                assert told == {"c0": ranges_of(first), "c1": ranges_of(second)}
            async with (
                sharer(live_node, "c2") as third,
                sharer(live_node, "c3") as fourth,
                sharer(live_node, "c4") as fifth,
            ):
                for giver in (first, second):
                    await release_all(giver)
                for one in (first, second, third, fourth):
                    await one.until_owning(1)
                assert (fifth.owned, fifth.assignment.standby) == ({}, True)


def entry_buckets(node: LiveNode, door: str) -> dict[str, object]:
    """What REST tells of the consumers' entry buckets."""
    answer = rest(node, "GET", f"public/default/orders/subscriptions/s{door}").json()
    assert all(one["segmentIds"] == [0] for one in answer["consumers"])
    return {one["consumerName"]: one["entryBuckets"] for one in answer["consumers"]}


def ranges_of(owner: Sharer) -> dict[str, list[str]]:
    return {"0": [RANGES[key.bucket].hex for key in sorted(owner.owned)]}


async def release_all(owner: Sharer) -> None:
    """Give up what others shall have, once it is asked for."""
    while not owner.assignment.releasing:
        owner.assignment = await owner.peer.expect(Assignment)
    generations = {(one.segment_id, one.bucket): one.generation for one in owner.assignment.segments}
    for segment_id, bucket in owner.assignment.releasing:
        generation = generations[segment_id, bucket]
        await owner.peer.send(Released(segment_id=segment_id, generation=generation, bucket=bucket))


async def test_a_bucket_gets_its_sub_blocks_and_nothing_else(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, batch_of(0, 1, 2, 1), batch_of(2, 3), batch_of(1, 0, starts=()))
    async with sharer(live_node, "a") as a, reader(live_node, "a") as peer:
        await attach(peer, a, 1)
        generation = a.owned[BucketKey(0, 1)]
        assert await peer.expect(Acked) == Acked(segment_id=0, position=0, bucket=1, generation=generation)
        cut, whole = await peer.expect(Delivery), await peer.expect(Delivery)
        assert keys_of(cut) == [(1, KEYS[1]), (3, KEYS[1])]
        assert len(cut.batch) < len(batch_of(0, 1, 2, 1))
        assert (keys_of(whole), whole.batch) == ([(6, KEYS[1])], batch_of(1, 0, starts=()))
        await publish(topic, 0, batch_of(0))
        skipped = await peer.expect(Skipped)
        assert skipped == Skipped(segment_id=0, bucket=1, position=9, generation=generation)


async def test_permits_count_what_is_delivered(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, batch_of(0, 1), batch_of(0), batch_of(1), batch_of(2), batch_of(1))
    async with sharer(live_node, "a") as a, reader(live_node, "a") as peer:
        await attach(peer, a, 1, permits=2)
        await peer.expect(Acked)
        assert [(await peer.expect(Delivery)).base_offset for _ in range(2)] == [0, 3]
        await nothing_comes(peer)
        await peer.send(Flow(segment_id=0, permits=1, bucket=1))
        assert (await peer.expect(Delivery)).base_offset == 5


async def test_a_co_owner_acknowledges_within_its_own_buckets_only(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, 0, batch_of(0, 1, 2, 3))
    async with sharer(live_node, "a") as a, sharer(live_node, "b") as b, reader(live_node, "b") as peer:
        await release_all(a)
        await a.until_owning(2)
        await b.until_owning(2)
        own, foreign = min(b.owned), min(a.owned)
        for position, ranges in [(4, []), (0, [(0, 2)])]:
            for generation in (a.owned[foreign], b.owned[own]):
                ack = Ack(
                    segment_id=0,
                    bucket=foreign.bucket,
                    generation=generation,
                    position=position,
                    ranges=ranges,
                )
                await peer.send(ack)
                refused = await peer.expect(ErrorFrame)
                assert refused.code in {"segment_not_owned", "generation_superseded"}
                assert (refused.segment_id, refused.bucket) == (0, foreign.bucket)
        await peer.send(
            Ack(
                segment_id=0,
                bucket=own.bucket,
                generation=b.owned[own],
                position=1,
                ranges=[(2, 3)],
            )
        )
        acked = await peer.expect(Acked)
        generation = b.owned[own]
        assert acked == Acked(
            segment_id=0, position=1, bucket=own.bucket, ranges=[(2, 3)], generation=generation
        )
        cursors = await ask(segment_port().cursors, SegmentKey(topic.incarnation, 0))
        assert {one.subscription: one.position for one in cursors} == {
            f"s/{RANGES[bucket].hex}": int(bucket == own.bucket) for bucket in range(4)
        }


async def test_what_was_acknowledged_singly_is_told_to_whoever_attaches(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, 0, batch_of(1, 1, 1))
    async with sharer(live_node, "a") as a:
        generation = a.owned[BucketKey(0, 1)]
        async with reader(live_node, "a") as peer:
            await peer.send(
                Ack(segment_id=0, bucket=1, generation=generation, position=0, ranges=[(1, 2), (2, 3)])
            )
            await peer.expect(Acked)
        async with reader(live_node, "a") as peer:
            await attach(peer, a, 1)
            assert (await peer.expect(Acked)).ranges == [(1, 3)]


async def test_a_sealed_segment_is_drained_when_all_its_buckets_are(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, 0, batch_of(1))
    async with sharer(live_node, "a") as a, reader(live_node, "a") as peer:
        operation = await ask(
            scaling.request_rebucket, name=topic.name, segment_id=0, bucket_count=2, actor=ACTOR
        )
        await ask(drive, operation)
        for bucket in range(4):
            assert {segment_id for segment_id, _ in a.owned} == {0}
            await attach(peer, a, bucket)
            end = await peer.wait_for(EndOfSegment)
            assert (end.bucket, end.end_offset) == (bucket, 1)
            generation = a.owned[BucketKey(0, bucket)]
            await peer.send(Ack(segment_id=0, bucket=bucket, generation=generation, position=1))
            await peer.wait_for(Acked)
        while {segment_id for segment_id, _ in a.owned} != {1}:
            a.assignment = await a.peer.expect(Assignment)
        assert sorted(a.owned) == [BucketKey(1, 0), BucketKey(1, 1)]


async def test_single_acknowledgements_are_for_shared_keys(live_node: LiveNode, topic: TopicView) -> None:
    async with socket(live_node, CONTROL, consumer="a") as control:
        await control.expect(Welcome)
        await control.send(Register())
        generation = (await control.expect(Assignment)).segments[0].generation
        async with reader(live_node, "a") as peer:
            await peer.send(Ack(segment_id=0, generation=generation, position=0, ranges=[(0, 1)]))
            assert (await peer.expect(ErrorFrame)).code == "frame_invalid"
