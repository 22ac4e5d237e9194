"""An entry bucket while one consumer owns it: its offsets have gaps; messages are acknowledged singly too.

Between two messages of a bucket lie those of others. An acknowledgement covers the offsets of others before
its message, and once all that came is done with, everything up to where the bucket has been looked through:
so that the positions of all buckets reach the end of the segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from scalable.client.inbox import Message, OwnedSegment, messages_of
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.wire.bucket_batch import decode_cut
from scalable.wire.consume_frames import MAX_ACK_RANGES
from scalable.wire.frames import Ack, Acked, AssignedSegment, Delivery

Range = tuple[int, int]


class OwnedBucket(OwnedSegment):
    """One entry bucket; `acknowledged` is a position below which nothing is left to do."""

    def __init__(self, assigned: AssignedSegment) -> None:
        super().__init__(assigned)
        self._range = HashRange(assigned.bucket_start, assigned.bucket_end)
        self._reached = assigned.position
        self._covers: deque[int] = deque()
        """For each message that waits, the first offset that its acknowledgement covers."""
        self._out: dict[int, int] = {}
        """The same by offset, for the messages that the application has and did not acknowledge."""
        self._singles: dict[int, int] = {}
        """The same for those acknowledged singly, until they are durable."""
        self._unsent: dict[int, int] = {}
        self._done: list[Range] = []
        """What a former owner acknowledged singly above what was received here."""

    @property
    def unacknowledged(self) -> bool:
        """Tell whether there are acknowledgements of the application that are not durable yet."""
        return super().unacknowledged or bool(self._singles)

    def deliver(self, delivery: Delivery, topic: TopicName) -> None:
        """Queue the records of this bucket that were not received before and are not done with."""
        batch = decode_cut(delivery.batch, self._range, base_offset=delivery.base_offset)
        self.owed_permits += batch.count
        if self.has_gap:
            return
        start = max(delivery.first_offset, self.received)
        kept = [
            (position, record)
            for position, record in batch.records
            if delivery.base_offset + position >= start and not self._is_done(delivery.base_offset + position)
        ]
        self.owed_permits -= len(kept)
        for position, _ in kept:
            self._covers.append(self._reached)
            self._reached = delivery.base_offset + position + 1
        self.waiting.extend(messages_of(delivery, topic, batch.header.published_at_ms, kept))
        self.skip_to(delivery.base_offset + batch.header.count)

    def _is_done(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self._done)

    def skip_to(self, position: int) -> None:
        """Note that everything for this bucket below a position is here."""
        if not self.has_gap:
            self.received = max(self.received, position)
            self._settle()

    def end_at(self, end_offset: int) -> None:
        """Note where the segment ends: up to there everything for this bucket is here."""
        self.skip_to(end_offset)

    def hand_out(self) -> Message | None:
        """Give the next message that waits."""
        message = super().hand_out()
        if message is not None:
            self._out[message.message_id.offset] = self._covers.popleft()
        return message

    def release(self) -> None:
        """Begin to give the bucket up: what the application did not get goes to the next owner."""
        super().release()
        self._covers.clear()
        self._reached = self.handed_out

    # Acknowledgements

    def acknowledge(self, position: int) -> None:
        """Note that the application is done with all that it has below the position."""
        while self._out and (offset := next(iter(self._out))) < position:
            del self._out[offset]
        self._settle()

    def acknowledge_single(self, offset: int) -> None:
        """Note that the application is done with one message; again is fine."""
        covers = self._out.pop(offset, None)
        if covers is not None:
            self._singles[offset] = self._unsent[offset] = covers
            self._settle()

    def _settle(self) -> None:
        if self._out:
            floor = next(iter(self._out.values()))
        elif self._covers:
            floor = self._covers[0]
        else:
            floor = self.handed_out = self.received
        self.acknowledged = max(self.acknowledged, floor)

    def next_ack(self) -> Ack | None:
        """Give the acknowledgement to send now, if there is one: a position, and what is done above it."""
        ranges: list[Range] = []
        while self._unsent and len(ranges) < MAX_ACK_RANGES:
            offset, first = self._unsent.popitem()
            if offset >= self.acknowledged:
                ranges.append((max(first, self.acknowledged), offset + 1))
        if self.acknowledged <= self.sent and not ranges:
            return None
        self.sent = self.acknowledged
        segment_id, bucket = self.key
        return Ack(
            segment_id=segment_id,
            generation=self.generation,
            position=self.sent,
            bucket=bucket,
            ranges=sorted(ranges),
        )

    def on_acked(self, acked: Acked) -> None:
        """Note what is durable, also what a former owner acknowledged singly."""
        super().on_acked(acked)
        durable = (*acked.ranges, (0, acked.position))
        self._singles = {
            offset: first for offset, first in self._singles.items() if not _within(offset, durable)
        }
        self._done = [one for one in {*self._done, *acked.ranges} if one[1] > self.received]

    def acknowledge_again(self) -> None:
        """Forget what was sent and is not durable, singly too."""
        super().acknowledge_again()
        self._unsent = dict(self._singles)


def _within(offset: int, ranges: Iterable[Range]) -> bool:
    return any(first <= offset < end for first, end in ranges)
