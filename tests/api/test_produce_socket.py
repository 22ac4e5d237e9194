"""The produce socket against a real node: order, permits, refusals, and how a broken stream starts again."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from django.db import connection, transaction
from msgspec import convert

from launch.sandbox import LiveNode, ProcessFactory
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.operations import Outcome
from scalable.services import messages, scaling, topics
from scalable.services.topics import TopicView
from scalable.wire.batch import Codec, Record, decode_batch, encode_batch
from scalable.wire.frames import ErrorFrame, Publish, Receipt, Refused, SegmentFrame, Welcome, count_parts
from tests.api.peers import Peer, ask, batch, eventually, keys_in, socket
from tests.topology import ACTOR, drive, make_topic

PATH = "produce/public/default/orders"
LOW, HIGH = HashRange(0, 0x7FFF), HashRange(0x8000, 0xFFFF)
MIB = 1024 * 1024


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with two segments."""
    return make_topic("orders", segments=2)


@dataclass
class Sender:
    """Sends batches to segment 0 with ascending request ids and sequences."""

    peer: Peer
    next_id: int = 0

    async def send(self, *, restart: bool = False, segment_id: int = 0, data: bytes | None = None) -> int:
        number, self.next_id = self.next_id, self.next_id + 1
        keys = keys_in(LOW if segment_id == 0 else HIGH, 1)
        data = batch(keys, first_sequence=number) if data is None else data
        await self.peer.send(Publish(number, segment_id, restart, data))
        return number


async def stored(topic: TopicView, segment_id: int) -> list[bytes]:
    """The values of a segment's records, in order."""
    page = await ask(
        messages.read_by_name,
        name=topic.name,
        segment_id=segment_id,
        offset=0,
        max_bytes=100 * MIB,
        max_batches=1_000,
    )
    return [record.value for one in page.batches for record in decode_batch(one.payload)]


async def test_batches_keep_their_order_and_repeats_are_told(live_node: LiveNode, topic: TopicView) -> None:
    key = keys_in(LOW, 1)
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        for number in range(50):
            await peer.send(Publish(number, 0, False, batch(key, first_sequence=number)))
        receipts = [await peer.expect(Receipt) for _ in range(50)]
        assert [receipt.base_offset for receipt in receipts] == list(range(50))
        assert [receipt.request_id for receipt in receipts] == list(range(50))
        await peer.send(Publish(50, 0, False, batch(key, first_sequence=49)))
        repeated = await peer.expect(Receipt)
        assert (repeated.duplicate, repeated.base_offset) == (True, 49)
    async with socket(live_node, PATH, producer="p") as peer:
        assert (await peer.expect(Welcome)).last_sequence == 49
    assert await stored(topic, 0) == [f"{key[0]}:{number}".encode() for number in range(50)]


async def test_segments_go_side_by_side(live_node: LiveNode, topic: TopicView) -> None:
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        for number in range(20):
            await sender.send(segment_id=number % 2)
        receipts = [await peer.expect(Receipt) for _ in range(20)]
        for segment_id in (0, 1):
            of_segment = [receipt for receipt in receipts if receipt.segment_id == segment_id]
            assert [receipt.base_offset for receipt in of_segment] == list(range(10))


async def test_more_in_flight_than_the_permits_closes(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_PRODUCE_PERMITS="4")
    topic = await ask(make_topic, "orders", segments=2)
    async with socket(node, PATH, producer="p") as peer, asyncio.TaskGroup() as group:
        assert (await peer.expect(Welcome)).permits == 4
        held, done = threading.Event(), threading.Event()
        group.create_task(ask(hold_up, topic, held, done))
        await asyncio.to_thread(held.wait)
        sender = Sender(peer)
        for _ in range(5):
            await sender.send()
        assert (await peer.wait_for(ErrorFrame)).code == "permits_exceeded"
        assert await peer.close_code() == 4429
        done.set()
    async with socket(node, PATH, producer="q") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        for number in range(20):
            await sender.send()
            assert (await peer.expect(Receipt)).request_id == number


