"""A look at the messages that a subscription would receive next; nothing is moved, and little is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from scalable.domain.backlogs import next_messages
from scalable.domain.errors import SubscriptionNotFound
from scalable.domain.names import TopicName, validate_part
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.backlogs import Look, SegmentBacklog, Standing, backlog_of, pending_in
from scalable.store import subscriptions as store
from scalable.store import topics
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.batch import Record, decode_header

LOOK_BYTES = 32 * 1024 * 1024
"""How much is read at most, whatever is asked for."""
PAGE_BYTES = 256 * 1024
VALUE_BYTES = 4_096
"""How much of each value is given."""


class PeekedMessage(NamedTuple):
    """A message and where it lies; a `deliver_at_ms` of 0 is unset."""

    segment_id: int
    offset: int
    record: Record
    published_at_ms: int
    deliver_at_ms: int

    @property
    def value(self) -> bytes:
        """Give the beginning of the value."""
        return self.record.value[:VALUE_BYTES]

    @property
    def size_bytes(self) -> int:
        """Give the length of the whole value."""
        return len(self.record.value)

    @property
    def truncated(self) -> bool:
        """Tell whether there is more of the value."""
        return self.size_bytes > VALUE_BYTES


@dataclass(frozen=True, slots=True)
class Peeked:
    """The next messages; not `complete` when the look ended before it had found as many as there are."""

    messages: tuple[PeekedMessage, ...]
    complete: bool


def peek(*, name: TopicName, subscription: str, count: int) -> Peeked:
    """Give the next `count` messages, ancestors first, with those that are out for delivery.

    Raises TopicNotFound, InvalidName, SubscriptionNotFound.
    """
    validate_part(subscription, "subscription")
    topic = topics.read(name)
    found = store.find(topic.incarnation, subscription)
    if found is None:
        raise SubscriptionNotFound(subscription=subscription)
    backlog = backlog_of(found, topic.layout)
    wanted = next_messages(topic.layout, backlog.pending, count)
    look = Look(LOOK_BYTES, page_bytes=PAGE_BYTES, page_batches=max(wanted.values(), default=1))
    messages = [
        message
        for segment_id, share in wanted.items()
        for message in islice(_messages(found, backlog.segments[segment_id], look), share)
    ]
    return Peeked(tuple(messages), complete=len(messages) >= sum(wanted.values()))


def _messages(subscription: SubscriptionView, one: SegmentBacklog, look: Look) -> Iterator[PeekedMessage]:
    key = SegmentKey(subscription.incarnation, one.segment.segment_id)
    standings = one.standings or (Standing(one.position),)
    for begin, end in _gaps(key, subscription, one):
        for batch in look.batches(key, begin, before=end):
            found = [
                (offset, record)
                for offset, record in pending_in(batch, one.segment, standings)
                if record is not None and begin <= offset < end
            ]
            if found:  # else even the header may be one that nobody can read
                header = decode_header(batch.payload)
                for offset, record in found:
                    yield PeekedMessage(
                        key.segment_id, offset, record, header.published_at_ms, header.deliver_at_ms
                    )


def _gaps(key: SegmentKey, subscription: SubscriptionView, one: SegmentBacklog) -> Sequence[tuple[int, int]]:
    """Give the ranges of offsets that are not acknowledged one by one."""
    state = None
    if one.cursors[0].acknowledged and len(one.cursors) == 1:
        state = segment_port().cursor(key, subscription=subscription.name)
    begin, gaps = one.position, []
    for first, behind in () if state is None else sorted(state.acknowledged):
        if first > begin:
            gaps.append((begin, first))
        begin = max(begin, behind)
    return [*gaps, (begin, one.end_offset)]
