"""How many messages a subscription has still to receive, segment by segment, sealed ancestors included.

The cursors and ends of a whole topic are read in one statement of the data plane. Only entry buckets whose
owners stand at different offsets need a look into the batches between them, and that look is bounded.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import NamedTuple

from scalable.domain.backlogs import Wait, drained_segments, waits
from scalable.domain.cursors import cursor_names
from scalable.domain.errors import BatchInvalid
from scalable.domain.layout import Layout, Segment
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import CursorBacklog, SegmentKey, StoredBatch
from scalable.segments.registry import segment_port
from scalable.store import checkpoints
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView
from scalable.wire.batch import Record, decode_batch
from scalable.wire.bucket_batch import places

LOOK_BYTES = 16 * 1024 * 1024
"""How much is read of a topic to tell apart what the entry buckets of its segments have acknowledged."""
PAGE_BYTES = 4 * 1024 * 1024
PAGE_BATCHES = 1_000
WAITS_LIMIT = 20


class Standing(NamedTuple):
    """Where a cursor goes on, never below what is kept, and what is acknowledged above (`CursorState`)."""

    position: int
    acknowledged: tuple[tuple[int, int], ...] = ()

    @property
    def frontier(self) -> int:
        """Give the offset from which on nothing is acknowledged."""
        return max([self.position, *(end for _, end in self.acknowledged[-1:])])

    def lacks(self, offset: int) -> bool:
        """Tell whether the message of this offset is not acknowledged."""
        before = bisect_right(self.acknowledged, (offset, maxsize)) - 1
        return offset >= self.position and (before < 0 or offset >= self.acknowledged[before][1])


@dataclass(frozen=True, slots=True)
class SegmentBacklog:
    """What a subscription has in one segment: a cursor for each entry bucket, and what is not acknowledged.

    `standings` has where several cursors stand, and nothing for one alone. `exact` is False when its entry
    buckets stand too far apart to be counted: then `messages` is the most.
    """

    segment: Segment
    cursors: tuple[CursorBacklog, ...]
    messages: int
    standings: tuple[Standing, ...] = ()
    exact: bool = True

    @property
    def position(self) -> int:
        """Give the first offset that some entry bucket has not acknowledged, never below what is kept."""
        return min(positions_of(self.cursors))

    @property
    def start_offset(self) -> int:
        """Give the first offset that is kept."""
        return self.cursors[0].start_offset

    @property
    def end_offset(self) -> int:
        """Give the offset behind the last message."""
        return self.cursors[0].end_offset


@dataclass(frozen=True, slots=True)
class Backlog:
    """A subscription's backlog by segment id, and which segments wait for which."""

    segments: Mapping[int, SegmentBacklog]
    waits: Mapping[int, tuple[Wait, ...]]

    @property
    def messages(self) -> int:
        """Sum up what the subscription has still to receive."""
        return sum(each.messages for each in self.segments.values())

    @property
    def exact(self) -> bool:
        """Tell whether the sum is exact."""
        return all(each.exact for each in self.segments.values())

    @property
    def pending(self) -> dict[int, int]:
        """Give the number of messages of each segment."""
        return {key: each.messages for key, each in self.segments.items()}


def backlog_of(subscription: SubscriptionView, layout: Layout) -> Backlog:
    """Count one subscription's backlog."""
    found = segment_port().backlogs(incarnation=subscription.incarnation, subscription=subscription.name)
    return _backlog(subscription, layout, _by_place(found), _ended([subscription]))


def backlogs_of(topic: TopicView, subscriptions: Sequence[SubscriptionView]) -> list[Backlog]:
    """Count the backlogs of several subscriptions of a topic, in their order."""
    found, ended = _by_place(segment_port().backlogs(incarnation=topic.incarnation)), _ended(subscriptions)
    return [_backlog(subscription, topic.layout, found, ended) for subscription in subscriptions]


def _ended(subscriptions: Sequence[SubscriptionView]) -> Mapping[int, frozenset[int]]:
    """Give for each CHECKPOINT group the segments that it has read to the end."""
    groups = [each.subscription_id for each in subscriptions if each.type is SubscriptionType.CHECKPOINT]
    return checkpoints.ended(groups) if groups else {}


def _by_place(found: Sequence[CursorBacklog]) -> dict[tuple[int, str], CursorBacklog]:
    return {(each.segment_id, each.cursor): each for each in found}


