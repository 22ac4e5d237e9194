"""The queue socket against real nodes: shared segments, claims and their end, permits, what is due when."""

import asyncio
import time

import psutil
import pytest

from launch.sandbox import LiveNode, ProcessFactory
from scalable.domain.operations import Outcome
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import scaling, subscriptions, topics
from scalable.services.topics import TopicView
from scalable.wire.batch import Record, encode_batch
from scalable.wire.frames import (
    Close,
    Detached,
    ErrorFrame,
    Gone,
    Publish,
    QueueAck,
    QueueDetach,
    QueueFlow,
    Receipt,
    Renew,
    Renewed,
    SegmentDone,
    Welcome,
)
from tests.api.peers import any_keys, ask, batch, socket
from tests.api.queues import QUEUE, make_queue, offsets, publish, queue_peer
from tests.topology import ACTOR, drive

PRODUCE = "produce/public/default/orders"
MIB = 1024 * 1024
FOREVER_MS = 3_600_000


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with one segment, and its subscription `q`."""
    return make_queue()


def some(count: int, first: int = 0) -> bytes:
    """A batch of so many messages."""
    return batch(any_keys(1) * count, first_sequence=first)


def delayed(text: str, deliver_at_ms: int) -> bytes:
    """One message that is due at a time."""
    return encode_batch([Record("k", text.encode())], published_at_ms=0, deliver_at_ms=deliver_at_ms)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def split(topic: TopicView, segment_id: int = 0) -> None:
    """Split a segment in two."""
    operation = scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR)
    assert drive(operation).outcome is Outcome.SUCCEEDED


async def test_consumers_share_a_segment_and_nobody_gets_what_another_holds(
    live_node: LiveNode, topic: TopicView
) -> None:
    async with queue_peer(live_node, "a") as a, queue_peer(live_node, "b") as b:
        for consumer in (a, b):
            await consumer.attach(permits=30, ack_timeout_ms=FOREVER_MS)
        await publish(topic, some(60))
        by_a, by_b = await asyncio.gather(a.take(30), b.take(30))
        assert sorted(offsets(by_a) + offsets(by_b)) == list(range(60))
        assert {each.deliveries for each in by_a + by_b} == {1}
        assert all(each.value.endswith(f":{each.offset}".encode()) for each in by_a + by_b)
        await a.acknowledge(*by_a)
        for consumer in (a, b):
            await consumer.peer.send(QueueFlow(segment_id=0, permits=30))
        await consumer.nothing_comes()


async def test_permits_bound_what_is_in_flight(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, some(10))
    async with queue_peer(live_node, "a") as a:
        await a.attach(permits=3)
        assert offsets(await a.take(3)) == [0, 1, 2]
        await a.nothing_comes()
        await a.peer.send(QueueFlow(segment_id=0, permits=2))
        assert offsets(await a.take(2)) == [3, 4]
        await a.nothing_comes()


async def test_the_end_of_a_socket_gives_everything_back_at_once_and_counts(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, some(4))
    async with queue_peer(live_node, "b") as b:
        async with queue_peer(live_node, "a") as a:
            await a.attach(ack_timeout_ms=FOREVER_MS)
            taken = await a.take(4)
            await a.acknowledge(taken[1])
            await a.give_back(taken[3], delay_ms=FOREVER_MS)
            await b.attach(ack_timeout_ms=FOREVER_MS)
            await b.nothing_comes()
            a.peer.connection.transport.abort()
        again = await b.take(2)
        assert [(each.offset, each.deliveries) for each in sorted(again)] == [(0, 2), (2, 2)]
        await b.nothing_comes()


async def test_what_is_not_acknowledged_in_time_comes_again_and_a_renewal_gives_time(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, some(2))
    async with queue_peer(live_node, "a") as a, queue_peer(live_node, "b") as b:
        await a.attach(permits=2, ack_timeout_ms=3_000)  # no more, or it could be first to get the lost one
        kept, lost = await a.take(2)
        await b.attach(ack_timeout_ms=FOREVER_MS)

        async def keep() -> None:
            while True:
                await a.peer.send(Renew(segment_id=0, ranges=[(kept.offset, kept.offset + 1)]))
                await asyncio.sleep(0.2)

        keeping = asyncio.create_task(keep())
        (again,) = await b.take(1)
        assert (again.offset, again.deliveries) == (lost.offset, 2)
        await b.nothing_comes(3.5)
        keeping.cancel()
        await a.peer.send(Renew(segment_id=0, ranges=[(kept.offset, kept.offset + 1)], request_id=7))
        assert await a.wait_for(Renewed) == Renewed(segment_id=0, request_id=7, complete=True)
        await a.peer.send(Renew(segment_id=0, ranges=[(0, 9)], request_id=8))
        assert await a.wait_for(Renewed) == Renewed(segment_id=0, request_id=8, complete=False)
        # A late acknowledgement counts, if nobody was faster.
        await a.acknowledge(lost)
        (kept_again,) = await b.take(1)
        assert (kept_again.offset, kept_again.deliveries) == (kept.offset, 2)
        await b.peer.send(QueueDetach(segment_id=0))
        await b.wait_for(Detached)
        await a.peer.send(QueueFlow(segment_id=0, permits=10))
        assert offsets(await a.take(1)) == [kept.offset]


async def test_a_negative_acknowledgement_lets_a_message_rest(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, some(3))
    async with queue_peer(live_node, "a") as a:
        await a.attach(ack_timeout_ms=FOREVER_MS)
        at_once, later, unseen = await a.take(3)
        started = time.monotonic()
        await a.give_back(later, delay_ms=1_500)
        await a.give_back(unseen, counted=False)
        await a.give_back(at_once)
        first_two = await a.take(2)
        assert {(each.offset, each.deliveries) for each in first_two} == {(0, 2), (2, 1)}
        (rested,) = await a.take(1)
        assert (rested.offset, rested.deliveries) == (later.offset, 2)
        assert time.monotonic() - started >= 1.4


async def test_detaching_and_a_goodbye_give_back_at_once(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, some(2))
    async with queue_peer(live_node, "a") as a:
        await a.attach(ack_timeout_ms=FOREVER_MS)
        taken = await a.take(2)
        await a.acknowledge(taken[0])
        await a.peer.send(QueueDetach(segment_id=0))
        assert await a.wait_for(Detached) == Detached(segment_id=0)
        await publish(topic, some(1, 2))
        await a.nothing_comes()
        await a.attach(ack_timeout_ms=FOREVER_MS)
        assert sorted(offsets(await a.take(2))) == [1, 2]
        async with queue_peer(live_node, "b") as b:
            await b.attach()
            await b.nothing_comes(0.3)
            await a.peer.send(Close())
            assert sorted(offsets(await b.take(2))) == [1, 2]


@pytest.mark.parametrize("replaced", [False, True], ids=["detached", "attached-anew"])
async def test_what_was_said_of_messages_before_a_detachment_holds(
    live_node: LiveNode, topic: TopicView, replaced: bool
) -> None:
    await publish(topic, some(4))
    async with queue_peer(live_node, "a") as a:
        await a.attach(ack_timeout_ms=FOREVER_MS)
        taken = await a.take(4)
        await a.give_back(taken[0], delay_ms=FOREVER_MS)
        await a.give_back(taken[1], counted=False)
        await a.peer.send(QueueAck(segment_id=0, incarnation=taken[2].incarnation, ranges=[(2, 3)]))
        if not replaced:
            await a.peer.send(QueueDetach(segment_id=0))
            await a.wait_for(Detached)
        await a.attach(ack_timeout_ms=FOREVER_MS)
        again = await a.take(2)
        assert [(each.offset, each.deliveries) for each in sorted(again)] == [(1, 1), (3, 2)]
        await a.nothing_comes()


async def test_a_goodbye_comes_after_what_was_said_before_it(live_node: LiveNode, topic: TopicView) -> None:
    await publish(topic, some(330))
    async with queue_peer(live_node, "a") as a:
        await a.attach(permits=330, ack_timeout_ms=FOREVER_MS)
        taken = await a.take(330)
        for place, each in enumerate(taken[:300]):
            await a.give_back(each, delay_ms=FOREVER_MS + place)  # each of them a statement of its own
        await a.give_back(*taken[300:], counted=False)
        await a.peer.send(Close())
        assert await a.peer.close_code() == 1000
    async with queue_peer(live_node, "b") as b:
        await b.attach(ack_timeout_ms=FOREVER_MS)
        again = await b.take(30)
        assert [(each.offset, each.deliveries) for each in sorted(again)] == [(n, 1) for n in range(300, 330)]
        await b.nothing_comes()


async def test_an_append_and_a_return_wake_the_consumers_of_every_node(processes: ProcessFactory) -> None:
    quiet = {"SCALABLE_WATCH_RESYNC_SECONDS": "600"}
    near, far = processes.node(**quiet), processes.node(**quiet)
    await ask(make_queue)
    async with (
        queue_peer(near, "a") as a,
        queue_peer(far, "b") as b,
        socket(near, PRODUCE, producer="p") as producer,
    ):
        await producer.expect(Welcome)
        await b.attach(permits=1, ack_timeout_ms=FOREVER_MS)
        await b.nothing_comes(0.3)
        await producer.send(Publish(0, 0, False, some(1)))
        await producer.expect(Receipt)
        (held,) = await b.take(1)
        await a.attach(ack_timeout_ms=FOREVER_MS)
        await a.nothing_comes(0.3)
        await b.give_back(held)
        assert [(each.offset, each.deliveries) for each in await a.take(1)] == [(0, 2)]


async def test_claims_of_a_node_that_dies_run_out(processes: ProcessFactory) -> None:
    first, second = processes.node(), processes.node()
    topic = await ask(make_queue)
    await publish(topic, some(3))
    async with queue_peer(second, "b") as b:
        async with queue_peer(first, "a") as a:
            await a.attach(ack_timeout_ms=4_000)
            taken = await a.take(3)
            await a.acknowledge(taken[2])
            await b.attach()
            await b.nothing_comes()
            psutil.Process(first.process.pid).kill()
        assert [(each.offset, each.deliveries) for each in sorted(await b.take(2))] == [(0, 2), (1, 2)]


async def test_a_sealed_segment_is_done_when_all_is_acknowledged_not_when_it_is_delivered(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, some(100))
    await ask(split, topic)
    async with queue_peer(live_node, "b") as b:
        async with queue_peer(live_node, "a") as a:
            await a.attach(ack_timeout_ms=FOREVER_MS)
            taken = await a.take(100)
            await a.acknowledge(*taken[:50])
            await b.attach()
            await b.nothing_comes()
        rest = await b.take(50)
        assert sorted(offsets(rest)) == list(range(50, 100))
        async with queue_peer(live_node, "c") as c:
            await c.attach()
            await c.nothing_comes()
            await b.acknowledge(*rest)
            for consumer in (b, c):
                assert await consumer.wait_for(SegmentDone) == SegmentDone(segment_id=0)
            # A late acknowledgement for a sealed segment is taken.
            await c.acknowledge(rest[0])
            await c.attach()
            assert await c.wait_for(SegmentDone) == SegmentDone(segment_id=0)


async def test_delayed_messages_come_when_they_are_due_and_hold_nobody_up(
    live_node: LiveNode, topic: TopicView
) -> None:
    due_ms = now_ms() + 3_000
    await publish(topic, delayed("late", due_ms), delayed("past", 1), some(2, 2))
    await ask(split, topic)
    async with queue_peer(live_node, "a") as a:
        await a.attach()
        prompt = await a.take(3)
        assert offsets(prompt) == [1, 2, 3]
        await a.acknowledge(*prompt)
        (late,) = await a.take(1)
        assert (late.offset, late.value, late.deliveries) == (0, b"late", 1)
        assert now_ms() >= due_ms - 50
        await a.acknowledge(late)
        await a.wait_for(SegmentDone)


async def test_delayed_messages_survive_a_restart(processes: ProcessFactory) -> None:
    first = processes.node()
    topic = await ask(make_queue)
    due_ms = now_ms() + 6_000
    await publish(topic, delayed("late", due_ms))
    async with queue_peer(first, "a") as a:
        await a.attach()
        await a.nothing_comes()
        first.process.stop()
    async with queue_peer(processes.node(), "a") as a:
        await a.attach()
        assert (await a.take(1))[0].value == b"late"
        assert now_ms() >= due_ms - 50


async def test_a_turn_is_short_so_that_a_burst_is_shared(live_node: LiveNode, topic: TopicView) -> None:
    async with queue_peer(live_node, "a") as a, queue_peer(live_node, "b") as b:
        for consumer in (a, b):
            await consumer.attach(permits=10_000, ack_timeout_ms=FOREVER_MS)
            await consumer.nothing_comes(0.2)
        await publish(topic, *(some(100, 100 * number) for number in range(10)))
        found = await asyncio.gather(a.take(300), b.take(300))
        assert len({each.offset for taken in found for each in taken}) == 600


async def test_a_consumer_that_does_not_read_stands_in_nobodys_way(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_SOCKET_SEND_SECONDS="1")
    topic = await ask(make_queue)
    megabyte = batch(any_keys(1), value=bytes(MIB))
    process = psutil.Process(node.process.pid)
    async with queue_peer(node, "stuck") as stuck, queue_peer(node, "b") as b:
        before = process.memory_info().rss
        await stuck.attach(permits=10_000, ack_timeout_ms=FOREVER_MS)
        for _ in range(8):
            await publish(topic, *[megabyte] * 8)
        await b.attach(permits=10_000, ack_timeout_ms=FOREVER_MS)
        # Some come from the stuck one, which is cut off: until then it holds a bounded part.
        taken = await b.take(64)
        assert sorted(offsets(taken)) == list(range(64))
        assert process.memory_info().rss - before < 80 * MIB
        stuck.peer.connection.transport.abort()  # a goodbye would wait for an answer that it does not read


async def test_a_deleted_subscription_or_topic_ends_its_consumers(
    live_node: LiveNode, topic: TopicView
) -> None:
    async with queue_peer(live_node, "a") as a, queue_peer(live_node, "b") as idle:
        await a.attach()
        await ask(subscriptions.delete_subscription, name=topic.name, subscription="q")
        for consumer in (a, idle):
            assert (await consumer.wait_for(ErrorFrame)).code == "subscription_not_found"
            assert await consumer.peer.close_code() == 4404
    async with socket(live_node, QUEUE, consumer="late") as peer:
        assert (await peer.wait_for(ErrorFrame)).code == "subscription_not_found"
    await ask(make_again, topic)
    async with queue_peer(live_node, "a") as a:
        await a.attach()
        await a.nothing_comes(0.2)
        await ask(topics.delete_topic, name=topic.name, actor=ACTOR)
        await a.wait_for(Gone)
        assert await a.peer.close_code() == 4410


async def test_what_cannot_be_is_refused_by_name_and_the_others_go_on(
    live_node: LiveNode, topic: TopicView
) -> None:
    await publish(topic, some(2))
    async with queue_peer(live_node, "bystander") as bystander:
        await bystander.attach(permits=1)
        first = await bystander.take(1)
        async with queue_peer(live_node, "a") as a:
            await a.attach(77)
            refused = await a.wait_for(ErrorFrame)
            assert (refused.code, refused.segment_id) == ("segment_not_found", 77)
            assert await a.wait_for(Detached) == Detached(segment_id=77)
            await a.peer.send(QueueAck(segment_id=0, incarnation=first[0].incarnation, ranges=[(5, 9)]))
            refused = await a.wait_for(ErrorFrame)
            assert (refused.code, refused.segment_id) == ("position_invalid", 0)
        await bystander.acknowledge(*first)


def make_again(topic: TopicView) -> None:
    """Create the subscription `q` once more."""
    subscriptions.create_subscription(name=topic.name, subscription="q", kind=SubscriptionType.QUEUE)
