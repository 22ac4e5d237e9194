"""Acknowledgements of a QUEUE subscription that cannot be written yet."""

import asyncio
import threading

import pytest
from django.db import connection, transaction

from launch.sandbox import LiveNode
from scalable.api.sockets.queue import MAX_WAITING_RANGES
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import subscriptions, topics
from scalable.services.topics import TopicView
from scalable.wire.frames import MAX_RANGES, ErrorFrame, QueueAck
from tests.api.peers import any_keys, ask, batch
from tests.api.queues import make_queue, publish, queue_peer
from tests.topology import ACTOR

NEVER_MS = 3_600_000


async def test_more_acknowledgements_than_may_wait_are_written_one_after_the_other(
    live_node: LiveNode,
) -> None:
    """Nothing is written while the cursor is locked, and the next frame waits; then all of it is."""
    topic = await ask(make_queue)
    every_second = [(offset, offset + 1) for offset in range(0, 2 * MAX_RANGES, 2)]
    async with queue_peer(live_node, "a") as a:
        await a.attach(permits=2 * MAX_RANGES, ack_timeout_ms=NEVER_MS)
        await publish(topic, batch(any_keys(1) * 2 * MAX_RANGES))
        taken = await a.take(2 * MAX_RANGES)
        frame = QueueAck(segment_id=0, incarnation=taken[0].incarnation, ranges=every_second)
        locked, done = threading.Event(), threading.Event()
        holding = asyncio.create_task(ask(lock_cursors, locked, done))
        assert await asyncio.to_thread(locked.wait, 30)
        for _ in range(MAX_WAITING_RANGES // MAX_RANGES + 10):
            await a.peer.send(frame)
        done.set()
        await holding
        for start in range(1, 2 * MAX_RANGES, MAX_RANGES):
            await a.acknowledge(*taken[start : start + MAX_RANGES : 2])
    key = SegmentKey(topic.incarnation, 0)
    state = await ask(segment_port().cursor, key, subscription="q")
    assert state is not None
    assert state.position == 2 * MAX_RANGES


@pytest.mark.parametrize("what", ["topic", "subscription"])
async def test_what_a_former_life_of_a_name_delivered_is_refused_and_stays_unread(
    live_node: LiveNode, what: str
) -> None:
    topic = await ask(make_queue)
    async with queue_peer(live_node, "a") as a:
        await publish(topic, batch(any_keys(3)))
        await a.attach(ack_timeout_ms=NEVER_MS)
        former = await a.take(3)
    topic = await ask(made_anew, topic, what)
    async with queue_peer(live_node, "a") as a:
        if what == "topic":
            await publish(topic, batch(any_keys(3)))
        life = former[0].incarnation
        await a.peer.send(QueueAck(segment_id=0, incarnation=life, ranges=[(0, 3)]))
        refused = await a.wait_for(ErrorFrame)
        assert (refused.code, refused.segment_id) == ("cursor_sought", 0)
        await a.attach(ack_timeout_ms=NEVER_MS)
        assert len(await a.take(3)) == 3


def made_anew(topic: TopicView, what: str) -> TopicView:
    """Delete the topic or its subscription, and make it again."""
    if what == "topic":
        topics.delete_topic(name=topic.name, actor=ACTOR, force=True)
        return make_queue()
    subscriptions.delete_subscription(name=topic.name, subscription="q")
    subscriptions.create_subscription(name=topic.name, subscription="q", kind=SubscriptionType.QUEUE)
    return topic


def lock_cursors(locked: threading.Event, done: threading.Event) -> None:
    """Let nothing be acknowledged until the test says so."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM segment_cursor FOR UPDATE")
        locked.set()
        done.wait(60)
