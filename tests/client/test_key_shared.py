"""Consumers that share a segment: each key at one of them at a time, in order, whoever comes or goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, KeySharedConsumer, Message, Producer
from scalable.domain.subscriptions import BucketKey
from tests.client.test_consumer import fill
from tests.processes import LiveNode, ProcessFactory

PATIENCE_SECONDS = 120


@pytest.fixture
def live_node(processes: ProcessFactory) -> LiveNode:
    """A node that has patience with owners on a slow machine: what is taken from them comes twice."""
    return processes.node(SCALABLE_HANDOVER_SECONDS=str(PATIENCE_SECONDS))


def sharer(node: LiveNode, topic: str, name: str) -> KeySharedConsumer:
    return KeySharedConsumer(node.url, topic, "shared", node.admin_token, name=name)


class Sharers:
    """Members that read side by side; what they got is checked at the end."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Message]] = []
        self._grew = asyncio.Event()

    @asynccontextmanager
    async def reading(self, consumer: KeySharedConsumer) -> AsyncIterator[KeySharedConsumer]:
        await consumer.start(PATIENCE_SECONDS)
        task = asyncio.create_task(self._read(consumer))
        try:
            yield consumer
        finally:
            await consumer.close(PATIENCE_SECONDS)
        await task

    async def _read(self, consumer: KeySharedConsumer) -> None:
        async for message in consumer:
            self.got.append((consumer.name, message))
            consumer.acknowledge(message)
            self._grew.set()

    async def until(self, count: int) -> None:
        while len(self.got) < count:
            self._grew.clear()
            async with asyncio.timeout(PATIENCE_SECONDS):  # without any message
                await self._grew.wait()

    def check(self, count: int) -> None:
        """Everything exactly once, each key in order, and a key passes on only after what was got of it."""
        assert sorted(int(message.value) for _, message in self.got) == list(range(count))
        by_key: dict[str | None, list[int]] = {}
        for _, message in self.got:
            by_key.setdefault(message.key, []).append(int(message.value))
        assert all(values == sorted(values) for values in by_key.values())


async def until_some(consumer: KeySharedConsumer) -> None:
    """Wait until the consumer owns a bucket."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not consumer.owned_buckets:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.02)


async def until_shares(shares: list[int], *consumers: KeySharedConsumer) -> None:
    """Wait until the consumers own so many buckets each, in whatever order."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        # A consumer tells nobody of its assignments.
        while sorted(len(consumer.owned_buckets) for consumer in consumers) != shares:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_segment_is_shared_by_its_entry_buckets(live_node: LiveNode, topic: str) -> None:
    await fill(live_node, topic, 0, 2_000, keys=100)
    sharers = Sharers()
    async with sharers.reading(sharer(live_node, topic, "a")):
        await sharers.until(1_000)
        async with (
            sharers.reading(sharer(live_node, topic, "b")) as b,
            sharers.reading(sharer(live_node, topic, "c")) as c,
        ):
            await until_shares([1, 1], b, c)
            await fill(live_node, topic, 2_000, 4_000, keys=100)
            await sharers.until(4_000)
        await fill(live_node, topic, 4_000, 5_000, keys=100)
        await sharers.until(5_000)
    sharers.check(5_000)
    assert {name for name, _ in sharers.got} == {"a", "b", "c"}


async def test_surplus_consumers_stand_by(live_node: LiveNode, admin: Admin, topic: str) -> None:
    """Vector 77: a segment of four buckets has four sharers, and the fifth consumer is idle."""
    async with sharer(live_node, topic, "c0") as first:
        assert first.owned_buckets == tuple(BucketKey(0, bucket) for bucket in range(4))
        others = [sharer(live_node, topic, f"c{number}") for number in range(1, 5)]
        for other in others:
            await other.start()
        try:
            await until_shares([0, 1, 1, 1, 1], first, *others)
            assert [one.standby for one in (first, *others)].count(True) == 1
        finally:
            for other in others:
                await other.close()


