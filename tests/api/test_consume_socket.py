"""The consume socket against real nodes: permits, positions, the end of a segment, and hand-over."""

import asyncio

import psutil
import pytest

from launch.sandbox import LiveNode, ProcessFactory
from scalable.domain.keyspace import HashRange
from scalable.domain.operations import Outcome
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import messages, scaling
from scalable.services.topics import TopicView
from scalable.wire.batch import decode_batch
from scalable.wire.frames import (
    Ack,
    Acked,
    Delivery,
    Detach,
    Detached,
    EndOfSegment,
    ErrorFrame,
    Flow,
    Publish,
    Receipt,
    Register,
    Released,
    Welcome,
)
from tests.api.members import PRODUCE, attach, member, reader
from tests.api.peers import Peer, any_keys, ask, batch, keys_in, socket
from tests.topology import ACTOR, drive, make_topic

LOW, HIGH = HashRange(0, 0x7FFF), HashRange(0x8000, 0xFFFF)
MIB = 1024 * 1024


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with two segments."""
    return make_topic("orders", segments=2)


async def publish(topic: TopicView, segment_id: int, *batches: bytes) -> None:
    """Append from the test's own process, which is no node."""
    await ask(
        messages.append,
        name=topic.name,
        incarnation=topic.incarnation,
        segment_id=segment_id,
        batches=batches,
        producer=None,
    )


def low(count: int, first_sequence: int = 0) -> bytes:
    """A batch for segment 0."""
    return batch(keys_in(LOW, 1) * count, first_sequence=first_sequence)


