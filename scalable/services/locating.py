"""Where the messages of a key are, or were at a time, and how the segments of a topic came of one another."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalable.domain.keyspace import bucket_hash, segment_hash
from scalable.domain.layout import Segment
from scalable.domain.names import TopicName
from scalable.services.backlogs import Backlog, SegmentBacklog, backlogs_of
from scalable.store import history, subscriptions, topics
from scalable.store.history import PastSegment
from scalable.store.subscriptions import SubscriptionView

LINEAGE_LIMIT = 1_000
"""So many segments of a key's line are told, the newest."""

Known = Segment | PastSegment


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a subscription is with one segment of a key's line, and which consumer owns the key's part."""

    segment_id: int
    position: int
    end_offset: int
    messages: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class Located:
    """A key's place: the segment that holds it (None before the topic was), and all that did, oldest first.

    `bucket` is the entry bucket of the key in that segment, None once it is pruned.
    """

    epoch: int
    hash32: int
    segment: Known | None
    bucket: int | None
    line: tuple[Known, ...]
    readings: tuple[tuple[SubscriptionView, tuple[Reading, ...]], ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """All segments that are kept and a page of those that were pruned, by id; how many are remembered."""

    epoch: int
    segments: tuple[Known, ...]
    pruned_total: int

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Parent and child, of those that are told."""
        told = {segment.segment_id for segment in self.segments}
        return [
            (segment.segment_id, child)
            for segment in self.segments
            for child in segment.child_ids
            if child in told
        ]


def locate(*, name: TopicName, hash32: int, at_time_ms: int | None = None) -> Located:
    """Find the segment of a key by its hash, now or at a time; raises TopicNotFound."""
    topic, hash16 = topics.read(name), segment_hash(hash32)
    kept = [one for one in topic.layout.segments.values() if one.hash_range.contains(hash16)]
    past = history.holding(topic.incarnation, hash16, limit=LINEAGE_LIMIT)
    held: list[Known] = [*past, *kept]
    line = sorted(held, key=_age)[-LINEAGE_LIMIT:]
    segment = _at(line, at_time_ms)
    bucket = _bucket(segment, hash32) if isinstance(segment, Segment) else None
    found = subscriptions.of_topic(topic.incarnation)
    owners = history.owners(topic.incarnation, [one.segment_id for one in kept])
    readings = tuple(
        (subscription, _readings(subscription, backlog, hash32, line, owners))
        for subscription, backlog in zip(found, backlogs_of(topic, found), strict=True)
    )
    return Located(topic.epoch, hash32, segment, bucket, tuple(line), readings)


def lineage(*, name: TopicName, pruned_limit: int, pruned_offset: int = 0) -> Lineage:
    """Give the segments of a topic as nodes; raises TopicNotFound."""
    topic = topics.read(name)
    past, total = history.page(topic.incarnation, limit=pruned_limit, offset=pruned_offset)
    kept = topic.layout.segments
    told: list[Known] = [*kept.values(), *(one for one in past if one.segment_id not in kept)]
    segments = sorted(told, key=lambda one: one.segment_id)
    return Lineage(topic.epoch, tuple(segments), total)


def pruned_segments(*, name: TopicName, limit: int, offset: int = 0) -> tuple[list[PastSegment], int]:
    """Give a page of a topic's pruned segments, the last first, and their number; raises TopicNotFound."""
    return history.page(subscriptions.incarnation_of(name), limit=limit, offset=offset)


def _age(segment: Known) -> tuple[int, int]:
    return segment.created_epoch, segment.segment_id


def _at(line: Sequence[Known], time_ms: int | None) -> Known | None:
    """Of segments that followed one another the one that took writes at a time; None is now."""
    if time_ms is None:
        return line[-1]
    begun = [segment for segment in line if segment.created_at_ms <= time_ms]
    return begun[-1] if begun else None


def _bucket(segment: Segment, hash32: int) -> int:
    return bisect_right(segment.entry_bucket_splits, bucket_hash(hash32))


def _readings(
    subscription: SubscriptionView,
    backlog: Backlog,
    hash32: int,
    line: Iterable[Known],
    owners: dict[tuple[int, int, int], str],
) -> tuple[Reading, ...]:
    found = []
    for segment in line:
        one = backlog.segments.get(segment.segment_id)
        if isinstance(segment, Segment) and one is not None:
            bucket = _bucket(segment, hash32) if subscription.key_shared else 0
            owner = owners.get((subscription.subscription_id, segment.segment_id, bucket))
            found.append(_reading(one, bucket, owner))
    return tuple(found)


def _reading(one: SegmentBacklog, bucket: int, owner: str | None) -> Reading:
    cursor = one.cursors[bucket]
    position = max(cursor.position, cursor.start_offset)
    return Reading(one.segment.segment_id, position, one.end_offset, one.messages, owner)
