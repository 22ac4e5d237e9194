"""A stored batch that cannot be read, on a real node: each consumer ends by it, until somebody skips it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import connection

from scalable.client import Admin, Producer, QueueConsumer, StreamConsumer
from scalable.domain.errors import BatchInvalid
from tests.api.peers import ask
from tests.processes import LiveNode

WAIT_SECONDS = 60
KINDS: dict[str, type[QueueConsumer] | type[StreamConsumer]] = {
    "QUEUE": QueueConsumer,
    "STREAM": StreamConsumer,
}


def break_batch(incarnation: int, base_offset: int) -> None:
    """Turn the last byte of a stored batch, as a disk might."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE segment_batch b SET payload = set_byte(payload, octet_length(payload) - 1, 255 #"
            " get_byte(payload, octet_length(payload) - 1)) FROM segment_log l"
            " WHERE l.log_id = b.log_id AND incarnation = %s AND base_offset = %s",
            [incarnation, base_offset],
        )
        assert cursor.rowcount == 1


async def acknowledge_all(consumer: Any) -> None:
    """Acknowledge whatever comes, until the consumer ends."""
    async with consumer:
        while True:
            consumer.acknowledge(await consumer.receive(timeout_seconds=WAIT_SECONDS))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_consumer_ends_by_what_it_cannot_read_and_goes_on_behind_it(
    live_node: LiveNode, admin: Admin, topic: str, kind: Any
) -> None:
    await asyncio.to_thread(admin.create_subscription, topic, "s", kind=kind, start="earliest")
    async with Producer(live_node.url, topic, live_node.admin_token) as producer:
        for number in range(4):  # each awaited: each a batch of its own
            await producer.send("k", str(number).encode())
    incarnation = (await asyncio.to_thread(admin.get_topic, topic))["incarnation"]
    await ask(break_batch, incarnation, 1)

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
