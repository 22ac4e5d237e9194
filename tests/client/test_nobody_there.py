"""Where nobody answers each client says so when its time is over, with what its last attempt ended with."""

from collections.abc import Callable
from typing import Any

import pytest

from launch.ports import free_port
from scalable.client import (
    CheckpointConsumer,
    ConnectionLost,
    Endpoint,
    KeySharedConsumer,
    MultiTopicQueueConsumer,
    MultiTopicStreamConsumer,
    NamespaceWatch,
    Producer,
    QueueConsumer,
    StreamConsumer,
    TopologyWatch,
)
from scalable.domain.names import TopicName

TOPIC = TopicName("public", "default", "t")
CLIENTS: dict[str, Callable[[str], Any]] = {
    "producer": lambda url: Producer(url, TOPIC, ""),
    "stream": lambda url: StreamConsumer(url, TOPIC, "s", ""),
    "key-shared": lambda url: KeySharedConsumer(url, TOPIC, "s", ""),
    "queue": lambda url: QueueConsumer(url, TOPIC, "s", ""),
    "checkpoint": lambda url: CheckpointConsumer(url, TOPIC, "", group="g"),
    "streams of a namespace": lambda url: MultiTopicStreamConsumer(url, "public/default", "s", ""),
    "queues of a namespace": lambda url: MultiTopicQueueConsumer(url, "public/default", "s", ""),
    "watch of a topic": lambda url: TopologyWatch(Endpoint(url, ""), TOPIC, client="test"),
    "watch of a namespace": lambda url: NamespaceWatch(Endpoint(url, ""), "public/default", client="test"),
}


@pytest.mark.parametrize("kind", CLIENTS)
async def test_who_finds_nobody_tells_the_last_failure(kind: str) -> None:
    client = CLIENTS[kind](f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ConnectionLost, match=r"[Cc]onnect"):
        await client.start(2)