async def nothing_comes(peer: Peer, seconds: float = 0.5) -> None:
    """Nothing is sent for a while."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await peer.connection.recv()


async def test_permits_bound_what_is_delivered(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, *(low(2, 2 * number) for number in range(5)))
    async with member(live_node, "a") as a, reader(live_node, "a") as peer:
        await attach(peer, a, 0, permits=3)
        assert [(await peer.expect(Delivery)).base_offset for _ in range(2)] == [0, 2]
        await nothing_comes(peer)
        await peer.send(Flow(segment_id=0, permits=1))
        await nothing_comes(peer)
        await peer.send(Flow(segment_id=0, permits=1))
        assert (await peer.expect(Delivery)).base_offset == 4


async def test_reading_goes_on_behind_what_is_acknowledged(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, low(4))
    async with member(live_node, "a") as a, reader(live_node, "a") as peer:
        await attach(peer, a, 0)
        whole = await peer.expect(Delivery)
        assert (whole.generation, whole.base_offset, whole.first_offset) == (a.owned[0], 0, 0)
        for position in (1, 3, 2):
            await peer.send(Ack(segment_id=0, generation=a.owned[0], position=position))
        assert (await peer.wait_for(Acked)).position in {1, 2, 3}
        await peer.send(Ack(segment_id=0, generation=a.owned[0], position=99))
        refused = await peer.wait_for(ErrorFrame)
        assert (refused.code, refused.segment_id) == ("position_invalid", 0)
        await peer.send(Detach(segment_id=0))
        assert await peer.wait_for(Detached) == Detached(segment_id=0, generation=a.owned[0])
        await publish(topic, 0, low(1, 4))
        await nothing_comes(peer)
        await attach(peer, a, 0)
        rest = await peer.expect(Delivery)
        assert (rest.base_offset, rest.first_offset in {2, 3}) == (0, True)
        assert (await peer.expect(Delivery)).base_offset == 4


async def test_a_member_of_a_group_acknowledges_nothing(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, low(4))
    group = Register(kind="CHECKPOINT")
    async with member(live_node, "a", register=group) as a, reader(live_node, "a") as peer:
        await attach(peer, a, 0)
        await peer.expect(Delivery)
        await peer.send(Ack(segment_id=0, generation=a.owned[0], position=3))
        assert (await peer.wait_for(ErrorFrame)).code == "frame_invalid"
        assert await peer.close_code() == 4400
    assert await ask(segment_port().backlog, SegmentKey(topic.incarnation, 0), subscription="s") == 4


async def test_to_attach_again_begins_anew_and_is_not_answered_by_an_end(
    live_node: LiveNode, topic: TopicView
) -> None:
    """A client that took such an answer for the end of its new reader would attach for ever."""
    await publish(topic, 0, low(4))
    async with member(live_node, "a") as a, reader(live_node, "a") as peer:
        for _ in range(3):
            await attach(peer, a, 0)
            assert (await peer.expect(Delivery)).base_offset == 0
        await nothing_comes(peer)
        await peer.send(Detach(segment_id=0))
        assert await peer.expect(Detached) == Detached(segment_id=0, generation=a.owned[0])
        await peer.send(Detach(segment_id=0))
        assert await peer.expect(Detached) == Detached(segment_id=0)


async def test_an_append_wakes_its_readers_on_every_node(processes: ProcessFactory) -> None:
    quiet = {"SCALABLE_WATCH_RESYNC_SECONDS": "600"}
    near, far = processes.node(**quiet), processes.node(**quiet)
    topic = await ask(make_topic, "orders", segments=1)
    async with (
        member(near, "a") as a,
        reader(near, "a") as here,
        reader(far, "a") as there,
        socket(near, PRODUCE, producer="p") as producer,
    ):
        await producer.expect(Welcome)
        for peer in (here, there):
            await attach(peer, a, 0)
            await nothing_comes(peer, 0.3)
        for number in range(3):
            await producer.send(Publish(number, 0, False, batch(any_keys(1), first_sequence=number)))
            await producer.expect(Receipt)
            for peer in (here, there):
                assert (await peer.expect(Delivery)).base_offset == number
        await publish(topic, 0, batch(any_keys(1), first_sequence=3))
        assert (await here.expect(Delivery)).base_offset == 3


async def test_a_lost_hint_heals_by_itself(processes: ProcessFactory) -> None:
    without = {"SCALABLE_HINTS_ENABLED": "false", "SCALABLE_WATCH_RESYNC_SECONDS": "1"}
    near, far = processes.node(**without), processes.node(**without)
    await ask(make_topic, "orders", segments=1)
    async with (
        member(near, "a") as a,
        reader(far, "a") as peer,
        socket(near, PRODUCE, producer="p") as producer,
    ):
        await producer.expect(Welcome)
        await attach(peer, a, 0)
        await nothing_comes(peer, 0.2)
        await producer.send(Publish(0, 0, False, batch(any_keys(1))))
        async with asyncio.timeout(5):
            assert (await peer.expect(Delivery)).base_offset == 0


async def test_children_follow_their_parent(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, 0, low(3))
    async with member(live_node, "a") as a, reader(live_node, "a") as peer:
        parent = a.owned[0]
        await attach(peer, a, 0)
        await peer.expect(Delivery)
        await ask(split, topic, 0)
        await publish(topic, 2, batch(keys_in(HashRange(0, 0x3FFF), 1), first_sequence=3))
        end = await peer.expect(EndOfSegment)
        assert end == EndOfSegment(segment_id=0, end_offset=3, generation=parent)
        await peer.send(Ack(segment_id=0, generation=parent, position=2))
        assert (await peer.expect(Acked)).position == 2
        assert 2 not in a.owned
        await peer.send(Ack(segment_id=0, generation=parent, position=3))
        assert (await peer.expect(Acked)).position == 3
        await a.until_owned(1, 2, 3)
        await attach(peer, a, 2)
        assert (await peer.expect(Delivery)).base_offset == 0


async def test_children_open_within_a_second_of_the_last_acknowledgement_without_polling(
    processes: ProcessFactory,
) -> None:
    quiet = {"SCALABLE_WATCH_RESYNC_SECONDS": "600"}
    near, far = processes.node(**quiet), processes.node(**quiet)
    topic = await ask(make_topic, "orders", segments=1)
    await publish(topic, 0, batch(any_keys(1)))
    async with member(near, "a") as a, reader(far, "a") as peer:
        await attach(peer, a, 0)
        await peer.expect(Delivery)
        await ask(split, topic, 0)
        await peer.expect(EndOfSegment)
        await peer.send(Ack(segment_id=0, generation=a.owned[0], position=1))
        async with asyncio.timeout(1):
            await a.until_owned(1, 2)


async def test_a_hand_over_doubles_nothing(live_node: LiveNode, topic: TopicView) -> None:
    for segment_id in (0, 1):
        keys = keys_in((LOW, HIGH)[segment_id], 1)
        await publish(topic, segment_id, *(batch(keys, first_sequence=number) for number in range(10)))
    async with member(live_node, "a") as a, reader(live_node, "a") as from_a:
        for segment_id in (0, 1):
            await attach(from_a, a, segment_id, permits=4)
        seen = [place(await from_a.expect(Delivery)) for _ in range(8)]
        async with member(live_node, "b") as b, reader(live_node, "b") as from_b:
            assert (b.owned, b.assignment.standby) == ({}, False), "its segment is on its way"
            ((moving, _),) = (await a.next_assignment()).releasing
            generation = a.owned[moving]
            await from_a.send(Detach(segment_id=moving))
            await from_a.wait_for(Detached)
            await from_a.send(Ack(segment_id=moving, generation=generation, position=4))
            await from_a.wait_for(Acked)
            await a.peer.send(Released(segment_id=moving, generation=generation))
            await b.until_owned(moving)
            assert b.owned[moving] == generation + 1
            await attach(from_b, b, moving)
            seen += [place(await from_b.expect(Delivery)) for _ in range(6)]
            await from_a.send(Flow(segment_id=1 - moving, permits=6))
            seen += [place(await from_a.expect(Delivery)) for _ in range(6)]
            await from_a.send(Ack(segment_id=moving, generation=generation, position=9))
            assert (await from_a.wait_for(ErrorFrame)).code == "generation_superseded"
    assert sorted(seen) == [(segment_id, offset) for segment_id in (0, 1) for offset in range(10)]


async def test_an_owner_that_does_not_let_go_is_cut_off(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_HANDOVER_SECONDS="0.5")
    topic = await ask(make_topic, "orders", segments=2)
    async with member(node, "a") as a, reader(node, "a") as from_a:
        for segment_id in (0, 1):
            await attach(from_a, a, segment_id)
        held = a.owned
        async with member(node, "b") as b:
            ((moving, _),) = (await a.next_assignment()).releasing
            await b.until_owned(moving)
            cut_off = await from_a.expect(ErrorFrame)
            assert (cut_off.code, cut_off.segment_id) == ("generation_superseded", moving)
            assert cut_off.generation == held[moving]
            assert await from_a.expect(Detached) == Detached(segment_id=moving, generation=held[moving])
            keys = keys_in((LOW, HIGH)[moving], 1)
            await publish(topic, moving, batch(keys))
            await nothing_comes(from_a)
            await from_a.send(Ack(segment_id=moving, generation=a.owned[moving], position=1))
            assert (await from_a.expect(ErrorFrame)).code == "generation_superseded"


async def test_only_owners_read(live_node: LiveNode, topic: TopicView) -> None:
    async with member(live_node, "a") as a, reader(live_node, "b") as peer:
        await attach(peer, a, 0)
        assert (await peer.expect(ErrorFrame)).code == "segment_not_owned"
        await peer.expect(Detached)


async def test_a_reader_that_does_not_read_is_closed(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_SOCKET_SEND_SECONDS="1")
    topic = await ask(make_topic, "orders", segments=2)
    megabyte = batch(keys_in(LOW, 1), value=bytes(MIB))
    for _ in range(8):
        await publish(topic, 0, *[megabyte] * 8)
    process = psutil.Process(node.process.pid)
    async with (
        member(node, "a") as a,
        reader(node, "a") as stuck,
        reader(node, "a") as other,
    ):
        before = process.memory_info().rss
        await attach(stuck, a, 0)
        await attach(other, a, 1)
        await asyncio.sleep(
            3
        )  # longer than a reader may stand still; it is the absence of reading that counts
        assert process.memory_info().rss - before < 40 * MIB
        await publish(topic, 1, batch(keys_in(HIGH, 1)))
        assert (await other.expect(Delivery)).segment_id == 1
        assert 0 < len(await stuck.frames_until_closed()) < 64


def place(delivery: Delivery) -> tuple[int, int]:
    """Segment and offset of a delivery that holds one record."""
    (_,) = decode_batch(delivery.batch)
    return delivery.segment_id, delivery.first_offset


def split(topic: TopicView, segment_id: int) -> None:
    """Split a segment in two."""
    operation = scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED
