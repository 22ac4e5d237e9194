"""Consumers whose subscription is moved or deleted under them."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, KeySharedConsumer, QueueConsumer
from scalable.domain.errors import SubscriptionNotFound
from tests.client.test_consumer import fill, member, read
from tests.client.test_queue_consumer import member as queue_member
from tests.processes import LiveNode

LIMIT_SECONDS = 60


async def until_backlog(admin: Admin, topic: str, messages: int, *, subscription: str = "group") -> None:
    """Wait until so many messages are left."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            told = await asyncio.to_thread(admin.subscription, topic, subscription)
            if told["msgBacklog"] == messages:
                return
            await asyncio.sleep(0.05)


async def test_a_seek_back_gives_everything_again_to_those_who_are_there(
    live_node: LiveNode, topic: str, admin: Admin, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 50)
    await asyncio.to_thread(admin.split, topic, 0)
    await fill(live_node, topic, 50, 80)
    async with member(live_node, topic, "a") as consumer:
        first = await read(consumer, 80)
        await until_backlog(admin, topic, 0)
        told = await asyncio.to_thread(admin.assignments, topic, "group")
        (one,) = told["consumers"]
        assert (one["consumerName"], one["session"], one["standby"]) == ("a", "CONNECTED", False)
        await asyncio.to_thread(admin.seek, topic, "group", 0)
        again = await read(consumer, 80)
        await until_backlog(admin, topic, 0)
    assert Counter(each.value for each in again) == Counter(each.value for each in first)
    of_key = [int(each.value) for each in again if each.key == "key-3"]
    assert of_key == sorted(of_key)


async def test_a_vector_from_before_a_seek_back_covers_nothing_of_what_is_in_process_again(
    live_node: LiveNode, topic: str, admin: Admin
) -> None:
    await fill(live_node, topic, 0, 20)
    async with member(live_node, topic, "a") as consumer:
        await read(consumer, 20)
        before = consumer.positions()
        await until_backlog(admin, topic, 0)
        await asyncio.to_thread(admin.seek, topic, "group", 0)
        await read(consumer, 10, acknowledge=False)
        for kept in (before, pickle.loads(pickle.dumps(before))):
            consumer.acknowledge_positions(kept)
        await consumer.flush()
        await until_backlog(admin, topic, 20)
        consumer.acknowledge_positions(consumer.positions())
        await consumer.flush()
        await until_backlog(admin, topic, 10)


async def test_a_seek_forward_leaves_out_what_was_not_received(
    live_node: LiveNode, topic: str, admin: Admin
) -> None:
    await fill(live_node, topic, 0, 10)
    async with member(live_node, topic, "a") as consumer:
        (message,) = await read(consumer, 1, acknowledge=False)
        await asyncio.to_thread(admin.clear_backlog, topic, "group")
        consumer.acknowledge(message)  # of before: it must not move the new position back or fail
        await fill(live_node, topic, 10, 12)
        async with asyncio.timeout(LIMIT_SECONDS):
            seen = 0
            while seen < 2:
                message = await consumer.receive(timeout_seconds=20)
                seen += int(message.value) >= 10
                consumer.acknowledge(message)
        await until_backlog(admin, topic, 0)


async def test_a_deleted_subscription_ends_its_consumers(
    live_node: LiveNode, topic: str, admin: Admin
) -> None:
    await fill(live_node, topic, 0, 5)
    async with member(live_node, topic, "a") as consumer:
        await read(consumer, 5)
        await asyncio.to_thread(admin.delete_subscription, topic, "group")
        with pytest.raises(SubscriptionNotFound):
            await consumer.receive(timeout_seconds=LIMIT_SECONDS)
    assert await asyncio.to_thread(admin.subscriptions, topic) == []


async def test_consumers_of_a_queue_receive_again_what_a_seek_gives_back(
    live_node: LiveNode, topic: str, admin: Admin, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 20)
    await asyncio.to_thread(admin.split, topic, 0)
    await fill(live_node, topic, 20, 30)
    async with queue_member(live_node, topic, "a") as one, queue_member(live_node, topic, "b") as other:
        await drain(admin, topic, "tasks", one, other)
        await asyncio.to_thread(admin.seek, topic, "tasks", 0)
        again = await drain(admin, topic, "tasks", one, other)
    assert sorted(int(each) for each in again) == list(range(30))


async def test_co_owners_of_entry_buckets_receive_again_in_the_order_of_keys(
    live_node: LiveNode, topic: str, admin: Admin
) -> None:
    await fill(live_node, topic, 0, 60)
    async with shared_member(live_node, topic, "a") as one, shared_member(live_node, topic, "b") as other:
        await drain(admin, topic, "shared", one, other)
        await asyncio.to_thread(admin.seek, topic, "shared", 0)
        again = await drain(admin, topic, "shared", one, other)
    assert sorted(int(each) for each in again) == list(range(60))
    assert [int(each) for each in again if int(each) % 10 == 3] == [3, 13, 23, 33, 43, 53]


def shared_member(node: LiveNode, topic: str, name: str) -> KeySharedConsumer:
    return KeySharedConsumer(node.url, topic, "shared", node.admin_token, name=name)


async def drain(
    admin: Admin, topic: str, subscription: str, *members: QueueConsumer | KeySharedConsumer
) -> list[bytes]:
    """Receive and acknowledge until nothing is left; the values in the order in which they came."""
    got: list[bytes] = []

    async def consume(each: QueueConsumer | KeySharedConsumer) -> None:
        while True:
            message = await each.receive()
            got.append(message.value)
            each.acknowledge(message)  # type: ignore[arg-type]

    running = [asyncio.create_task(consume(each)) for each in members]
    await until_backlog(admin, topic, 0, subscription=subscription)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return got
