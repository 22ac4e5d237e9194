"""What a callback of the application raises ends its client with that error, also an error of the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scalable.client import (
    Endpoint,
    KeySharedConsumer,
    MultiTopicStreamConsumer,
    NamespaceWatch,
    Producer,
    QueueConsumer,
    StreamConsumer,
    TopologyWatch,
)
from scalable.domain.errors import Internal, TopicNotFound
from scalable.domain.names import TopicName
from tests.processes import LiveNode

WAIT_SECONDS = 20
CAUSE = KeyError("why")
ERRORS = (
    OSError(28, "No space left on device"),
    TimeoutError("of its own"),
    ValueError("no such thing"),
    TopicNotFound(topic="topic://of/its/own"),
    Internal(reference="of its own"),
)


class Raising:
    """A callback that fails, and counts how often it was called for it."""

    def __init__(self, error: Exception) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: object) -> None:
        self.calls += 1
        raise self._error from CAUSE


Watching = Callable[[LiveNode, str, Raising], TopologyWatch | NamespaceWatch]
WATCHES: dict[str, Watching] = {
    "topic": lambda node, topic, callback: TopologyWatch(
        Endpoint(node.url, node.admin_token), TopicName.parse(topic), on_change=callback
    ),
    "namespace": lambda node, _, callback: NamespaceWatch(
        Endpoint(node.url, node.admin_token), "public/default", on_change=callback
    ),
}


@pytest.mark.parametrize("kind", WATCHES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_it_ends_a_watch(live_node: LiveNode, topic: str, kind: str, error: Exception) -> None:
    callback = Raising(error)
    async with WATCHES[kind](live_node, topic, callback) as watch:
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                await watch.wait_for(lambda _: False, timeout_seconds=WAIT_SECONDS)
            assert raised.value is error
            assert raised.value.__cause__ is CAUSE
    assert callback.calls == 1


CONSUMERS: dict[str, Callable[[LiveNode, str], Any]] = {
    "stream": lambda node, topic: StreamConsumer(node.url, topic, "s", node.admin_token),
    "key-shared": lambda node, topic: KeySharedConsumer(node.url, topic, "k", node.admin_token),
    "queue": lambda node, topic: QueueConsumer(node.url, topic, "q", node.admin_token),
    "streams of a namespace": lambda node, _: MultiTopicStreamConsumer(
        node.url, "public/default", "n", node.admin_token
    ),
}


@pytest.mark.parametrize("kind", CONSUMERS)
async def test_it_ends_a_consumer(live_node: LiveNode, topic: str, kind: str) -> None:
    callback = Raising(ERRORS[0])
    async with (
        CONSUMERS[kind](live_node, topic) as consumer,
        Producer(live_node.url, topic, live_node.admin_token) as producer,
    ):
        consumer.on_change = callback
        await producer.send("k", b"it comes, and wakes the consumer")
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(type(ERRORS[0])) as raised:
                await _receive_all(consumer)
    assert raised.value is ERRORS[0]
    assert callback.calls == 1


async def _receive_all(consumer: Any) -> None:
    while True:
        await consumer.receive()


async def test_what_waits_is_not_handed_out_after_it(live_node: LiveNode, topic: str) -> None:
    """Else a consumer that always has messages would never tell."""
    async with (
        StreamConsumer(live_node.url, topic, "s", live_node.admin_token) as consumer,
        Producer(live_node.url, topic, live_node.admin_token) as producer,
    ):
        failed = asyncio.Event()

        def fail() -> None:
            failed.set()
            raise ERRORS[0]

        consumer.on_change = fail
        await asyncio.gather(*[producer.send("k", b"waits") for _ in range(10)])
        async with asyncio.timeout(WAIT_SECONDS):
            await failed.wait()
            with pytest.raises(type(ERRORS[0])):
                await consumer.receive()
