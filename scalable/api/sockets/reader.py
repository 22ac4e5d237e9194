"""Delivers one segment to one consumer: as long as there are permits, up to the segment's end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from scalable.api.node import node
from scalable.api.sampler import sampler
from scalable.domain.names import TopicName
from scalable.segments.port import ReadResult, StoredBatch
from scalable.services import messages, subscriptions
from scalable.services.subscriptions import ReadingRight
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import Delivery, EndOfSegment, Frame, encode, encode_delivery

PAGE_BYTES = 1024 * 1024
PAGE_BATCHES = 64


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What all readers of a socket share; `pages` bounds how many pages they hold in memory at once."""

    topic: TopicName
    subscription: SubscriptionView
    consumer: str
    pages: asyncio.Semaphore
    deliver: Callable[[str | bytes], Awaitable[None]]


class SegmentReader:
    """One attached segment.

    A batch is delivered whole as soon as one permit is left, so that the permits may go below zero by less
    than a batch; `flow` brings them back.
    """

    def __init__(self, context: ReaderContext, *, segment_id: int, generation: int, permits: int) -> None:
        self.segment_id = segment_id
        self.generation = generation
        self.permits = permits
        self.task: asyncio.Task[None] | None = None
        self._context = context
        self._offset = 0
        self._batch_messages = 1
        self._appended = asyncio.Event()
        self._permitted = asyncio.Event()

    def grant(self, permits: int) -> None:
        """Allow so many more messages."""
        self.permits += permits
        if self.permits > 0:
            self._permitted.set()

    def wake(self) -> None:
        """Read again: something was appended, the segment was sealed, or nobody knows."""
        self._appended.set()

    async def run(self) -> None:
        """Deliver up to the segment's end; raises SegmentNotOwned, GenerationSuperseded, TopicDeleted."""
        self._offset = (await self._reading_right()).position
        while True:
            await self._wait_for_permits()
            self._appended.clear()
            async with self._context.pages:
                page = await self._read()
                await self._deliver(page)
            if self._offset >= page.next_offset:
                if page.at_end:
                    break
                if page.next_offset >= page.end_offset:
                    await self._appended.wait()
        await self._send(EndOfSegment(segment_id=self.segment_id, end_offset=page.end_offset))

    async def _reading_right(self) -> ReadingRight:
        return await node.call(
            subscriptions.reading_right,
            subscription=self._context.subscription,
            consumer=self._context.consumer,
            segment_id=self.segment_id,
            generation=self.generation,
        )

    async def _wait_for_permits(self) -> None:
        while self.permits <= 0:
            self._permitted.clear()
            await self._permitted.wait()

    async def _read(self) -> ReadResult:
        return await node.call(
            messages.read,
            name=self._context.topic,
            incarnation=self._context.subscription.incarnation,
            segment_id=self.segment_id,
            offset=self._offset,
            max_bytes=PAGE_BYTES,
            max_batches=min(PAGE_BATCHES, self.permits // self._batch_messages + 1),
        )

    async def _deliver(self, page: ReadResult) -> None:
        """Deliver the page as far as the permits go; what is left of it is read again."""
        for batch in page.batches:
            if self.permits <= 0:
                return
            await self._deliver_batch(batch)
        self._offset = page.next_offset

    async def _deliver_batch(self, batch: StoredBatch) -> None:
        first, end = max(self._offset, batch.base_offset), batch.base_offset + batch.count
        delivery = Delivery(self.segment_id, self.generation, batch.base_offset, first, batch.payload)
        await self._context.deliver(encode_delivery(delivery))
        self.permits -= end - first
        self._offset, self._batch_messages = end, batch.count
        sampler.count_out(
            self._context.topic,
            self._context.subscription.incarnation,
            self.segment_id,
            messages=end - first,
            size=len(batch.payload),
        )

    async def _send(self, frame: Frame) -> None:
        await self._context.deliver(encode(frame))