def hold_up(topic: TopicView, held: threading.Event, done: threading.Event) -> None:
    """Keep the log of segment 0 locked until the test is done with it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM segment_log WHERE incarnation = %s AND segment_id = 0 FOR UPDATE",
            [topic.incarnation],
        )
        held.set()
        done.wait(20)


async def test_a_refused_batch_breaks_its_stream_until_it_restarts(
    live_node: LiveNode, topic: TopicView
) -> None:
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        first = await sender.send()
        noise = await sender.send(data=b"noise")
        after = await sender.send()
        other = await sender.send(segment_id=1)
        restarted = await sender.send(restart=True)
        following = await sender.send()
        answers = {frame.request_id: frame for frame in [await answer(peer) for _ in range(6)]}
        assert isinstance(answers[first], Receipt)
        assert answers[noise].code == "batch_invalid"  # type: ignore[union-attr]
        assert answers[after].code == "stream_broken"  # type: ignore[union-attr]
        assert isinstance(answers[other], Receipt)
        assert answers[restarted].base_offset == 1  # type: ignore[union-attr]
        assert answers[following].base_offset == 2  # type: ignore[union-attr]


async def test_one_bad_batch_of_a_group_is_found_and_those_before_it_are_stored(
    live_node: LiveNode, topic: TopicView
) -> None:
    outside = batch(keys_in(HIGH, 1), first_sequence=20)
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        for number in range(30):
            await sender.send(data=outside if number == 20 else None)
        answers = [await answer(peer) for _ in range(30)]
    assert all(isinstance(frame, Receipt) for frame in answers[:20])
    codes = [frame.code for frame in answers[20:] if isinstance(frame, Refused)]
    assert codes == ["batch_invalid"] + ["stream_broken"] * 9
    assert len(await stored(topic, 0)) == 20


async def test_a_sealed_segment_costs_one_refusal_with_the_epoch(
    live_node: LiveNode, topic: TopicView
) -> None:
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        await sender.send()
        await peer.expect(Receipt)
        await ask(split, topic, 0)
        for _ in range(40):
            await sender.send()
        answers = [await peer.expect(Refused) for _ in range(40)]
        assert answers[0].code == "segment_terminated"
        assert (answers[0].fields["segment_id"], answers[0].fields["epoch"]) == (0, 1)
        successors = convert(answers[0].fields["successors"], list[SegmentFrame])
        assert [(each.segmentId, each.parentIds, each.state) for each in successors] == [
            (2, [0], "ACTIVE"),
            (3, [0], "ACTIVE"),
        ]
        assert {frame.code for frame in answers[1:]} == {"stream_broken"}
        again = batch(keys_in(HashRange(0, 0x3FFF), 1), first_sequence=1)
        await peer.send(Publish(100, 2, False, again))
        assert (await peer.expect(Receipt)).base_offset == 0
    assert len(await stored(topic, 0)) == 1


async def test_what_cannot_be_stored_is_named(live_node: LiveNode, topic: TopicView) -> None:
    keys = keys_in(LOW, 2)
    parts = count_parts(LOW, [0])
    cases = [
        (Publish(0, 9, True, batch(keys)), "segment_not_found"),
        (Publish(1, 0, True, b""), "batch_invalid"),
        (Publish(2, 0, True, batch(keys, value=bytes(4 * MIB), codec=Codec.ZSTD)), "batch_too_large"),
        (Publish(3, 0, True, batch(keys), parts), "batch_invalid"),
        (Publish(4, 0, True, batch(keys)[:-1]), "batch_invalid"),
    ]
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        for publish, code in cases:
            await peer.send(publish)
            refused = await peer.expect(Refused)
            assert (refused.request_id, refused.code) == (publish.request_id, code)
        await peer.send(Publish(5, 0, True, batch(keys[:1], value=bytes(5 * MIB))))
        assert (await peer.expect(Receipt)).base_offset == 0


async def test_a_partly_stored_batch_names_the_marks(live_node: LiveNode, topic: TopicView) -> None:
    """After a merge the parents' marks differ, and a repeat across them is neither new nor stored."""
    low, high = keys_in(LOW, 1)[0], keys_in(HIGH, 1)[0]
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        await peer.send(Publish(0, 0, False, batch([low], first_sequence=5)))
        await peer.expect(Receipt)
        await ask(merge, topic)
        both = encode_batch([Record(low, b"", 4, 0), Record(high, b"", 5, 0)], published_at_ms=1)
        await peer.send(Publish(1, 2, False, both))
        refused = await peer.expect(Refused)
        assert refused.code == "batch_partly_duplicate"
        assert refused.fields["marks"] == [[LOW.start, LOW.end, 5]]


async def test_a_producer_that_vanishes_leaves_whole_batches(live_node: LiveNode, topic: TopicView) -> None:
    async with socket(live_node, PATH, producer="p") as peer:
        await peer.expect(Welcome)
        sender = Sender(peer)
        for _ in range(60):
            await sender.send()
        await peer.expect(Receipt)
        peer.connection.transport.abort()
    values = await eventually(lambda: stored(topic, 0))
    key = keys_in(LOW, 1)[0]
    assert values == [f"{key}:{number}".encode() for number in range(len(values))]


async def answer(peer: Peer) -> Receipt | Refused:
    """The next answer to a batch."""
    frame = await peer.receive()
    assert isinstance(frame, Receipt | Refused), frame
    return frame


def split(topic: TopicView, segment_id: int) -> None:
    """Split a segment in two."""
    operation = scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED


def merge(topic: TopicView) -> None:
    """Merge the first two segments."""
    operation = scaling.request_merge(name=topic.name, segment_ids=[0, 1], actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED
    assert topics.get_topic(name=topic.name).layout.active[0].hash_range == FULL_RANGE
