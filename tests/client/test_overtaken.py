"""Consumers that hold nothing back and are overtaken by trimming read on, across the splits that follow."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from bench.rows.rebalance import beside
from launch.process import ManagedProcess
from scalable.client import (
    Admin,
    CheckpointConsumer,
    KeySharedConsumer,
    Producer,
    QueueConsumer,
    StreamConsumer,
)
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import pruning, topics
from tests.processes import LiveNode
from tests.services.ageing import acknowledge, subscribe

pytestmark = pytest.mark.django_db(transaction=True)

KINDS: dict[str, dict[str, Any]] = {
    "stream": {"kind": SubscriptionType.STREAM},
    "key-shared": {"kind": SubscriptionType.STREAM, "key_shared": True},
    "queue": {"kind": SubscriptionType.QUEUE},
    "checkpoint": {"kind": SubscriptionType.CHECKPOINT},
}
MESSAGES, PREFETCH = 20, 2


def consumer_of(kind: str, node: LiveNode, topic: str) -> Any:
    """Make the subscription's only consumer; few messages wait at it."""
    rest: dict[str, Any] = {"name": "slow", "prefetch_messages": PREFETCH}
    match kind:
        case "stream":
            return StreamConsumer(node.url, topic, "loose", node.admin_token, **rest)
        case "key-shared":
            return KeySharedConsumer(node.url, topic, "loose", node.admin_token, **rest)
        case "queue":
            return QueueConsumer(node.url, topic, "loose", node.admin_token, **rest)
        case _:
            return CheckpointConsumer(node.url, topic, node.admin_token, group="loose", **rest)


async def read_up_to(consumer: Any, last: int) -> list[int]:
    """Read until a message comes, and acknowledge what is read."""
    found: list[int] = []
    while last not in found:
        message = await consumer.receive(timeout_seconds=60)
        found.append(int(message.value))
        if not isinstance(consumer, CheckpointConsumer):
            consumer.acknowledge(message)
    return found


async def send(node: LiveNode, topic: str, numbers: range) -> None:
    """Produce them one batch each, all of one key."""
    async with Producer(node.url, topic, node.admin_token) as producer:
        for number in numbers:
            await producer.send("key", str(number).encode())


def subscribe_both(topic: str, kind: str) -> None:
    """Make the quick subscription, which holds messages back, and the loose one."""
    view = topics.get_topic(name=TopicName.parse(topic))
    subscribe(view, "quick")
    subscribe(view, "loose", holds_pruning=False, **KINDS[kind])


def overtake(topic: str, position: int) -> int:
    """Let a quick subscription be done with what is before a position, trim, and give what is left first."""
    view = topics.get_topic(name=TopicName.parse(topic))
    acknowledge(view, position, cursor="quick")
    pruning.trim_topic(incarnation=view.incarnation)
    return segment_port().stats(SegmentKey(view.incarnation, 0)).start_offset


@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("kind", KINDS)
async def test_who_is_overtaken_by_trimming_reads_on_after_the_next_split(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess, kind: str, more: int
) -> None:
    await beside(partial(subscribe_both, topic, kind))
    await send(live_node, topic, range(MESSAGES))
    async with consumer_of(kind, live_node, topic) as consumer:
        assert await read_up_to(consumer, 0) == [0]
        assert await beside(partial(overtake, topic, MESSAGES)) == MESSAGES
        after = range(MESSAGES, MESSAGES + more)
        await send(live_node, topic, after)
        if after:
            assert [number for number in await read_up_to(consumer, after[-1]) if number in after] == [*after]
        await asyncio.to_thread(admin.split, topic, 0)
        children = range(100, 110)
        await send(live_node, topic, children)
        found = await read_up_to(consumer, children[-1])
        assert [number for number in found if number in children] == [*children]
