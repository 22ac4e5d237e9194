"""A node that stands still between its claim and the socket: what is late by then does not leave."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from launch.sandbox import LiveNode
from scalable.api.node import node
from scalable.api.sockets import outbox, queue_reader
from scalable.segments.port import ClaimResult
from scalable.services import queues
from scalable.wire.frames import QueueAttach, Renew, decode_queue_delivery
from tests.api.knocking import Message
from tests.api.peers import any_keys, ask, batch
from tests.api.queues import QUEUE, QueuePeer, Taken, make_queue, offsets, publish, queue_peer, taken_of
from tests.api.stalled import StalledPeer

LEASE_MS = 1_000
LONG_MS = 3_600_000
MESSAGES = 5


@pytest.fixture
async def member(transactional_db: None, redis_url: str) -> AsyncIterator[StalledPeer]:
    """A consumer on a node of this process."""
    peer = StalledPeer(QUEUE)
    yield peer
    peer.flowing.set()
    await peer.leave()
    await node.stop()


def note_claims(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[ClaimResult]":
    """What this process has claimed, also when that is nothing."""
    claim, loop = queues.claim, asyncio.get_running_loop()
    claims: asyncio.Queue[ClaimResult] = asyncio.Queue()

    def noted(**arguments: Any) -> ClaimResult:
        result = claim(**arguments)
        loop.call_soon_threadsafe(claims.put_nowait, result)
        return result

    monkeypatch.setattr(queues, "claim", noted)
    return claims


def taken(sent: list[Message]) -> list[Taken]:
    """The messages that have come to a peer."""
    frames = (message.get("bytes") for message in sent)
    return [each for data in frames if data for each in taken_of(decode_queue_delivery(data))]


async def test_what_waits_while_its_claim_runs_out_is_the_next_ones_and_nobody_elses(
    live_node: LiveNode, member: StalledPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a renewal stands in the way of the delivery until another has acknowledged all of it."""
    claims, topic = note_claims(monkeypatch), await ask(make_queue)
    await publish(topic, batch(any_keys(3)))
    await stall(member)
    await member.say(QueueAttach(segment_id=0, permits=3, ack_timeout_ms=LEASE_MS))
    assert (await asyncio.wait_for(claims.get(), 20)).batches
    async with queue_peer(live_node, "b") as other:
        await other.attach(permits=3, ack_timeout_ms=LONG_MS)
        first = await other.take(3)
        await other.acknowledge(*first)
        await publish(topic, batch(any_keys(3), first_sequence=3))
        member.flowing.set()
        await member.until(lambda sent: len(taken(sent)) >= 3)  # with the permits of those that were late
    assert [(each.offset, each.deliveries) for each in first] == [(0, 2), (1, 2), (2, 2)]
    assert offsets(taken(member.sent)) == [3, 4, 5]


@pytest.mark.parametrize("times", [1, 3])
async def test_what_is_late_comes_again_at_once_and_counts_no_delivery(
    member: StalledPeer, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    lags_seconds = [LONG_MS / 1_000] * times
    monkeypatch.setattr(
        outbox, "monotonic", lambda: time.monotonic() + (lags_seconds.pop() if lags_seconds else 0.0)
    )
    await publish(await ask(make_queue), batch(any_keys(3)))
    member.flowing.set()
    await member.open(consumer="a")
    await member.say(QueueAttach(segment_id=0, permits=3, ack_timeout_ms=LONG_MS))
    await member.until(lambda sent: bool(taken(sent)))
    assert [(each.offset, each.deliveries) for each in taken(member.sent)] == [(0, 1), (1, 1), (2, 1)]
    assert not lags_seconds


async def stall(member: StalledPeer) -> None:
    """Open the member's socket, then let an answer to a renewal stand in the way of all that follows."""
    member.flowing.set()
    await member.open(consumer="a")
    await member.until(lambda sent: len(sent) > 1)
    member.flowing.clear()
    await member.say(Renew(segment_id=0, request_id=1, ranges=[(0, 1)]))


async def kept(live_node: LiveNode, member: StalledPeer) -> list[tuple[int, int]]:
    """Let the member have its three messages, and another nothing: their offsets and deliveries."""
    member.flowing.set()
    await member.until(lambda sent: len(taken(sent)) >= 3)
    async with queue_peer(live_node, "b") as other:
        await other.attach(ack_timeout_ms=LONG_MS)
        await other.nothing_comes()
    return [(each.offset, each.deliveries) for each in taken(member.sent)]


async def test_what_is_late_comes_back_to_an_idle_member_and_stays_with_it(
    live_node: LiveNode, member: StalledPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than half of an hour passes in front of the socket, while the member waits for more."""
    waited_seconds, claims, topic = 0.0, note_claims(monkeypatch), await ask(make_queue)
    for module in (outbox, queue_reader):
        monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + waited_seconds)
    await publish(topic, batch(any_keys(3)))
    await stall(member)
    await member.say(QueueAttach(segment_id=0, permits=100, ack_timeout_ms=LONG_MS))
    assert (await asyncio.wait_for(claims.get(), 20)).batches
    assert not (await asyncio.wait_for(claims.get(), 20)).batches
    waited_seconds = 0.6 * LONG_MS / 1_000
    assert await kept(live_node, member) == [(0, 1), (1, 1), (2, 1)]


async def test_a_claim_that_followed_one_that_ran_out_is_not_given_back_for_it(
    live_node: LiveNode, member: StalledPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same member claims again what still waits in front of its socket: that comes once, and is its."""
    claims, topic = note_claims(monkeypatch), await ask(make_queue)
    await publish(topic, batch(any_keys(3)))
    await stall(member)
    await member.say(QueueAttach(segment_id=0, permits=100, ack_timeout_ms=4 * LEASE_MS))
    for _ in range(2):
        while not (await asyncio.wait_for(claims.get(), 20)).batches:
            pass
    assert await kept(live_node, member) == [(0, 2), (1, 2), (2, 2)]


async def test_time_in_line_is_no_time_of_a_claim(
    member: StalledPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour passes while the member waits for something to be there, which is claimed once."""
    waited_seconds, claims, topic = 0.0, note_claims(monkeypatch), await ask(make_queue)
    for module in (outbox, queue_reader):
        monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + waited_seconds)
    member.flowing.set()
    await member.open(consumer="a")
    await member.say(QueueAttach(segment_id=0, permits=3, ack_timeout_ms=LONG_MS))
    assert not (await asyncio.wait_for(claims.get(), 20)).batches
    waited_seconds = LONG_MS / 1_000
    await publish(topic, batch(any_keys(3)))
    await member.until(lambda sent: bool(taken(sent)))
    found = [claims.get_nowait() for _ in range(claims.qsize())]
    assert len([each for each in found if each.batches]) == 1


async def test_many_members_that_have_little_time_are_given_all_that_is_there(live_node: LiveNode) -> None:
    topic, got = await ask(make_queue), set[int]()
    complete = asyncio.Event()

    async def receive(peer: QueuePeer) -> None:
        while True:
            (one,) = await peer.take(1)
            got.add(one.offset)
            await peer.acknowledge(one)
            if len(got) == MESSAGES:
                complete.set()

    async with AsyncExitStack() as stack, asyncio.timeout(60):
        peers = [await stack.enter_async_context(queue_peer(live_node, f"c{each}")) for each in range(20)]
        for peer in peers:
            await peer.attach(permits=MESSAGES, ack_timeout_ms=100)
        receiving = [asyncio.create_task(receive(peer)) for peer in peers]
        await publish(topic, batch(any_keys(MESSAGES)))
        await complete.wait()
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
