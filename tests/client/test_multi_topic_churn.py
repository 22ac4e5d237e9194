"""Members of multi-topic subscriptions amid topics that come, go and split, and connections that are cut."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, MultiTopicQueueConsumer, MultiTopicStreamConsumer, Producer
from scalable.domain.names import TopicName
from tests.client.proxy import Relay
from tests.client.test_multi_topic import make, space, until
from tests.processes import LiveNode

__all__ = ["space"]

PROPERTIES = {"kind": "read"}
MESSAGES = 40
ROUNDS = 4

Place = tuple[str, bytes]


class Reader:
    """Reads with a consumer and notes, in order, what was received."""

    def __init__(self, consumer: Any, random: Random) -> None:
        self.consumer, self.random = consumer, random
        self.got: list[Place] = []

    async def read(self) -> None:
        async for message in self.consumer:
            self.got.append((message.topic.name, message.value))
            if isinstance(self.consumer, MultiTopicQueueConsumer) or self.random.random() < 0.5:
                self.consumer.acknowledge(message)
            else:
                self.consumer.acknowledge_cumulative(message)


async def produce(node: LiveNode, topic: TopicName, first: int) -> set[Place]:
    values = [str(first + number).encode() for number in range(MESSAGES)]
    async with Producer(node.url, topic, node.admin_token) as producer:
        await asyncio.gather(*(producer.send(f"k{value[-1]}", value) for value in values))
    return {(topic.name, value) for value in values}


async def churn(node: LiveNode, admin: Admin, space: str, relay: Relay, random: Random) -> set[Place]:
    """Topics that come with messages, leave the filter and come back, are split; others that only pass."""
    expected: set[Place] = set()
    topics = []
    for turn in range(ROUNDS):
        topic = await asyncio.to_thread(make, admin, space, f"t{turn}", **PROPERTIES)
        topics.append(topic)
        passing = await asyncio.to_thread(make, admin, space, f"passing-{turn}", **PROPERTIES)
        expected |= await produce(node, topic, 0)
        away = random.choice(topics)
        await asyncio.to_thread(admin.set_properties, away, {})
        if turn % 2:
            relay.cut()
        await asyncio.to_thread(admin.split, topic, 0)
        await asyncio.to_thread(admin.delete_topic, passing, force=True)
        expected |= await produce(node, random.choice(topics), MESSAGES * (turn + 1))
        await asyncio.to_thread(admin.set_properties, away, PROPERTIES)
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stream", "queue"])
async def test_nothing_is_lost_amid_topics_that_come_and_go(
    live_node: LiveNode, admin: Admin, space: str, reshaping: ManagedProcess, kind: str
) -> None:
    random = Random(kind)
    make_consumer = MultiTopicStreamConsumer if kind == "stream" else MultiTopicQueueConsumer
    tasks = len(asyncio.all_tasks())
    async with Relay(live_node.url) as relay, AsyncExitStack() as stack:
        urls = (relay.url, live_node.url)
        readers = [
            Reader(
                await stack.enter_async_context(
                    make_consumer(
                        url,
                        space,
                        "sub",
                        live_node.admin_token,
                        properties=PROPERTIES,
                        name=f"member-{number}",
                        prefetch_messages=20,
                    )
                ),
                random,
            )
            for number, url in enumerate(urls)
        ]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        expected = await churn(live_node, admin, space, relay, random)
        await until(lambda: expected <= {place for reader in readers for place in reader.got})
        assert not any(reader.consumer.troubles for reader in readers)
        for reader in readers:
            await reader.consumer.flush()
        await stack.aclose()
        await asyncio.gather(*reading)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    async with make_consumer(
        live_node.url, space, "sub", live_node.admin_token, properties=PROPERTIES
    ) as late:
        with pytest.raises(TimeoutError):  # all of it was acknowledged
            await late.receive(timeout_seconds=2.0)
