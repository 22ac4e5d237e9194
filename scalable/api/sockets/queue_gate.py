"""Where the consumers of one segment on this node queue up for its next messages.

Whoever stands first waits for something to be there and claims a small part of it, then goes to the end of
the line: consumers get their turns fairly, and however many wait, the data plane is asked once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from django.conf import settings

from scalable.api.hub import hub, queue_key, segment_key, subscription_key
from scalable.segments.port import ClaimResult
from scalable.store.subscriptions import SubscriptionView

ACKNOWLEDGED = "acknowledged"
COALESCING_SECONDS = 0.005
RECHECKS_PER_SECOND = 100
"""Of segments that a node was told nothing about: with more than a few hundred each is asked more seldom."""
CHUNK_ALONE = 500
CHUNK_SHARED = 50
"""How many messages one turn may claim, depending on whether others on this node want some."""


class Turn:
    """The right to claim once; `result` is what came of it."""

    def __init__(self, max_messages: int) -> None:
        self.max_messages = max_messages
        self.result: ClaimResult | None = None


class SegmentGate:
    """One segment of one subscription, for as long as any consumer on this node has it attached."""

    def __init__(
        self, subscription: SubscriptionView, segment_id: int, *, resync_seconds: Callable[[], float]
    ) -> None:
        self.members = 0
        self._resync_seconds = resync_seconds
        self._watching = ExitStack()
        self._watch = self._watching.enter_context(
            hub.watch(
                segment_key(subscription.incarnation, segment_id),
                queue_key(subscription.subscription_id, segment_id),
                subscription_key(subscription.subscription_id),  # it was sought, in any segment
            )
        )
        self._first = asyncio.Lock()
        self._empty = self._at_end = False
        self._due_at: float | None = None
        self._asked_at = 0.0

    def close(self) -> None:
        """Hear no more of the segment."""
        self._watching.close()

    def acknowledged(self) -> None:
        """Look whether the segment is drained, if all of it was handed out."""
        if self._at_end:
            self._watch.notify(ACKNOWLEDGED)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait in line, then for something to claim; put the outcome into the turn's `result`."""
        async with self._first:
            await self._wait_for_work()
            turn = Turn(CHUNK_ALONE if self.members == 1 else CHUNK_SHARED)
            self._asked_at = _now()
            self._watch.forget()
            self._empty = False  # whatever happens in the turn, the next one asks again
            yield turn
            if turn.result is not None:
                self._note(turn.result)

    async def _wait_for_work(self) -> None:
        if not self._empty:
            return
        await self._watch.wait(self._pause_seconds())
        self._empty = False  # what woke this one wakes nobody else, should its turn be cancelled
        await asyncio.sleep(self._asked_at + COALESCING_SECONDS - _now())

    def _pause_seconds(self) -> float:
        resync_seconds = self._resync_seconds()
        return (
            resync_seconds if self._due_at is None else min(resync_seconds, max(0.0, self._due_at - _now()))
        )

    def _note(self, result: ClaimResult) -> None:
        self._empty, self._at_end = not result.batches, result.at_end
        self._due_at = None if result.next_due_seconds is None else _now() + result.next_due_seconds


class Gates:
    """The gates of this process."""

    def __init__(self) -> None:
        self._gates: dict[tuple[int, int], SegmentGate] = {}

    def resync_seconds(self) -> float:
        """How long a segment of which nothing is heard is left alone; longer, the more of them there are."""
        return max(float(settings.SCALABLE_WATCH_RESYNC_SECONDS), len(self._gates) / RECHECKS_PER_SECOND)

    def acknowledged(self, subscription: SubscriptionView, segment_id: int) -> None:
        """Tell the gate, if this node has one, that messages of the segment were acknowledged."""
        gate = self._gates.get((subscription.subscription_id, segment_id))
        if gate is not None:
            gate.acknowledged()

    @contextmanager
    def join(self, subscription: SubscriptionView, segment_id: int) -> Iterator[SegmentGate]:
        """Stand at a segment's gate; the first to come opens it, the last to leave closes it."""
        key = (subscription.subscription_id, segment_id)
        gate = self._gates.get(key)
        if gate is None:
            gate = SegmentGate(subscription, segment_id, resync_seconds=self.resync_seconds)
            self._gates[key] = gate
        gate.members += 1
        try:
            yield gate
        finally:
            gate.members -= 1
            if not gate.members:
                del self._gates[key]
                gate.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


gates = Gates()
