"""Multi-topic consumers against real nodes: a namespace is followed, acks find their topic, nothing stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from scalable.client import (
    Admin,
    MultiTopicQueueConsumer,
    MultiTopicStreamConsumer,
    Producer,
)
from scalable.domain.names import TopicName
from tests.processes import LiveNode

WAIT_SECONDS = 60
_spaces = count(1)


@pytest.fixture
def space(admin: Admin) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"public/many-{next(_spaces)}"
    admin.create_namespace(name)
    yield name
    admin.delete_namespace(name, force=True)


def make(admin: Admin, space: str, name: str, **properties: str) -> TopicName:
    topic = TopicName.parse(f"topic://{space}/{name}")
    admin.create_topic(topic, properties=properties)
    admin.set_policy(topic, {"enabled": False})
    return topic


async def send(node: LiveNode, topic: TopicName, *values: str) -> None:
    async with Producer(node.url, topic, node.admin_token) as producer:
        for value in values:
            await producer.send(value, value.encode())


def stream(node: LiveNode, space: str, **options: Any) -> MultiTopicStreamConsumer:
    return MultiTopicStreamConsumer(node.url, space, "sub", node.admin_token, **options)


def queue(node: LiveNode, space: str, **options: Any) -> MultiTopicQueueConsumer:
    return MultiTopicQueueConsumer(node.url, space, "tasks", node.admin_token, **options)


async def take(consumer: Any, number: int) -> list[Any]:
    return [await consumer.receive(timeout_seconds=WAIT_SECONDS) for _ in range(number)]


def told(messages: list[Any]) -> set[tuple[str, str]]:
    """Topic and value of each."""
    return {(message.topic.name, message.value.decode()) for message in messages}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_messages_of_all_topics_name_theirs(live_node: LiveNode, admin: Admin, space: str) -> None:
    one, two = make(admin, space, "one"), make(admin, space, "two")
    await send(live_node, one, "a", "b")
    await send(live_node, two, "c")
    async with stream(live_node, space) as consumer:
        assert consumer.topics == {one, two}
        assert told(await take(consumer, 3)) == {("one", "a"), ("one", "b"), ("two", "c")}
    async with queue(live_node, space) as workers:
        assert told(await take(workers, 3)) == {("one", "a"), ("one", "b"), ("two", "c")}