def _backlog(
    subscription: SubscriptionView,
    layout: Layout,
    found: Mapping[tuple[int, str], CursorBacklog],
    ended: Mapping[int, frozenset[int]],
) -> Backlog:
    segments, look = {}, Look(LOOK_BYTES)
    for segment_id, segment in sorted(layout.segments.items()):
        names = cursor_names(subscription.name, subscription.key_shared, segment.entry_bucket_splits)
        cursors = tuple(found[segment_id, name] for name in names if (segment_id, name) in found)
        if len(cursors) == len(names):  # else its store is being made, or goes with its topic
            segments[segment_id] = _segment_backlog(subscription.incarnation, segment, cursors, look)
    pending = {key: each.messages for key, each in segments.items()}
    drained = drained_segments(layout, pending)
    if subscription.type is SubscriptionType.CHECKPOINT:  # its cursors only hold back pruning
        drained = ended.get(subscription.subscription_id, frozenset())
    ordered = subscription.type is not SubscriptionType.QUEUE
    waiting = waits(layout, pending, drained, limit=WAITS_LIMIT) if ordered else {}
    return Backlog(segments, {key: waiting[key] for key in waiting if key in pending and key not in drained})


def _segment_backlog(
    incarnation: int, segment: Segment, cursors: tuple[CursorBacklog, ...], look: "Look"
) -> SegmentBacklog:
    if len(cursors) == 1:
        return SegmentBacklog(segment, cursors, cursors[0].backlog)
    key = SegmentKey(incarnation, segment.segment_id)
    standings = tuple(_standing(key, each) for each in cursors)
    low, high = min(positions_of(cursors)), max(each.frontier for each in standings)
    count, at = max(0, cursors[0].end_offset - high), low
    for batch in look.batches(key, low, before=high):
        count += sum(offset < high for offset, _ in pending_in(batch, segment, standings))
        at = batch.base_offset + batch.count
    return SegmentBacklog(segment, cursors, count + max(0, high - at), standings, exact=at >= high)


def _standing(key: SegmentKey, cursor: CursorBacklog) -> Standing:
    (position,) = positions_of([cursor])
    state = segment_port().cursor(key, subscription=cursor.cursor) if cursor.acknowledged else None
    return Standing(position, () if state is None else state.acknowledged)


def positions_of(cursors: Sequence[CursorBacklog]) -> list[int]:
    """Give where the cursors of a segment go on, never below what is kept."""
    return [max(each.position, each.start_offset) for each in cursors]


def pending_in(
    batch: StoredBatch, segment: Segment, standings: Sequence[Standing]
) -> Iterator[tuple[int, Record | None]]:
    """Give the records of a batch that their own entry buckets have not acknowledged, with their offsets.

    One that cannot be read, for all its checksums, is another client's fault and delivered all the same: its
    messages have no record here, and count until every entry bucket has acknowledged them.
    """
    try:
        records: Sequence[Record | None] = decode_batch(batch.payload)
        asked: list[tuple[Standing, ...]] = [(each,) for each in _standings_of(batch, segment, standings)]
    except BatchInvalid:
        records, asked = [None] * batch.count, [tuple(standings)] * batch.count
    for offset, (record, whose) in enumerate(zip(records, asked, strict=True), batch.base_offset):
        if any(each.lacks(offset) for each in whose):
            yield offset, record


def _standings_of(batch: StoredBatch, segment: Segment, standings: Sequence[Standing]) -> Sequence[Standing]:
    """Give for each record of a batch where its entry bucket stands; raises BatchInvalid."""
    if len(standings) == 1:
        return [standings[0]] * batch.count
    found = places(batch.payload, base_offset=batch.base_offset)
    return [standings[bisect_right(segment.entry_bucket_splits, place)] for place in found]


class Look:
    """A bounded look into stored batches: after about `max_bytes` it sees no more."""

    def __init__(
        self, max_bytes: int, *, page_bytes: int = PAGE_BYTES, page_batches: int = PAGE_BATCHES
    ) -> None:
        self.left_bytes = max_bytes
        self._page_bytes, self._page_batches = page_bytes, page_batches

    def batches(self, key: SegmentKey, offset: int, *, before: int) -> Iterator[StoredBatch]:
        """Give the batches that hold messages from an offset on and below another one, page by page."""
        while offset < before and self.left_bytes > 0:
            size = min(self._page_bytes, self.left_bytes)
            page = segment_port().read(key, offset=offset, max_bytes=size, max_batches=self._page_batches)
            if not page.batches:
                return
            for batch in page.batches:
                if batch.base_offset >= before:
                    return
                self.left_bytes -= len(batch.payload)
                yield batch
            offset = page.next_offset
