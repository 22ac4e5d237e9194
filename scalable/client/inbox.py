"""What a consumer owns, has received, handed out and acknowledged: pure, so that all can be tried."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from scalable.client.batches import MessageId
from scalable.client.places import place_named
from scalable.client.prefetch import permits_due
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey
from scalable.wire.batch import Record, decode_batch, decode_header
from scalable.wire.frames import Ack, Acked, AssignedSegment, Assignment, Delivery


@dataclass(frozen=True, slots=True)
class Message:
    """One delivered message; times are in milliseconds since 1970, an `event_time_ms` of 0 was not set."""

    topic: TopicName
    key: str | None
    value: bytes
    message_id: MessageId
    published_at_ms: int
    event_time_ms: int
    properties: Mapping[str, str]
    generation: int
    """Which ownership of the segment delivered it; an acknowledgement counts for this one alone."""
    bucket: int = 0
    """The entry bucket that delivered it on a key-shared subscription."""


class OwnedSegment:
    """One segment, or entry bucket (`bucket_inbox`), while this consumer owns it.

    Positions name the first offset that is not yet received, handed out, acknowledged by the application,
    sent to the server, or durable there.
    """

    def __init__(self, assigned: AssignedSegment) -> None:
        self.assigned = assigned
        self.received = self.handed_out = self.acknowledged = self.sent = assigned.position
        self.durable = assigned.position
        self.waiting: deque[Message] = deque()
        self.attached = self.detaching = self.refused = False
        self.releasing = False
        self.has_gap = False
        """What this attachment had delivered was dropped: nothing more is taken of it, it must be renewed."""
        self.owed_permits = self._granted = 0
        self.end_offset: int | None = None
        """Where the segment ends, once all that is left of it was received."""

    @property
    def key(self) -> BucketKey:
        """Tell this apart from all others that the consumer owns."""
        return BucketKey(self.assigned.segment_id, self.assigned.bucket)

    @property
    def segment_id(self) -> int:
        """Give the segment's id."""
        return self.assigned.segment_id

    @property
    def generation(self) -> int:
        """Give the generation of this ownership."""
        return self.assigned.generation

    @property
    def may_be_released(self) -> bool:
        """Tell whether all that the application got is durably acknowledged and nothing more can come."""
        return self.releasing and not self.attached and self.durable >= self.handed_out

    @property
    def begin_at(self) -> int | None:
        """Name the position from which a socket delivers; None for the cursor's."""
        return None

    @property
    def unacknowledged(self) -> bool:
        """Tell whether there are acknowledgements of the application that are not durable yet."""
        return self.durable < self.acknowledged

    def deliver(self, delivery: Delivery, topic: TopicName) -> None:
        """Queue what was not received before."""
        header = decode_header(delivery.batch)
        start = max(delivery.first_offset, self.received)
        end = delivery.base_offset + header.count
        kept = 0 if self.has_gap else max(0, end - start)
        # Permits are given back for what is not kept too, else the flow would dry up.
        self.owed_permits += max(0, end - max(delivery.first_offset, delivery.base_offset)) - kept
        if kept:
            first = start - delivery.base_offset
            records = islice(enumerate(decode_batch(delivery.batch)), first, None)
            self.waiting.extend(messages_of(delivery, topic, header.published_at_ms, records))
            self.received = end

    def hand_out(self) -> Message | None:
        """Give the next message that waits."""
        if not self.waiting:
            return None
        message = self.waiting.popleft()
        self.handed_out = message.message_id.offset + 1
        self.owed_permits += 1
        return message

    def first_permits(self, prefetch: int) -> int:
        """Give the permits to attach with, so that so many messages may wait here."""
        permits = max(1, prefetch - len(self.waiting))
        self._granted, self.owed_permits = permits + len(self.waiting), 0
        return permits

    def take_permits(self, prefetch: int) -> int:
        """Give the permits to grant now; 0 until half of what may wait is used up."""
        permits = permits_due(prefetch, self._granted - self.owed_permits)
        if permits:
            self._granted, self.owed_permits = prefetch, 0
        return permits

    def skip_to(self, position: int) -> None:
        """Note that nothing else is there below a position; a whole segment has no gaps."""

    def end_at(self, end_offset: int) -> None:
        """Note where the segment ends; what did not come before that is gone, for trimming was faster."""
        if not self.has_gap:
            self.received = max(self.received, end_offset)
            self.end_offset = end_offset
            self._pass_end()

    def _pass_end(self) -> None:
        """Be done with what is gone once the application is done with all that came."""
        if self.end_offset is not None and not self.waiting and self.acknowledged >= self.handed_out:
            self.handed_out = self.acknowledged = max(self.acknowledged, self.end_offset)

    def acknowledge(self, position: int) -> None:
        """Note that the application is done with everything below the position."""
        self.acknowledged = max(self.acknowledged, min(position, self.handed_out))
        self._pass_end()

    def next_ack(self) -> Ack | None:
        """Give the acknowledgement to send now, if there is one."""
        if self.acknowledged <= self.sent:
            return None
        self.sent = self.acknowledged
        return Ack(segment_id=self.segment_id, generation=self.generation, position=self.sent)

    def on_acked(self, acked: Acked) -> None:
        """Note how far the server's cursor stands durably."""
        self.durable = max(self.durable, acked.position)

    def release(self) -> None:
        """Begin to give the segment up: what the application did not get goes to the next owner."""
        self.releasing = True
        self.has_gap = self.attached
        self.waiting.clear()
        # Should the hand-over be called off, what was dropped here comes again with a new attachment.
        self.received, self.end_offset = self.handed_out, None

    def end_attachment(self) -> None:
        """Note that nothing more comes until the next attachment."""
        self.attached = self.detaching = self.has_gap = False

    def lose_connection(self) -> None:
        """Forget what only the lost socket knew; the server delivers again from the durable position."""
        self.end_attachment()
        self.refused = False
        self.owed_permits = 0
        self.acknowledge_again()

    def suspend(self) -> None:
        """Note that the server refused something: the attachment is to be renewed, acknowledgements too.

        It may still deliver until it hears of that.
        """
        self.refused, self.has_gap = True, self.attached
        self.acknowledge_again()

    def acknowledge_again(self) -> None:
        """Forget what was sent and is not durable."""
        self.sent = self.durable


