"""Delivers one segment's messages to one consumer of a QUEUE subscription, as long as it has permits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from scalable.api.node import node
from scalable.api.sampler import sampler
from scalable.api.sockets.outbox import Perishable
from scalable.api.sockets.pages import Pages
from scalable.api.sockets.queue_gate import SegmentGate, Turn, gates
from scalable.domain.errors import TooManyRequests
from scalable.domain.names import TopicName
from scalable.segments.port import ClaimedBatch, ClaimedRange, ClaimResult
from scalable.services import queues
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import DeliveredRange, QueueDelivery, encode_queue_delivery

logger = logging.getLogger(__name__)

PAGE_BYTES = 1024 * 1024
MOST_OF_A_LEASE = 1 / 2
"""How much of a claim's time may pass before the message leaves; the client counts from when it comes."""


@dataclass(frozen=True, slots=True)
class QueueContext:
    """What all readers of a socket share; `pages` bounds how many claims they hold in memory at once."""

    topic: TopicName
    subscription: SubscriptionView
    consumer: str
    pages: Pages
    deliver: Callable[[Perishable], Awaitable[None]]


class QueueReader:
    """One attached segment; `session` names what this attachment claims, and nothing else does."""

    def __init__(self, context: QueueContext, *, segment_id: int, session: str, lease_seconds: float) -> None:
        self.segment_id = segment_id
        self.session = session
        self.lease_seconds = lease_seconds
        self.permits = 0
        self._may_hold = False
        """Whether this attachment ever claimed a message, or may have, for a claim's answer was lost."""
        self.task: asyncio.Task[None] | None = None
        self._context = context
        self._permitted = asyncio.Event()
        self._returning: set[asyncio.Task[None]] = set()

    def grant(self, permits: int) -> None:
        """Allow so many more messages."""
        self.permits += permits
        if self.permits > 0:
            self._permitted.set()

    async def run(self) -> None:
        """Deliver until the segment is drained.

        Raises SegmentNotFound, SubscriptionNotFound, TopicDeleted.
        """
        with gates.join(self._context.subscription, self.segment_id) as gate:
            while not await self._take_turn(gate):
                pass

    async def _take_turn(self, gate: SegmentGate) -> bool:
        """Claim once and deliver it; True when the segment is drained."""
        await self._wait_for_permits()
        pages, claimed = self._context.pages, None
        async with gate.turn() as turn:
            # A consumer that does not take what it has must not stand in the way of those behind it.
            if pages.take():
                try:
                    await self._late_ones_returned()
                    claimed = await self._claim(turn)
                    turn.result = claimed.result
                except BaseException:
                    pages.put_back()
                    raise
        if claimed is None:
            await pages.wait()
            return False
        try:
            await self._deliver_all(claimed)
        finally:
            pages.put_back()
        return claimed.result.drained

    async def give_back(self, *, count_delivery: bool = True) -> None:
        """Give back whatever this attachment has claimed, if anything; call it when `run` is over."""
        if not self._may_hold:
            return  # of a socket's thousands of segments most may be idle, and others wait for the rest
        await self._late_ones_returned()
        await node.call(
            queues.give_back,
            subscription=self._context.subscription,
            segment_id=self.segment_id,
            session=self.session,
            ranges=None,
            count_delivery=count_delivery,
        )

    async def _wait_for_permits(self) -> None:
        while self.permits <= 0:
            self._permitted.clear()
            await self._permitted.wait()

    async def _claim(self, turn: Turn) -> "_Claimed":
        while True:
            claiming = asyncio.ensure_future(self._call_claim(min(self.permits, turn.max_messages)))
            try:
                return await asyncio.shield(claiming)
            except TooManyRequests as error:
                await asyncio.sleep(error.retry_after_seconds)
            except asyncio.CancelledError:
                # The thread cannot be stopped: what it claims must be there before it is given back.
                await _ended(claiming)
                raise

    async def _call_claim(self, max_messages: int) -> "_Claimed":
        held_before, self._may_hold = self._may_hold, True
        try:
            claimed = await node.call(
                _claim_now,
                topic=self._context.topic,
                subscription=self._context.subscription,
                segment_id=self.segment_id,
                consumer=self._context.consumer,
                session=self.session,
                max_messages=max_messages,
                max_bytes=PAGE_BYTES,
                lease_seconds=self.lease_seconds,
            )
        except TooManyRequests:  # nothing was begun
            self._may_hold = held_before
            raise
        self._may_hold = held_before or bool(claimed.result.batches)
        return claimed

    async def _deliver_all(self, claimed: "_Claimed") -> None:
        """Deliver in time: a node that stood still since it claimed may hold what is others' by now."""
        deadline = claimed.at + self.lease_seconds * MOST_OF_A_LEASE
        for batch in claimed.result.batches:
            if monotonic() < deadline:
                await self._deliver(batch, claimed, deadline)
            else:
                await self._give_back_ranges(batch.ranges)

    async def _give_back_ranges(self, ranges: Sequence[ClaimedRange]) -> None:
        await node.call(
            queues.give_back,
            subscription=self._context.subscription,
            segment_id=self.segment_id,
            session=self.session,
            ranges=[(each.first, each.end) for each in ranges],
            count_delivery=False,
        )

    def _note_late(self, ranges: Sequence[ClaimedRange], count: int, ends_at: float) -> None:
        """These waited too long to be sent: others get them at once, and the permits are for the next ones.

        A claim that has run out may have been followed by another, of this reader too: it is left alone.
        """
        if monotonic() < ends_at:
            returning = asyncio.create_task(self._give_back_ranges(ranges))
            self._returning.add(returning)
            returning.add_done_callback(self._returned)
        self.grant(count)

    def _returned(self, returning: asyncio.Task[None]) -> None:
        self._returning.discard(returning)
        if not returning.cancelled() and returning.exception() is not None:
            logger.info("Late messages rest until their claims run out: %r", returning.exception())

    async def _late_ones_returned(self) -> None:
        """Wait for what is on its way back: after a new claim of the same messages it would undo that."""
        while pending := [each for each in self._returning if not each.done()]:
            await asyncio.wait(pending)

    async def _deliver(self, batch: ClaimedBatch, claimed: "_Claimed", deadline: float) -> None:
        ranges = tuple(DeliveredRange(*each) for each in batch.ranges)
        count = sum(each.end - each.first for each in ranges)
        self.permits -= count
        delivery = QueueDelivery(
            self.segment_id, claimed.result.incarnation, batch.base_offset, ranges, batch.payload
        )
        on_late = partial(self._note_late, batch.ranges, count, claimed.at + self.lease_seconds)
        await self._context.deliver(Perishable(encode_queue_delivery(delivery), deadline, on_late))
        sampler.count_out(
            self._context.topic,
            self._context.subscription.incarnation,
            self.segment_id,
            messages=count,
            size=len(batch.payload),
        )


class _Claimed(NamedTuple):
    """A claim and when it began, by this node's clock: after all waiting, in line or for a thread."""

    at: float
    result: ClaimResult


def _claim_now(**arguments: Any) -> _Claimed:
    return _Claimed(monotonic(), queues.claim(**arguments))


async def _ended(work: asyncio.Future[_Claimed]) -> None:
    """Wait for its end, whichever that is, and however often the one who waits is cancelled."""
    while not work.done():
        with suppress(Exception, asyncio.CancelledError):
            await asyncio.shield(work)
