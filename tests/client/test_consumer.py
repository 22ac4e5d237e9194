"""The stream consumer against a real node and worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, Message, Producer, StreamConsumer
from scalable.domain.errors import (
    SessionSuperseded,
    SubscriptionTypeMismatch,
    TopicDeleted,
    TopicNotFound,
)
from tests.client.proxy import Relay
from tests.client.test_producer import active_ids
from tests.processes import LiveNode, ProcessFactory


async def fill(node: LiveNode, topic: str, first: int, last: int, *, keys: int = 10) -> None:
    async with Producer(node.url, topic, node.admin_token) as producer:
        for number in range(first, last):
            await producer.submit(f"key-{number % keys}", str(number).encode())


def member(node: LiveNode, topic: str, name: str) -> StreamConsumer:
    return StreamConsumer(node.url, topic, "group", node.admin_token, name=name)


async def read(consumer: StreamConsumer, count: int, *, acknowledge: bool = True) -> list[Message]:
    messages = []
    for _ in range(count):
        messages.append(await consumer.receive(timeout_seconds=60))
        if acknowledge:
            consumer.acknowledge(messages[-1])
    return messages


class Group:
    """Members that read side by side and note, in one list, what they got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Message]] = []
        self.grew = asyncio.Event()

    @asynccontextmanager
    async def reading(self, consumer: StreamConsumer) -> AsyncIterator[StreamConsumer]:
        async with consumer:
            task = asyncio.create_task(self._read(consumer))
            yield consumer
        await task

    async def _read(self, consumer: StreamConsumer) -> None:
        async for message in consumer:
            self.got.append((consumer.name, message))
            consumer.acknowledge(message)
            self.grew.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.got) < count:
                self.grew.clear()
                await self.grew.wait()

    def check(self, count: int) -> None:
        """Everything exactly once, each key in order."""
        numbers = [int(message.value) for _, message in self.got]
        assert sorted(numbers) == list(range(count))
        by_key: dict[str | None, list[int]] = {}
        for _, message in self.got:
            by_key.setdefault(message.key, []).append(int(message.value))
        assert all(values == sorted(values) for values in by_key.values())


async def test_messages_are_read_in_order_and_acknowledged_for_good(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    await fill(live_node, topic, 0, 100)
    async with member(live_node, topic, "a") as consumer:
        messages = await read(consumer, 60)
        await read(consumer, 20, acknowledge=False)
    assert [int(message.value) for message in messages] == list(range(60))
    async with member(live_node, topic, "b") as consumer:
        (first,) = await read(consumer, 1)
        assert int(first.value) == 60, "what was not acknowledged comes again"
        await read(consumer, 39)
        consumer.acknowledge_all()
        await consumer.flush()
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_seconds=0.2)


async def test_wrong_names_are_refused(live_node: LiveNode, admin: Admin, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        await member(live_node, "topic://public/default/none", "a").start()
    await asyncio.to_thread(admin.create_subscription, topic, "group", kind="QUEUE")
    with pytest.raises(SubscriptionTypeMismatch):
        await member(live_node, topic, "a").start()


async def test_a_second_session_of_a_name_takes_the_place_of_the_first(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    async with member(live_node, topic, "a") as first, member(live_node, topic, "b") as idle:
        assert idle.standby, "one segment has one owner"
        async with member(live_node, topic, "a") as second:
            with pytest.raises(SessionSuperseded):
                await first.receive(timeout_seconds=10)
            await fill(live_node, topic, 0, 1)
            assert (await second.receive(timeout_seconds=10)).value == b"0"


async def test_a_deleted_topic_ends_its_consumer(live_node: LiveNode, admin: Admin, topic: str) -> None:
    async with member(live_node, topic, "a") as consumer:
        await asyncio.to_thread(admin.delete_topic, topic, force=True)
        with pytest.raises(TopicDeleted):
            await consumer.receive(timeout_seconds=10)


async def test_children_come_after_their_parents_are_acknowledged(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 50)
    await asyncio.to_thread(admin.split, topic, 0)
    await fill(live_node, topic, 50, 100)
    async with member(live_node, topic, "a") as consumer:
        parents = await read(consumer, 50, acknowledge=False)
        assert {message.message_id.segment_id for message in parents} == {0}
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_seconds=0.5)
        consumer.acknowledge_all()
        children = await read(consumer, 50)
    assert {message.message_id.segment_id for message in children} == {1, 2}


async def test_a_group_reads_everything_once_in_order_through_joins_leaves_splits_and_merges(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    group, total = Group(), 3_000
    first, second = member(live_node, topic, "a"), member(live_node, topic, "b")
    async with group.reading(first), group.reading(second):
        producing = asyncio.create_task(fill(live_node, topic, 0, total, keys=40))
        await group.until(100)
        await asyncio.to_thread(admin.split, topic, 0)
        await group.until(800)
        await asyncio.to_thread(admin.split, topic, active_ids(admin, topic)[0])
        async with group.reading(member(live_node, topic, "c")):
            await group.until(1_600)
            await asyncio.to_thread(admin.merge, topic, active_ids(admin, topic)[:2])
        await producing
        await fill(live_node, topic, total, total + 200, keys=40)
        await group.until(total + 200)
        assert first.owned_segments
        assert second.owned_segments
    group.check(total + 200)
    assert {name for name, _ in group.got} >= {"a", "b"}


async def test_cut_connections_neither_lose_nor_double_nor_reorder(processes: ProcessFactory) -> None:
    group, total, topic = Group(), 2_000, "topic://public/default/cut"
    async with Relay() as relay:
        # The node names the relay as its own address, so that assignments lead through it too.
        node = await asyncio.to_thread(lambda: processes.node(SCALABLE_NODE_URL=relay.url))
        relay.target_url = node.url
        with Admin(node.url, node.admin_token) as admin:
            await asyncio.to_thread(admin.create_topic, topic, initial_segments=4)
        consumers = [StreamConsumer(relay.url, topic, "group", node.admin_token, name=name) for name in "ab"]
        async with group.reading(consumers[0]), group.reading(consumers[1]):
            producing = asyncio.create_task(fill(node, topic, 0, total, keys=40))
            for at in range(200, total, 300):
                await group.until(at)
                relay.cut()
            await producing
            await group.until(total)
    group.check(total)


async def test_a_member_that_takes_its_time_hands_a_segment_over_when_it_has_acknowledged(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await asyncio.to_thread(admin.split, topic, 0)
    async with member(live_node, topic, "a") as first:
        await fill(live_node, topic, 0, 40)
        got = await read(first, 10, acknowledge=False)
        while len({message.message_id.segment_id for message in got}) < 2:
            got += await read(first, 1, acknowledge=False)
        await fill(live_node, topic, 40, 80)  # so that each segment has both: read and unread ones
        async with member(live_node, topic, "b") as second:
            with pytest.raises(TimeoutError):
                await second.receive(timeout_seconds=0.5)
            first.acknowledge_all()
            handed_over = await second.receive(timeout_seconds=60)
            mine = [
                message
                for message in got
                if message.message_id.segment_id == handed_over.message_id.segment_id
            ]
            assert handed_over.message_id.offset == len(mine)