async def test_a_segment_of_one_bucket_has_one_reader(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    admin.rebucket(topic, 0, 1)
    async with sharer(live_node, topic, "a") as a, sharer(live_node, topic, "b") as b:
        await fill(live_node, topic, 0, 100)
        got = [await a.receive(timeout_seconds=PATIENCE_SECONDS) for _ in range(100)]
        assert [int(message.value) for message in got] == list(range(100))
        assert (a.owned_buckets, b.owned_buckets, b.standby) == ((BucketKey(1, 0),), (), True)


async def test_keyless_messages_are_shared_too(live_node: LiveNode, topic: str) -> None:
    sharers = Sharers()
    async with sharers.reading(sharer(live_node, topic, "a")), sharers.reading(sharer(live_node, topic, "b")):
        async with Producer(live_node.url, topic, live_node.admin_token) as producer:
            for number in range(300):
                await producer.send(None, str(number).encode())
        await sharers.until(300)
    assert sorted(int(message.value) for _, message in sharers.got) == list(range(300))


async def test_single_acknowledgements_are_kept_for_the_next_owner(live_node: LiveNode, topic: str) -> None:
    await fill(live_node, topic, 0, 200, keys=40)
    crashed = sharer(live_node, topic, "a")
    await crashed.start()
    got = [await crashed.receive(timeout_seconds=PATIENCE_SECONDS) for _ in range(200)]
    kept = [message for message in got if int(message.value) % 3]
    for message in kept:
        assert crashed.acknowledge_individually(message)
        assert crashed.acknowledge_individually(message)
    await crashed.flush()
    await crashed._stop()  # as a process that dies: no goodbye
    async with sharer(live_node, topic, "a") as again:
        left = [await again.receive(timeout_seconds=PATIENCE_SECONDS) for _ in range(200 - len(kept))]
        assert sorted(int(message.value) for message in left) == list(range(0, 200, 3))
        for message in left:
            again.acknowledge_individually(message)
        await again.flush()
        await fill(live_node, topic, 200, 201)
        assert int((await again.receive(timeout_seconds=PATIENCE_SECONDS)).value) == 200


async def test_order_survives_a_split_a_merge_and_a_rebucket(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    sharers = Sharers()
    async with sharers.reading(sharer(live_node, topic, "a")), sharers.reading(sharer(live_node, topic, "b")):
        async with Producer(live_node.url, topic, live_node.admin_token) as producer:
            for number in range(4_000):
                await producer.submit(f"key-{number % 100}", str(number).encode())
                if number == 1_000:
                    await asyncio.to_thread(admin.split, topic, 0)
                if number == 2_000:
                    await asyncio.to_thread(admin.merge, topic, [1, 2])
                if number == 3_000:
                    await asyncio.to_thread(admin.rebucket, topic, 3, 7)
        await sharers.until(4_000)
    sharers.check(4_000)


@pytest.mark.slow
async def test_five_consumers_share_one_segment_while_they_come_and_go(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    """100,000 messages: none lost, none doubled, the order of keys kept."""
    total = 100_000
    admin.rebucket(topic, 0, 8)
    sharers, sharing = Sharers(), asyncio.Barrier(5)

    async def come_and_go(number: int) -> None:
        for life in range(3):
            start = len(sharers.got)
            async with sharers.reading(sharer(live_node, topic, f"c{number}-{life}")) as consumer:
                if life == 0:
                    await until_some(consumer)
                    await sharing.wait()
                await sharers.until(min(total, start + 8_000 * (number + 1)))

    async with sharers.reading(sharer(live_node, topic, "steady")):
        comings = [asyncio.create_task(come_and_go(number)) for number in range(4)]
        await sharing.wait()
        await fill(live_node, topic, 0, total, keys=1_000)
        await sharers.until(total)
        await asyncio.gather(*comings)
    sharers.check(total)
    assert {"steady", "c3-0"} <= {name for name, _ in sharers.got}
