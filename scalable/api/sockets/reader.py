"""Delivers one segment, or entry bucket, to one consumer: as long as there are permits, up to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from scalable.api.node import node
from scalable.api.sampler import sampler
from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey
from scalable.segments.port import ReadResult, StoredBatch
from scalable.services import messages, subscriptions
from scalable.services.subscriptions import ReadingRight
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.bucket_batch import cut_batch
from scalable.wire.frames import Acked, Delivery, EndOfSegment, Frame, Skipped, encode, encode_delivery

PAGE_BYTES = 1024 * 1024
PAGE_BATCHES = 64
SKIPPED_SECONDS = 1.0
"""How often at most an entry bucket without messages of its own is told how far the segment has come."""


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What all readers of a socket share; `pages` bounds how many pages they hold in memory at once."""

    topic: TopicName
    subscription: SubscriptionView
    consumer: str
    pages: asyncio.Semaphore
    deliver: Callable[[str | bytes], Awaitable[None]]
    owned: Callable[[BucketKey, int], None]
    """Called with a segment or bucket and the generation under which the consumer proved to own it."""


class SegmentReader:
    """One attached segment, or entry bucket where keys are shared; `position` names where to begin, if given.

    A batch is delivered whole as soon as one permit is left, so that the permits may go below zero by less
    than a batch; `flow` brings them back. For a bucket only the batches, and of these only the sub-blocks,
    with records for it are delivered; a delivery costs as many permits as these hold records.
    """

    def __init__(
        self, context: ReaderContext, *, key: BucketKey, generation: int, position: int | None = None
    ) -> None:
        self.key = key
        self.generation = generation
        self.permits = 0
        self.task: asyncio.Task[None] | None = None
        self._context = context
        self._bucket_range: HashRange | None = None
        self._start = position
        self._offset = self._told = 0
        self._told_at = 0.0
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
        """Deliver up to the segment's end.

        Raises SegmentNotOwned, GenerationSuperseded, PositionInvalid, TopicDeleted.
        """
        await self._begin()
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
                    await self._wait_for_append()
        segment_id, bucket = self.key
        end_offset, generation = page.end_offset, self.generation
        await self._send(
            EndOfSegment(segment_id=segment_id, end_offset=end_offset, bucket=bucket, generation=generation)
        )

    async def _begin(self) -> None:
        async with self._context.pages:  # many begin at once, and each would wait for a thread
            right = await self._reading_right()
        self._context.owned(self.key, self.generation)
        self._bucket_range = right.bucket_range
        self._offset = self._told = right.position if self._start is None else self._start
        if right.bucket_range is not None:
            segment_id, bucket = self.key
            ranges = list(right.acknowledged)
            await self._send(
                Acked(
                    segment_id=segment_id,
                    bucket=bucket,
                    position=right.position,
                    ranges=ranges,
                    generation=self.generation,
                )
            )

    async def _reading_right(self) -> ReadingRight:
        return await node.call(
            subscriptions.reading_right,
            subscription=self._context.subscription,
            consumer=self._context.consumer,
            segment_id=self.key.segment_id,
            generation=self.generation,
            bucket=self.key.bucket,
            begin_at=self._start,
        )

    async def _wait_for_append(self) -> None:
        """Wait; meanwhile tell, now and then, that there was nothing for this bucket up to here."""
        if self._bucket_range is not None and self._offset > self._told:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._told_at + SKIPPED_SECONDS - monotonic()):
                    await self._appended.wait()
                    return
            self._told, self._told_at = self._offset, monotonic()
            segment_id, bucket = self.key
            await self._send(
                Skipped(
                    segment_id=segment_id,
                    bucket=bucket,
                    position=self._offset,
                    generation=self.generation,
                )
            )
        await self._appended.wait()

    async def _wait_for_permits(self) -> None:
        while self.permits <= 0:
            self._permitted.clear()
            await self._permitted.wait()

    async def _read(self) -> ReadResult:
        return await node.call(
            messages.read,
            name=self._context.topic,
            incarnation=self._context.subscription.incarnation,
            segment_id=self.key.segment_id,
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
        payload, count = batch.payload, end - first
        if self._bucket_range is not None:
            payload, count = _cut(batch, self._bucket_range)
        if count:
            segment_id, bucket = self.key
            delivery = Delivery(segment_id, self.generation, batch.base_offset, first, payload, bucket)
            await self._context.deliver(encode_delivery(delivery))
            self.permits -= count
            self._told, self._batch_messages = end, count
            self._count_out(count, len(payload))
        self._offset = end

    def _count_out(self, messages: int, size: int) -> None:
        incarnation = self._context.subscription.incarnation
        sampler.count_out(self._context.topic, incarnation, self.key.segment_id, messages=messages, size=size)

    async def _send(self, frame: Frame) -> None:
        await self._context.deliver(encode(frame))


def _cut(batch: StoredBatch, bucket_range: HashRange) -> tuple[bytes, int]:
    """Give what of a batch is delivered to a bucket, and what it costs.

    One with a header that cannot be read is delivered whole: its consumer meets it and ends with the reason.
    """
    try:
        cut = cut_batch(batch.payload, bucket_range, base_offset=batch.base_offset)
    except BatchInvalid:
        return batch.payload, batch.count
    return (b"", 0) if cut is None else (cut.payload, cut.count)
