"""One consumer of a QUEUE subscription with many segments at once: each gets its turn, in any order."""

import asyncio
import threading
from contextlib import ExitStack

import pytest
from django.conf import settings
from django.db import connection, transaction

from launch.sandbox import LiveNode, ProcessFactory
from scalable.api.executor import WAITING_PER_THREAD
from scalable.api.hub import hub, queue_key
from scalable.api.sockets.queue_gate import RECHECKS_PER_SECOND, Gates, SegmentGate
from scalable.api.sockets.some_at_once import CALLS_AT_ONCE
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import ClaimResult
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import Detached, QueueDetach
from tests.api.peers import any_keys, ask, batch
from tests.api.queues import QueuePeer, Taken, make_queue, publish, queue_peer
from tests.topology import append_everywhere

SEGMENTS = 40
"""Many more than a socket may read at once."""
CROWD = WAITING_PER_THREAD + 100
"""More than may wait for the one thread of a small node."""
NEVER_MS = 3_600_000


@pytest.fixture
def small_node(processes: ProcessFactory) -> LiveNode:
    """A node with one thread for services."""
    return processes.node(SCALABLE_EXECUTOR_THREADS="1")


async def test_every_segment_of_many_is_delivered_though_all_were_attached_at_once(
    live_node: LiveNode,
) -> None:
    topic = await ask(make_queue, segments=SEGMENTS)
    first = await ask(append_everywhere, topic, "first")
    async with queue_peer(live_node, "a") as a:
        for segment_id in range(SEGMENTS):
            await a.attach(segment_id)
        assert {each.value.decode() for each in await a.take(SEGMENTS)} == first
        second = await ask(append_everywhere, topic, "second")
        assert {each.value.decode() for each in await a.take(SEGMENTS)} == second


async def test_the_end_of_a_socket_gives_all_its_segments_back_however_many(small_node: LiveNode) -> None:
    await ask(append_everywhere, await ask(make_queue, segments=CROWD), "one")
    async with queue_peer(small_node, "a") as a:
        lost = await take_from_all(a)
    async with queue_peer(small_node, "b") as b:
        again = await take_from_all(b)
    assert {each.value for each in again} == {each.value for each in lost}
    assert {each.deliveries for each in again} == {2}


@pytest.mark.parametrize("permits", [0, 1_000], ids=["never-asked", "found-nothing"])
async def test_segments_of_which_nothing_is_held_keep_nobody_waiting_at_the_end_of_a_socket(
    processes: ProcessFactory, permits: int
) -> None:
    """Their cursors are locked meanwhile: who would give something back there waited for that."""
    node = processes.node(SCALABLE_WATCH_RESYNC_SECONDS="600")
    idle = range(1, CALLS_AT_ONCE + 2)
    topic = await ask(make_queue, segments=1 + len(idle))
    locked, done = threading.Event(), threading.Event()
    async with queue_peer(node, "b") as b, queue_peer(node, "a") as a:
        for segment_id in idle:
            await a.attach(segment_id, permits=permits, ack_timeout_ms=NEVER_MS)
        await a.nothing_comes()
        await publish(topic, batch(any_keys(1)))
        await a.attach(ack_timeout_ms=NEVER_MS)
        await a.take(1)
        await b.attach(ack_timeout_ms=NEVER_MS)
        holding = asyncio.create_task(ask(lock_cursors, list(idle), locked, done))
        try:
            assert await asyncio.to_thread(locked.wait, 30)
            await a.peer.send(QueueDetach(segment_id=1))
            assert await a.wait_for(Detached) == Detached(segment_id=1)
            a.peer.connection.transport.abort()
            assert [each.deliveries for each in await b.take(1)] == [2]
        finally:
            done.set()
            await holding


async def test_the_more_segments_a_node_hears_nothing_of_the_more_seldom_it_asks_for_each() -> None:
    gates, subscription = Gates(), SubscriptionView(1, 1, "q", SubscriptionType.QUEUE, 0, 0)
    few_seconds, crowd = gates.resync_seconds(), 10 * RECHECKS_PER_SECOND
    with ExitStack() as joined:
        for segment_id in range(crowd):
            joined.enter_context(gates.join(subscription, segment_id))
        assert gates.resync_seconds() == crowd / RECHECKS_PER_SECOND
    assert gates.resync_seconds() == few_seconds == settings.SCALABLE_WATCH_RESYNC_SECONDS


async def test_who_is_woken_and_goes_before_its_turn_leaves_the_next_one_awake() -> None:
    gates, subscription = Gates(), SubscriptionView(1, 1, "q", SubscriptionType.QUEUE, 0, 0)
    with gates.join(subscription, 0) as gate:
        await take_turn(gate)  # and find nothing
        for _ in range(2):
            first, second = asyncio.create_task(take_turn(gate)), asyncio.create_task(take_turn(gate))
            await asyncio.sleep(0)
            hub.fire(queue_key(1, 0))
            async with asyncio.timeout(settings.SCALABLE_WATCH_RESYNC_SECONDS / 2):
                await until_woken(gate)
                first.cancel()
                await second


async def take_turn(gate: SegmentGate) -> None:
    """Claim of a segment in which nothing is."""
    async with gate.turn() as turn:
        turn.result = ClaimResult((), 1, at_end=False, drained=False, next_due_seconds=None)


async def until_woken(gate: SegmentGate) -> None:
    """Wait until who stands first took the news, which is before it had its turn."""
    while gate._empty:  # noqa: ASYNC110 - nothing tells of this, and each turn of the loop may bring it
        await asyncio.sleep(0)


async def take_from_all(peer: QueuePeer) -> list[Taken]:
    """One message of each segment of the crowd, claimed for long."""
    for segment_id in range(CROWD):
        await peer.attach(segment_id, ack_timeout_ms=NEVER_MS)
    return await peer.take(CROWD)


def lock_cursors(segment_ids: list[int], locked: threading.Event, done: threading.Event) -> None:
    """Let nothing change in these segments until the test says so."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM segment_cursor c JOIN segment_log l USING (log_id)"
            " WHERE l.segment_id = ANY(%s) FOR UPDATE OF c",
            [segment_ids],
        )
        locked.set()
        done.wait(60)
