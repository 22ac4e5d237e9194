"""A stored batch that cannot be read, on a real node: each consumer ends by it, until somebody skips it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import connection

from scalable.client import Admin, KeySharedConsumer, Producer, QueueConsumer, StreamConsumer
from scalable.domain.errors import BatchInvalid
from tests.api.peers import ask
from tests.processes import LiveNode

WAIT_SECONDS = 60
KINDS: dict[str, type[QueueConsumer] | type[StreamConsumer]] = {
    "QUEUE": QueueConsumer,
    "STREAM": StreamConsumer,
}


BYTES = {"header": "20", "body": "octet_length(payload) - 1"}
"""Where a batch is broken: within what its header's checksum covers, and its last byte."""


def break_batch(incarnation: int, base_offset: int, at: str) -> None:
    """Turn a byte of a stored batch, as a disk might."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE segment_batch b SET payload = set_byte(payload, {BYTES[at]}, 255 #"
            f" get_byte(payload, {BYTES[at]})) FROM segment_log l"
            " WHERE l.log_id = b.log_id AND incarnation = %s AND base_offset = %s",
            [incarnation, base_offset],
        )
        assert cursor.rowcount == 1


async def publish_with_a_broken_one(node: LiveNode, admin: Admin, topic: str, at: str) -> None:
    """Send four messages, each a batch of its own, and break the second."""
    async with Producer(node.url, topic, node.admin_token) as producer:
        for number in range(4):
            await producer.send("k", str(number).encode())
    incarnation = (await asyncio.to_thread(admin.get_topic, topic))["incarnation"]
    await ask(break_batch, incarnation, 1, at)


async def acknowledge_all(consumer: Any) -> None:
    """Acknowledge whatever comes, until the consumer ends."""
    async with consumer:
        while True:
            consumer.acknowledge(await consumer.receive(timeout_seconds=WAIT_SECONDS))


@pytest.mark.parametrize("at", BYTES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_consumer_ends_by_what_it_cannot_read_and_goes_on_behind_it(
    live_node: LiveNode, admin: Admin, topic: str, kind: Any, at: str
) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "s", kind=kind, start="earliest")
    await publish_with_a_broken_one(live_node, admin, topic, at)

    def consumer() -> Any:
        return KINDS[kind](live_node.url, topic, "s", live_node.admin_token)

    for _ in range(2):  # it stays in the way until somebody decides
        with pytest.raises(BatchInvalid, match="segment 0 at offset 1"):
            await acknowledge_all(consumer())
    for count in (1, 2):  # acknowledgements of what came just before it may have been lost with the consumer
        moves = await asyncio.to_thread(admin.skip, topic, "s", count, preview=True)
        if moves is not None and moves["segments"][0]["toPosition"] == 2:
            await asyncio.to_thread(admin.skip, topic, "s", count)
    async with consumer() as behind:
        for expected in (b"2", b"3"):
            message = await behind.receive(timeout_seconds=WAIT_SECONDS)
            assert message.value == expected
            behind.acknowledge(message)


@pytest.mark.parametrize("at", BYTES)
async def test_sharers_of_keys_end_by_it_and_a_look_passes_over_it(
    live_node: LiveNode, admin: Admin, topic: str, at: str
) -> None:
    await publish_with_a_broken_one(live_node, admin, topic, at)
    for _ in range(2):
        with pytest.raises(BatchInvalid, match="segment 0 at offset 1"):
            await acknowledge_all(KeySharedConsumer(live_node.url, topic, "s", live_node.admin_token))
    seen = await asyncio.to_thread(admin.peek, topic, "s")
    assert [each["offset"] for each in seen if each["offset"] > 0] == [2, 3]
