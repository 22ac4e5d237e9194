"""What a consumer owns, has received, handed out and acknowledged: pure, so that all can be tried."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from scalable.client.batches import MessageId
from scalable.domain.names import TopicName
from scalable.wire.batch import decode_batch, decode_header
from scalable.wire.frames import AssignedSegment, Assignment, Delivery


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


class OwnedSegment:
    """One segment while this consumer owns it.

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
        self.owed_permits = 0

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

    def release(self) -> None:
        """Begin to give the segment up: what the application did not get goes to the next owner."""
        self.releasing = True
        self.waiting.clear()
        # Should the hand-over be called off, what was dropped here must be taken from the next delivery.
        self.received = self.handed_out

    def lose_connection(self) -> None:
        """Forget what only the lost socket knew; the server delivers again from the durable position."""
        self.attached = self.detaching = self.refused = False
        self.owed_permits = 0
        self.sent = self.durable


class Inbox:
    """The segments of one consumer, and the messages that wait for the application."""

    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._order: tuple[int, int, int] = (-1, -1, -1)
        self._turns: deque[int] = deque()
        self.owned: dict[int, OwnedSegment] = {}
        self.standby = False

    def apply(self, assignment: Assignment) -> bool:
        """Take a newer assignment over; an older one changes nothing and gives False."""
        order = (assignment.term, assignment.generation, assignment.epoch)
        if order < self._order:
            return False
        self._order, self.standby = order, assignment.standby
        named = {segment.segment_id: segment for segment in assignment.segments}
        releasing = [segment_id for segment_id, _ in assignment.releasing]
        for segment_id in [key for key in self.owned if key not in named and key not in releasing]:
            self.forget(segment_id)
        for segment in named.values():
            self._own(segment)
        for segment_id in releasing:
            if segment_id in self.owned:
                self.owned[segment_id].release()
        return True

    def _own(self, segment: AssignedSegment) -> None:
        held = self.owned.get(segment.segment_id)
        if held is None or held.generation != segment.generation:
            self.forget(segment.segment_id)
            self.owned[segment.segment_id] = OwnedSegment(segment)
            self._turns.append(segment.segment_id)
        else:
            if held.assigned.url != segment.url:
                held.lose_connection()
            held.assigned = segment
            # A hand-over that was called off: deliveries go on.
            held.releasing = held.refused = False

    def forget(self, segment_id: int) -> None:
        """Drop a segment that has another owner, with what waits of it."""
        if self.owned.pop(segment_id, None) is not None:
            self._turns.remove(segment_id)

    # Messages

    def deliver(self, delivery: Delivery) -> None:
        """Queue what was not received before; deliveries of a former ownership are dropped."""
        held = self.owned.get(delivery.segment_id)
        if held is None or held.generation != delivery.generation:
            return
        count = decode_header(delivery.batch).count
        start = max(delivery.first_offset, held.received)
        end = delivery.base_offset + count
        # What comes while detaching has a gap before it, if the release that asked for it was called off.
        kept = 0 if held.releasing or held.detaching else max(0, end - start)
        # Permits are given back for what is not kept too, else the flow would dry up.
        held.owed_permits += max(0, end - max(delivery.first_offset, delivery.base_offset)) - kept
        if kept:
            held.waiting.extend(self._messages(delivery, start - delivery.base_offset))
            held.received = end

    def _messages(self, delivery: Delivery, first_index: int) -> list[Message]:
        published_at_ms = decode_header(delivery.batch).published_at_ms
        return [
            Message(
                topic=self._topic,
                key=record.key,
                value=record.value,
                message_id=MessageId(delivery.segment_id, delivery.base_offset + index, index),
                published_at_ms=published_at_ms,
                event_time_ms=record.event_time_ms,
                properties=record.properties,
                generation=delivery.generation,
            )
            for index, record in enumerate(decode_batch(delivery.batch))
            if index >= first_index
        ]

    def next_message(self) -> Message | None:
        """Hand out a message, from another segment each time; None when nothing waits."""
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            held = self.owned[self._turns[-1]]
            if held.waiting:
                message = held.waiting.popleft()
                held.handed_out = message.message_id.offset + 1
                held.owed_permits += 1
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

    def acknowledge(self, segment_id: int, position: int, *, generation: int | None = None) -> bool:
        """Note that everything below the position is processed; False when another owns the segment."""
        held = self.owned.get(segment_id)
        if held is None or (generation is not None and held.generation != generation):
            return False
        held.acknowledged = max(held.acknowledged, min(position, held.handed_out))
        return True

    def on_acked(self, segment_id: int, position: int) -> None:
        """Note how far the server's cursor stands durably."""
        held = self.owned.get(segment_id)
        if held is not None:
            held.durable = max(held.durable, position)

    @property
    def unacknowledged(self) -> list[OwnedSegment]:
        """Give the segments with acknowledgements of the application that are not durable yet."""
        return [held for held in self.owned.values() if held.durable < held.acknowledged]
