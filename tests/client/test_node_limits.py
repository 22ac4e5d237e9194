"""A node's own limits, which its welcome tells: clients keep to them, whatever they were asked for."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from scalable.client import (
    Admin,
    BatchLimits,
    CheckpointConsumer,
    KeySharedConsumer,
    Producer,
    QueueConsumer,
    StreamConsumer,
)
from scalable.domain.errors import MessageTooLarge
from tests.processes import LiveNode, ProcessFactory

TOPIC = "topic://public/default/narrow"
PATIENCE_SECONDS = 60
MESSAGES = 40
FRAME_BYTES = 65_536
SETTINGS = {
    "SCALABLE_CONSUME_MAX_PERMITS": "5",
    "SCALABLE_MAX_FRAME_BYTES": str(FRAME_BYTES),
    "SCALABLE_MAX_MESSAGE_BYTES": str(FRAME_BYTES * 7 // 8),
}


@pytest.fixture
def narrow(processes: ProcessFactory) -> LiveNode:
    node = processes.node(**SETTINGS)
    with Admin(node.url, node.admin_token) as admin:
        admin.create_topic(TOPIC, initial_segments=2)
    return node


@pytest.mark.parametrize(
    "kind",
    [StreamConsumer, KeySharedConsumer, QueueConsumer, CheckpointConsumer],
    ids=lambda kind: kind.__name__,
)
async def test_no_consumer_asks_for_more_than_a_node_permits(narrow: LiveNode, kind: Any) -> None:
    async with Producer(narrow.url, TOPIC, narrow.admin_token) as producer:
        for number in range(MESSAGES):
            await producer.send(str(number), b"")
    keys = []
    name = "group" if kind is CheckpointConsumer else "subscription"
    async with kind(narrow.url, TOPIC, token=narrow.admin_token, **{name: "g"}) as consumer:
        for _ in range(MESSAGES):
            message = await consumer.receive(PATIENCE_SECONDS)
            keys.append(message.key)
            if kind is not CheckpointConsumer:
                consumer.acknowledge(message)
    assert sorted(keys) == sorted(map(str, range(MESSAGES)))


@pytest.mark.parametrize("key_bytes", [10, 60_000])
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_what_fits_into_no_frame_ends_the_message_alone(
    narrow: LiveNode, key_bytes: int, compression: Literal["none", "zstd"]
) -> None:
    """The largest that is taken fits; one byte more is refused before anything is sent."""
    async with Producer(narrow.url, TOPIC, narrow.admin_token, compression=compression) as producer:
        limit = min(FRAME_BYTES * 7 // 8, FRAME_BYTES * 15 // 16 - key_bytes)
        with pytest.raises(MessageTooLarge):
            await producer.send("k" * key_bytes, bytes(limit + 1))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await producer.send("k" * key_bytes, bytes(limit))
            await producer.send("next", b"")


@pytest.mark.parametrize("text", ["x", "ж", "語", "\N{GRINNING FACE}", ""], ids=ascii)
async def test_batches_of_any_texts_fit_into_frames(narrow: LiveNode, text: str) -> None:
    """Keys and properties count by their bytes, and so do empty ones."""
    async with Producer(
        narrow.url, TOPIC, narrow.admin_token, limits=BatchLimits(max_bytes=1 << 30)
    ) as producer:
        sent = [
            await producer.submit(text * 800, b"", properties={f"{name}{text}": text for name in range(90)})
            for _ in range(200)
        ]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_SECONDS)
