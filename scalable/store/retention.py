"""Rows of what ages: how long messages are kept, which topics are swept next, what pruned segments leave."""

from collections.abc import Collection, Mapping

from django.db import connection

from scalable.domain.errors import TopicNotFound
from scalable.domain.segment import Segment
from scalable.models import Assignment, Namespace, Operation, PrunedSegment, SegmentLoad, Subscription, Topic
from scalable.store.clock import ClockTimestamp, moment, seconds_from_now
from scalable.store.history import all_parents

KEPT_HISTORY = 10_000
"""So many pruned segments of a topic are remembered, the newest."""

KEPT_OPERATIONS = 1_000
"""So many finished operations of a topic are remembered, the newest."""
_FORGOTTEN_AT_ONCE = 500

# An array is looked up once; what stands in IN (...) may be asked anew for each row, and then takes no heed
# of its limit, since it passes over what it has locked before.
_TAKE_DUE = """
UPDATE scalable_topic SET next_sweep_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE id = ANY(ARRAY(
    SELECT id FROM scalable_topic
    WHERE next_sweep_at IS NULL OR next_sweep_at <= clock_timestamp()
    ORDER BY next_sweep_at NULLS FIRST LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING id, quiet_sweeps
"""
_FORGET_OLDEST = """
DELETE FROM scalable_prunedsegment WHERE topic_id = %(topic)s AND id <= (
    SELECT id FROM scalable_prunedsegment WHERE topic_id = %(topic)s ORDER BY id DESC OFFSET %(kept)s LIMIT 1
)
"""


LifetimeRow = tuple[int | None, float | None]
"""Retention and session grace in seconds, None where nothing is set."""


def take_due(*, limit: int, interval_seconds: float) -> dict[int, int]:
    """Give topics whose sweep has come, and after how many quiet ones; locked ones are passed over.

    Their next one is set to come after an interval.
    """
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_DUE, {"seconds": interval_seconds, "limit": limit})
        return dict(cursor.fetchall())


def sweep_soon(incarnation: int) -> None:
    """Let a topic be swept by the next tick."""
    Topic.objects.filter(pk=incarnation).update(next_sweep_at=None)


def write_quiet_sweeps(incarnation: int, quiet: int, *, pause_seconds: float) -> None:
    """Note how many sweeps in a row there was nothing to do for, and when the next one is.

    A change that let the topic be swept soon, in the meantime, is not undone.
    """
    rows = Topic.objects.filter(pk=incarnation).exclude(next_sweep_at=None)
    rows.update(quiet_sweeps=quiet, next_sweep_at=seconds_from_now(pause_seconds))


def read_lifetimes(incarnation: int) -> tuple[LifetimeRow, LifetimeRow]:
    """Read what a topic sets itself and what its namespace sets; raises TopicNotFound."""
    row = Topic.objects.select_related("namespace").filter(pk=incarnation).first()
    if row is None:
        raise TopicNotFound(topic=f"#{incarnation}")
    namespace = row.namespace
    own = (row.retention_seconds, row.session_grace_seconds)
    return own, (namespace.retention_seconds, namespace.session_grace_seconds)


def read_namespace_lifetimes(namespace_id: int) -> LifetimeRow:
    """Read what a namespace sets."""
    rows = Namespace.objects.filter(pk=namespace_id)
    return rows.values_list("retention_seconds", "session_grace_seconds").get()


def write_topic_lifetimes(incarnation: int, retention: int | None, grace: float | None) -> None:
    """Replace what a topic sets, and let it be swept by it soon; the caller holds the topic's lock."""
    Topic.objects.filter(pk=incarnation).update(
        retention_seconds=retention, session_grace_seconds=grace, next_sweep_at=None
    )


def write_namespace_lifetimes(namespace_id: int, retention: int | None, grace: float | None) -> None:
    """Replace what a namespace sets."""
    rows = Namespace.objects.filter(pk=namespace_id)
    rows.update(retention_seconds=retention, session_grace_seconds=grace)


def forget_segments(incarnation: int, segment_ids: Collection[int]) -> list[int]:
    """Delete what assigns and measures segments, and give the subscriptions that assigned them.

    Tiles stay: they are the past of the map and go with their age. The caller holds the topic's lock.
    """
    rows = Subscription.objects.select_for_update(no_key=True).filter(topic_id=incarnation).order_by("pk")
    subscriptions = list(rows.values_list("pk", flat=True))
    assigned = Assignment.objects.filter(subscription_id__in=subscriptions, segment_id__in=segment_ids)
    losing = sorted(set(assigned.values_list("subscription_id", flat=True)))
    assigned.delete()
    SegmentLoad.objects.filter(topic_id=incarnation, segment_id__in=segment_ids).delete()
    return losing


def forget_operations(incarnation: int) -> int:
    """Delete the oldest finished operations of a topic, a bounded number, and give how many."""
    finished = (
        Operation.objects.filter(topic_id=incarnation).exclude(outcome=None).order_by("-created_at", "-pk")
    )
    old = list(finished.values_list("pk", flat=True)[KEPT_OPERATIONS : KEPT_OPERATIONS + _FORGOTTEN_AT_ONCE])
    if old:
        Operation.objects.filter(pk__in=old).delete()
    return len(old)


def write_history(incarnation: int, segments: Collection[Segment], end_offsets: Mapping[int, int]) -> None:
    """Remember segments that leave the layout, with all parents that they had.

    The caller holds the topic's lock.
    """
    parents = all_parents(incarnation, segments)
    PrunedSegment.objects.bulk_create(
        PrunedSegment(
            topic_id=incarnation,
            segment_id=segment.segment_id,
            hash_start=segment.hash_range.start,
            hash_end=segment.hash_range.end,
            parent_ids=sorted(parents[segment.segment_id]),
            child_ids=list(segment.child_ids),
            created_epoch=segment.created_epoch,
            sealed_epoch=segment.sealed_epoch,
            created_at=moment(segment.created_at_ms),
            sealed_at=moment(segment.sealed_at_ms),
            pruned_at=ClockTimestamp(),
            end_offset=end_offsets.get(segment.segment_id, 0),
        )
        for segment in sorted(segments, key=lambda each: each.segment_id)
    )
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_OLDEST, {"topic": incarnation, "kept": KEPT_HISTORY})
