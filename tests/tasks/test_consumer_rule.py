"""Consumers that come and go have their topic evaluated by themselves: nothing ticks here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin, StreamConsumer
from tests.faults.waiting import until
from tests.processes import LiveNode

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
TOPIC = "topic://public/default/joined"
POLICY = {"autoScaleIntervalSeconds": 3_600, "splitCooldownSeconds": 0, "maxSegments": 2}


@pytest.fixture
def admin(live_node: LiveNode) -> Iterator[Admin]:
    with Admin(live_node.url, live_node.admin_token) as client:
        client.create_topic(TOPIC)
        client.set_policy(TOPIC, POLICY)
        yield client


def held_by(admin: Admin) -> list[str]:
    """Give the guards of the newest decision."""
    (newest,) = admin.decisions(TOPIC, limit=1)
    return [guard["guard"] for guard in newest["explanation"]["heldBy"]]


def done(admin: Admin) -> list[tuple[str, str, str]]:
    return [(each["kind"], each["reason"], each["outcome"]) for each in admin.operations(TOPIC)]


async def comes(condition: Callable[[], bool], *, what: str) -> None:
    await asyncio.to_thread(until, condition, what=what)


async def test_a_consumer_that_joins_splits_and_one_that_leaves_is_noticed(
    live_node: LiveNode, admin: Admin, celery_worker_process: ManagedProcess
) -> None:
    """No beat runs and the policy's interval is an hour: what is decided, a registration asked for."""
    members = [
        StreamConsumer(live_node.url, TOPIC, "group", live_node.admin_token, name=f"member {number}")
        for number in range(3)
    ]
    async with members[0]:
        await comes(lambda: bool(admin.decisions(TOPIC, limit=1)), what="a decision")
        assert done(admin) == []
        async with members[1]:
            split = [("SPLIT", "consumer-count", "SUCCEEDED")]
            await comes(lambda: done(admin) == split, what="a split for the second consumer")
            async with members[2]:
                await comes(lambda: "MAX_SEGMENTS" in held_by(admin), what="a third that is too many")
            await comes(lambda: "MAX_SEGMENTS" not in held_by(admin), what="the third that left")
    assert done(admin) == split
