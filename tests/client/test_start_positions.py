"""Where a subscription begins that a stream consumer makes: a time, a checkpoint."""

from __future__ import annotations

import pytest

from scalable.client import Admin, StreamConsumer
from scalable.client.starts import Start
from scalable.domain.checkpoint import Checkpoint
from scalable.domain.errors import InvalidParameter
from tests.client.test_consumer import fill, read
from tests.processes import LiveNode


async def first_value(node: LiveNode, topic: str, start: Start) -> int:
    async with StreamConsumer(
        node.url, topic, "started", node.admin_token, initial_position=start
    ) as consumer:
        (message,) = await read(consumer, 1, acknowledge=False)
        return int(message.value)


async def test_a_subscription_begins_at_a_checkpoint(live_node: LiveNode, admin: Admin, topic: str) -> None:
    await fill(live_node, topic, 0, 20)
    incarnation = admin.positions(topic)["incarnation"]
    assert await first_value(live_node, topic, Checkpoint(incarnation, {0: 7})) == 7


async def test_a_subscription_begins_at_a_time(live_node: LiveNode, admin: Admin, topic: str) -> None:
    await fill(live_node, topic, 0, 20)
    async with StreamConsumer(live_node.url, topic, "other", live_node.admin_token) as consumer:
        published_at_ms = (await read(consumer, 1))[0].published_at_ms
    assert await first_value(live_node, topic, published_at_ms - 60_000) == 0


async def test_a_checkpoint_of_another_life_is_refused(live_node: LiveNode, admin: Admin, topic: str) -> None:
    incarnation = admin.positions(topic)["incarnation"]
    with pytest.raises(InvalidParameter):
        await first_value(live_node, topic, Checkpoint(incarnation + 1, {0: 7}))
