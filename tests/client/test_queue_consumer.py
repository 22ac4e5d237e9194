"""The queue consumer against real nodes and a worker."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import psutil
import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, QueueConsumer, QueueMessage, SyncProducer, SyncQueueConsumer, queue_inbox
from scalable.domain.errors import (
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    TopicDeleted,
    TopicNotFound,
)
from tests.client.proxy import Relay
from tests.client.test_consumer import fill
from tests.client.test_producer import active_ids
from tests.processes import LiveNode, ProcessFactory

WAIT_SECONDS = 60
PATIENT: dict[str, Any] = {"ack_timeout_seconds": 600.0}


def member(node: LiveNode, topic: str, name: str, **options: Any) -> QueueConsumer:
    return QueueConsumer(node.url, topic, "tasks", node.admin_token, name=name, **(PATIENT | options))


async def take(consumer: QueueConsumer, count: int) -> list[QueueMessage]:
    return [await consumer.receive(timeout_seconds=WAIT_SECONDS) for _ in range(count)]


def numbers(messages: list[QueueMessage]) -> list[int]:
    return sorted(int(message.value) for message in messages)


class Group:
    """Members that consume side by side and note, in one list, what they got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, QueueMessage]] = []
        self.grew = asyncio.Event()

    @asynccontextmanager
    async def consuming(self, consumer: QueueConsumer) -> AsyncIterator[QueueConsumer]:
        async with consumer:
            task = asyncio.create_task(self._consume(consumer))
            yield consumer
        await task

    async def _consume(self, consumer: QueueConsumer) -> None:
        async for message in consumer:
            self.got.append((consumer.name, message))
            consumer.acknowledge(message)
            self.grew.set()

    @property
    def numbers(self) -> list[int]:
        return numbers([message for _, message in self.got])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():
                self.grew.clear()
                await self.grew.wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("per_socket", [queue_inbox.SEGMENTS_PER_SOCKET, 1])
async def test_members_share_every_segment_and_each_message_goes_to_one(
    live_node: LiveNode,
    admin: Admin,
    topic: str,
    reshaping: ManagedProcess,
    monkeypatch: pytest.MonkeyPatch,
    per_socket: int,
) -> None:
    monkeypatch.setattr(queue_inbox, "SEGMENTS_PER_SOCKET", per_socket)
    group = Group()
    options = {"prefetch_messages": 20}
    async with (
        group.consuming(member(live_node, topic, "a", **options)),
        group.consuming(member(live_node, topic, "b", **options)) as b,
    ):
        await fill(live_node, topic, 0, 500)
        await asyncio.to_thread(admin.split, topic, 0)
        await fill(live_node, topic, 500, 1_000)
        await asyncio.to_thread(admin.merge, topic, active_ids(admin, topic))
        await fill(live_node, topic, 1_000, 1_500)
        await group.until(lambda: len(group.got) == 1_500)
        assert {name for name, _ in group.got} == {"a", "b"}
        # Drained sealed segments leave the set.
        await until(lambda: b.segments == tuple(active_ids(admin, topic)))
        assert (len(b._links) > 1) == (per_socket == 1)
    assert group.numbers == list(range(1_500))
    assert {message.deliveries for _, message in group.got} == {1}
    async with member(live_node, topic, "late") as late:
        with pytest.raises(TimeoutError):
            await late.receive(timeout_seconds=0.5)


async def test_nothing_is_lost_whatever_breaks_while_the_layout_changes(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    group = Group()
    async with Relay(live_node.url) as shaky, Relay(live_node.url) as steady:
        members = [
            QueueConsumer(relay.url, topic, "tasks", live_node.admin_token, name=name, prefetch_messages=30)
            for name, relay in (("a", shaky), ("b", shaky), ("c", steady))
        ]
        async with (
            group.consuming(members[0]),
            group.consuming(members[1]),
            group.consuming(members[2]),
        ):
            for turn in range(4):
                await fill(live_node, topic, turn * 300, turn * 300 + 150)
                shaky.cut()
                segments = active_ids(admin, topic)
                if turn % 2:
                    await asyncio.to_thread(admin.merge, topic, segments)
                else:
                    await asyncio.to_thread(admin.split, topic, segments[0])
                await fill(live_node, topic, turn * 300 + 150, turn * 300 + 300)
                shaky.cut()
            await group.until(lambda: set(group.numbers) == set(range(1_200)))
            for member_ in members:
                await member_.flush()
    async with member(live_node, topic, "late") as late:
        with pytest.raises(TimeoutError):
            await late.receive(timeout_seconds=0.5)
    assert admin.subscription(topic, "tasks")["msgBacklog"] == 0


async def test_a_new_subscription_gets_sealed_segments_too(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "keeps")
    await fill(live_node, topic, 0, 10)
    await asyncio.to_thread(admin.split, topic, 0)
    await fill(live_node, topic, 10, 20)
    await asyncio.to_thread(admin.split, topic, active_ids(admin, topic)[0])
    async with member(live_node, topic, "a") as consumer:
        assert numbers(await take(consumer, 20)) == list(range(20))
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_seconds=0.5)


