"""The checkpoint consumer against a real node and worker."""

from __future__ import annotations

import asyncio

from launch.process import ManagedProcess
from scalable.client import Admin, CheckpointConsumer
from tests.client.test_consumer import fill
from tests.processes import LiveNode


def member(node: LiveNode, topic: str, name: str) -> CheckpointConsumer:
    return CheckpointConsumer(node.url, topic, node.admin_token, group="group", name=name)


async def values(consumer: CheckpointConsumer, count: int) -> list[int]:
    return [int((await consumer.receive(timeout_seconds=60)).value) for _ in range(count)]


async def test_a_checkpoint_survives_a_split_and_is_read_on_from(
    live_node: LiveNode, admin: Admin, topic: str, reshaping: ManagedProcess
) -> None:
    await fill(live_node, topic, 0, 20)
    async with member(live_node, topic, "a") as consumer:
        assert await values(consumer, 12) == list(range(12))
        kept = consumer.checkpoint()
        assert (await consumer.commit(kept)).positions == {0: 12}
        await asyncio.to_thread(admin.split, topic, 0)
        await fill(live_node, topic, 20, 40)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))
        await consumer.restore(kept)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))
    async with member(live_node, topic, "b") as consumer:
        await consumer.restore(kept)
        assert sorted(await values(consumer, 28)) == list(range(12, 40))