def messages_of(
    delivery: Delivery, topic: TopicName, published_at_ms: int, records: Iterable[tuple[int, Record]]
) -> list[Message]:
    """Make messages of (position in the batch, record)."""
    return [
        Message(
            topic=topic,
            key=record.key,
            value=record.value,
            message_id=MessageId(delivery.segment_id, delivery.base_offset + index, index),
            published_at_ms=published_at_ms,
            event_time_ms=record.event_time_ms,
            properties=record.properties,
            generation=delivery.generation,
            bucket=delivery.bucket,
        )
        for index, record in records
    ]


class Inbox:
    """What one consumer owns, by segment and bucket, and the messages that wait for the application."""

    def __init__(
        self, topic: TopicName, owning: Callable[[AssignedSegment], OwnedSegment] = OwnedSegment
    ) -> None:
        self._topic, self._owning = topic, owning
        self._order: tuple[int, int, int] = (-1, -1, -1)
        self.restored = 0
        self._turns: OrderedDict[BucketKey, OwnedSegment] = OrderedDict()
        """What has messages that wait, in the order in which it is looked at next."""
        self._done_with: dict[BucketKey, OwnedSegment] = {}
        self.owned: dict[BucketKey, OwnedSegment] = {}
        self.standby = False

    def apply(self, assignment: Assignment) -> bool:
        """Take a newer assignment over; an older one changes nothing and gives False."""
        order = (assignment.term, assignment.generation, assignment.epoch)
        if order < self._order:
            return False
        self._order, self.standby = order, assignment.standby
        self.restored = assignment.restored
        named = {BucketKey(segment.segment_id, segment.bucket) for segment in assignment.segments}
        releasing = {BucketKey(*key) for key in assignment.releasing}
        for key in self.owned.keys() - named - releasing:
            self.forget(key)
        for segment in assignment.segments:
            self._own(segment)
        for key in releasing & self.owned.keys():
            self.owned[key].release()
            self.note(self.owned[key])
        return True

    @property
    def generation(self) -> int:
        """Give the generation of the assignment that is followed."""
        return self._order[1]

    def _own(self, segment: AssignedSegment) -> None:
        key = BucketKey(segment.segment_id, segment.bucket)
        held = self.owned.get(key)
        if held is None or held.generation != segment.generation:
            self.forget(key)
            self.owned[key] = self._owning(segment)
        else:
            if held.assigned.url != segment.url:
                held.lose_connection()
            held.assigned = segment
            # A hand-over that was called off: deliveries go on, over a new attachment.
            held.releasing = held.refused = False

    def forget(self, key: BucketKey) -> None:
        """Drop what has another owner, with what waits of it."""
        if self.owned.pop(key, None) is not None:
            self._turns.pop(key, None)
            self._done_with.pop(key, None)

    def drop(self, held: OwnedSegment) -> None:
        """Drop what was given up; a later ownership of the same, which came meanwhile, stays."""
        if self.owned.get(held.key) is held:
            self.forget(held.key)

    def note(self, held: OwnedSegment) -> None:
        """Look whether something may be released by now; called after what could have brought that about."""
        if held.may_be_released and self.owned.get(held.key) is held:
            self._done_with[held.key] = held

    def take_released(self) -> list[OwnedSegment]:
        """Drop what may be released, and give it: what it costs does not depend on all that is owned."""
        done_with, self._done_with = self._done_with, {}
        released = [held for held in done_with.values() if held.may_be_released]
        for held in released:
            self.forget(held.key)
        return released

    # Messages

    def deliver(self, delivery: Delivery) -> None:
        """Queue what was not received before; deliveries of a former ownership are dropped."""
        held = self.owned.get(BucketKey(delivery.segment_id, delivery.bucket))
        if held is not None and held.generation == delivery.generation:
            with place_named(delivery.segment_id, delivery.base_offset):
                held.deliver(delivery, self._topic)
            if held.waiting:
                self._turns.setdefault(held.key, held)

    def next_message(self) -> Message | None:
        """Hand out a message, from another segment each time; None when nothing waits."""
        while self._turns:
            key, held = self._turns.popitem(last=False)
            message = held.hand_out()
            if held.waiting:
                self._turns[key] = held
            if message is not None:
                return message
        return None

    @property
    def waiting_count(self) -> int:
        """Count the messages that wait for the application."""
        return sum(len(held.waiting) for held in self.owned.values())

    # Acknowledgements

    def positions(self) -> dict[int, int]:
        """Give, by segment, the position behind the last message that was handed out."""
        return {held.segment_id: held.handed_out for held in self.owned.values()}

    def acknowledge(
        self, segment_id: int, position: int, *, generation: int | None = None, bucket: int = 0
    ) -> bool:
        """Note that everything below the position is processed; False when another owns the segment."""
        held = self.owned.get(BucketKey(segment_id, bucket))
        if held is None or (generation is not None and held.generation != generation):
            return False
        held.acknowledge(position)
        return True

    @property
    def unacknowledged(self) -> list[OwnedSegment]:
        """Give what has acknowledgements of the application that are not durable yet."""
        return [held for held in self.owned.values() if held.unacknowledged]