async def test_a_late_start_gets_only_what_follows(live_node: LiveNode, topic: str) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a", start="latest") as consumer:
        await fill(live_node, topic, 10, 13)
        assert numbers(await take(consumer, 3)) == [10, 11, 12]


async def test_a_loss_of_the_connection_loses_no_message_and_no_acknowledgement(
    live_node: LiveNode, topic: str
) -> None:
    await fill(live_node, topic, 0, 100)
    async with Relay(live_node.url) as relay:
        consumer = QueueConsumer(relay.url, topic, "tasks", live_node.admin_token, **PATIENT)
        async with consumer:
            first = await take(consumer, 50)
            for message in first:
                consumer.acknowledge(message)
            assert consumer.interruptions == 0
            relay.cut()
            await consumer.flush()
            rest = await take(consumer, 50)
            assert consumer.interruptions == 1
            assert {message.message_id for message in first}.isdisjoint(m.message_id for m in rest)
            for message in rest:
                consumer.acknowledge(message)
    assert numbers(first + rest) == list(range(100))
    async with member(live_node, topic, "late") as late:
        with pytest.raises(TimeoutError):
            await late.receive(timeout_seconds=0.5)


async def test_another_node_takes_over_when_one_dies(processes: ProcessFactory) -> None:
    first, second = processes.node(), processes.node()
    topic = "topic://public/default/two-nodes"
    with Admin(first.url, first.admin_token) as admin:
        admin.create_topic(topic, initial_segments=2)
    await fill(first, topic, 0, 40)
    group = Group()
    urls = [first.url, second.url]
    consumer = QueueConsumer(urls, topic, "tasks", first.admin_token, ack_timeout_seconds=2.0)
    async with group.consuming(consumer):
        await group.until(lambda: len(group.got) >= 40)
        psutil.Process(first.process.pid).kill()
        await fill(second, topic, 40, 80)
        await group.until(lambda: set(group.numbers) == set(range(80)))


async def test_what_is_not_acknowledged_in_time_comes_again_but_what_waits_here_does_not(
    live_node: LiveNode, topic: str
) -> None:
    await fill(live_node, topic, 0, 10)
    async with (  # all permits of `slow` are used up, so that what it forgets goes to `quick`
        member(live_node, topic, "slow", ack_timeout_seconds=1.5, prefetch_messages=10) as slow,
        member(live_node, topic, "quick") as quick,
    ):
        (forgotten,) = await take(slow, 1)
        (again,) = await take(quick, 1)
        assert (again.message_id, again.deliveries) == (forgotten.message_id, 2)
        # Several time-outs later, what `slow` has not handed out is still its own, and a first delivery.
        with pytest.raises(TimeoutError):
            await quick.receive(timeout_seconds=3)
        rest = await take(slow, 9)
        assert {message.deliveries for message in rest} == {1}


async def test_a_process_that_was_stopped_hands_out_nothing_that_came_to_others_meanwhile(
    live_node: LiveNode, topic: str
) -> None:
    def others_take_all() -> None:
        with SyncProducer(live_node.url, topic, live_node.admin_token) as producer:
            for number in range(10):
                producer.send("k", b"%d" % number)
        with SyncQueueConsumer(live_node.url, topic, "tasks", live_node.admin_token) as quick:
            for _ in range(10):
                quick.acknowledge(quick.receive(timeout_seconds=WAIT_SECONDS))

    async with member(live_node, topic, "slow", ack_timeout_seconds=1.0) as slow:
        await fill(live_node, topic, 0, 1)
        slow.acknowledge(*await take(slow, 1))
        await slow.flush()
        others_take_all()  # keeps this loop from running, as a signal would
        with pytest.raises(TimeoutError):
            await slow.receive(timeout_seconds=2)


