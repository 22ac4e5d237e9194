"""A node that stands still between its claim and the socket: what is late by then does not leave."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from launch.sandbox import LiveNode
from scalable.api.node import node
from scalable.api.sockets import outbox
from scalable.segments.port import ClaimResult
from scalable.services import queues
from scalable.wire.frames import QueueAttach, Renew, decode_queue_delivery
from tests.api.knocking import Message
from tests.api.peers import any_keys, ask, batch
from tests.api.queues import QUEUE, Taken, make_queue, offsets, publish, queue_peer, taken_of
from tests.api.stalled import StalledPeer

LEASE_MS = 1_000
LONG_MS = 3_600_000


@pytest.fixture
async def member(transactional_db: None, redis_url: str) -> AsyncIterator[StalledPeer]:
    """A consumer on a node of this process."""
    peer = StalledPeer(QUEUE)
    yield peer
    peer.flowing.set()
    await peer.leave()
    await node.stop()


def note_claims(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set as soon as this process has claimed messages."""
    claim, loop, claimed = queues.claim, asyncio.get_running_loop(), asyncio.Event()

    def noted(**arguments: Any) -> ClaimResult:
        result = claim(**arguments)
        if result.batches:
            loop.call_soon_threadsafe(claimed.set)
        return result

    monkeypatch.setattr(queues, "claim", noted)
    return claimed


def taken(sent: list[Message]) -> list[Taken]:
    """The messages that have come to a peer."""
    frames = (message.get("bytes") for message in sent)
    return [each for data in frames if data for each in taken_of(decode_queue_delivery(data))]


async def test_what_waits_while_its_claim_runs_out_is_the_next_ones_and_nobody_elses(
    live_node: LiveNode, member: StalledPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a renewal stands in the way of the delivery until another has acknowledged all of it."""
    claimed, topic = note_claims(monkeypatch), await ask(make_queue)
    await publish(topic, batch(any_keys(3)))
    member.flowing.set()
    await member.open(consumer="a")
    await member.until(lambda sent: len(sent) > 1)
    member.flowing.clear()
    await member.say(Renew(segment_id=0, request_id=1, ranges=[(0, 1)]))
    await member.say(QueueAttach(segment_id=0, permits=3, ack_timeout_ms=LEASE_MS))
    await asyncio.wait_for(claimed.wait(), 20)
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
