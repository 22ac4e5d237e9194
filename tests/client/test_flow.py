"""The flow of messages to a consumer never dries up, whatever is delivered to it twice or is done with.

Each consumer here may hold one message at a time, and acknowledges nothing while it waits for the next: only
the permits of what it did not keep can bring that one.
"""

from __future__ import annotations

import asyncio

from scalable.client import Admin, KeySharedConsumer, Producer, StreamConsumer
from tests.client.proxy import Relay
from tests.processes import LiveNode, ProcessFactory

PATIENCE_SECONDS = 60


async def publish(node: LiveNode, topic: str, first: int, last: int) -> None:
    """Publish each message for itself, so that no two share a batch."""
    async with Producer(node.url, topic, node.admin_token) as producer:
        for number in range(first, last):
            await producer.send("key", str(number).encode())


async def test_messages_that_come_twice_after_a_lost_connection_give_their_permits_back(
    processes: ProcessFactory,
) -> None:
    topic = "topic://public/default/twice"
    async with Relay() as relay:
        # The node names the relay as its own address, so that assignments lead through it too.
        node = await asyncio.to_thread(lambda: processes.node(SCALABLE_NODE_URL=relay.url))
        relay.target_url = node.url
        with Admin(node.url, node.admin_token) as admin:
            await asyncio.to_thread(admin.create_topic, topic)
        await publish(node, topic, 0, 4)
        async with StreamConsumer(
            relay.url, topic, "group", node.admin_token, prefetch_messages=1
        ) as consumer:
            for number in range(4):
                assert (await consumer.receive(PATIENCE_SECONDS)).value == b"%d" % number
            relay.cut()
            await publish(node, topic, 4, 6)
            for number in range(4, 6):
                assert (await consumer.receive(PATIENCE_SECONDS)).value == b"%d" % number
            consumer.acknowledge_all()


async def test_messages_that_a_former_owner_acknowledged_singly_give_their_permits_back(
    live_node: LiveNode, admin: Admin, topic: str
) -> None:
    def member() -> KeySharedConsumer:
        return KeySharedConsumer(
            live_node.url, topic, "shared", live_node.admin_token, name="a", prefetch_messages=1
        )

    await publish(live_node, topic, 0, 4)
    async with member() as former:
        got = [await former.receive(PATIENCE_SECONDS) for _ in range(4)]
        for message in got[1:]:
            former.acknowledge_individually(message)
    await publish(live_node, topic, 4, 5)
    async with member() as consumer:
        assert (await consumer.receive(PATIENCE_SECONDS)).value == b"0"
        last = await consumer.receive(PATIENCE_SECONDS)
        assert last.value == b"4"
        consumer.acknowledge(last)