async def test_a_negative_acknowledgement_rests_longer_each_time(live_node: LiveNode, topic: str) -> None:
    await fill(live_node, topic, 0, 1)
    backoff = (0.2, 0.9, 3.0)
    async with member(live_node, topic, "a", negative_ack_backoff=backoff) as consumer:
        times = []
        for deliveries in range(1, 5):
            (message,) = await take(consumer, 1)
            times.append(time.monotonic())
            assert message.deliveries == deliveries
            consumer.negative_acknowledge(message)
        rests = [after - before for before, after in pairwise(times)]
        for rest, least in zip(rests, (0.2, 0.6, 0.9), strict=True):
            assert rest >= least * 0.95


async def test_a_seek_back_opens_drained_segments_again(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "keeps")
    async with member(live_node, topic, "a") as consumer:
        await fill(live_node, topic, 0, 20)
        await asyncio.to_thread(admin.split, topic, 0)
        first = await take(consumer, 20)
        for message in first[:-1]:
            consumer.acknowledge(message)
        await consumer.flush()
        consumer.acknowledge(first[-1])
        await until(lambda: 0 not in consumer.segments)
        await asyncio.to_thread(admin.seek, topic, "tasks", 0)
        again = await take(consumer, 20)
        assert numbers(again) == list(range(20))
        for message in again:
            consumer.acknowledge(message)
        await until(lambda: 0 not in consumer.segments)


async def test_a_deleted_subscription_ends_its_consumers_and_is_not_brought_back(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with member(live_node, topic, "a") as consumer:
        await asyncio.to_thread(admin.delete_subscription, topic, "tasks")
        with pytest.raises(SubscriptionNotFound):
            await consumer.receive(timeout_seconds=WAIT_SECONDS)
    assert admin.subscriptions(topic) == []


async def test_a_deleted_topic_ends_its_consumers(live_node: LiveNode, admin: Admin, topic: str) -> None:
    async with member(live_node, topic, "a") as consumer:
        await asyncio.to_thread(admin.delete_topic, topic)
        with pytest.raises(TopicDeleted):
            await consumer.receive(timeout_seconds=WAIT_SECONDS)
        with pytest.raises(TopicDeleted):
            await consumer.receive()
    with pytest.raises(TopicNotFound):
        await member(live_node, topic, "late").start()


async def test_a_stream_subscription_has_no_queue(live_node: LiveNode, admin: Admin, topic: str) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "tasks", kind="STREAM")
    with pytest.raises(SubscriptionTypeMismatch):
        await member(live_node, topic, "a").start()


def test_a_program_without_a_loop_consumes_too(live_node: LiveNode, topic: str) -> None:
    asyncio.run(fill(live_node, topic, 0, 2))
    with SyncQueueConsumer(
        live_node.url, topic, "tasks", live_node.admin_token, negative_ack_backoff=(0.0, 0.0, 1.0)
    ) as consumer:
        message = consumer.receive(timeout_seconds=WAIT_SECONDS)
        consumer.negative_acknowledge(message)
        found = [consumer.receive(timeout_seconds=WAIT_SECONDS) for _ in range(2)]
        for each in found:
            consumer.acknowledge(each)
        consumer.flush()
        assert consumer.interruptions == 0
    assert sorted(each.deliveries for each in found) == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"ack_timeout_seconds": 0.0},
        {"ack_timeout_seconds": 1e9},
        {"max_deliveries": 0},
        {"prefetch_messages": 0},
        {"negative_ack_backoff": (5.0, 1.0, 2.0)},
        {"negative_ack_backoff": (1.0, 5.0, 0.5)},
        {"negative_ack_backoff": (1.0, 5.0, 1e200)},
        {"negative_ack_backoff": (1.0, 5.0, math.nan)},
        {"max_deliveries": 1, "dead_letter_topic": "topic://public/default/t"},
    ],
)
def test_options_out_of_bounds_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not|cannot"):
        QueueConsumer("http://localhost", "topic://public/default/t", "s", "token", **options)
