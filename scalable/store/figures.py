"""Figures of the whole installation, for Prometheus: sums over the tables, and a bounded number of topics."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from django.db import connection
from django.db.models import Count, F

from scalable.domain.names import TopicName
from scalable.domain.operations import OperationKind, Outcome
from scalable.domain.segment import SegmentState
from scalable.models import Operation, Segment, SegmentLoad, Topic
from scalable.store.clock import database_now
from scalable.store.evaluations import COUNTERS

_TOTALS = """
SELECT
    (SELECT count(*) FROM scalable_topic),
    (SELECT coalesce(sum(active_segments), 0) FROM scalable_topic),
    (SELECT coalesce(sum(sealed_segments), 0) FROM scalable_topic),
    (SELECT count(*) FROM scalable_consumerregistration),
    (SELECT count(*) FROM scalable_assignment WHERE owner IS NOT NULL),
    (SELECT extract(epoch FROM clock_timestamp() - min(created_at)) FROM scalable_operation
      WHERE outcome IS NULL),
    (SELECT extract(epoch FROM clock_timestamp() - max(watermark)) FROM scalable_loadwatermark),
    (SELECT extract(epoch FROM clock_timestamp() - min(due_at)) FROM scalable_evaluation
      WHERE due_at <= clock_timestamp()),
    (SELECT count(*) FROM scalable_evaluation WHERE load_known = false),
    (SELECT count(*) FROM scalable_evaluation WHERE failures > 0)
"""
# One statement, so that what goes meanwhile is counted once: as a row, or in what rows that are gone counted.
_COUNTED = """
SELECT name, sum(count) FROM (
    SELECT 'flaps' AS name, coalesce(sum(flaps), 0) AS count FROM scalable_evaluation
    UNION ALL
    SELECT 'seals', coalesce(sum(sealed_segments), 0) FROM scalable_topic
    UNION ALL
    SELECT 'seals', count(*) FROM scalable_prunedsegment
    UNION ALL
    SELECT 'assignment_changes', coalesce(sum(assignment_generation), 0) FROM scalable_subscription
    UNION ALL
    SELECT 'failovers', coalesce(sum(greatest(term - 1, 0)), 0) FROM scalable_controllerlease
    UNION ALL
    SELECT 'operations.' || kind || '.' || outcome, count(*) FROM scalable_operation
     WHERE outcome IS NOT NULL GROUP BY kind, outcome
    UNION ALL
    SELECT name, count FROM scalable_retiredcount
) AS told GROUP BY name
"""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over everything; ages in seconds, None where there is nothing that ages."""

    topics: int
    active_segments: int
    sealed_segments: int
    consumers: int
    assignments: int
    oldest_operation_seconds: float | None
    watermark_age_seconds: float | None
    overdue_seconds: float | None
    load_unknown_topics: int
    failing_topics: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What the autoscaler has counted of a topic."""

    incarnation: int
    name: str
    active_segments: int
    evaluated_seconds_ago: float | None
    counted: Mapping[str, int]
    is_split_capped: bool
    is_merge_capped: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """What only rises, of what exists and of what is gone; operations by kind and outcome."""

    flaps: int
    seals: int
    assignment_changes: int
    failovers: int
    operations: Mapping[tuple[str, str], int]


def totals() -> Totals:
    """Sum everything up."""
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS)
        row: tuple[Any, ...] = cursor.fetchone()
    ages = [None if value is None else float(value) for value in row[5:8]]
    return Totals(*(int(value) for value in row[:5]), *ages, *row[8:])


def counted() -> Counted:
    """Sum up what only rises; each kind of operation and outcome has its number, 0 before the first."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTED)
        told = {name: int(count) for name, count in cursor.fetchall()}
    ended = {
        (kind.value, outcome.value): told.get(f"operations.{kind.value}.{outcome.value}", 0)
        for kind, outcome in product(OperationKind, Outcome)
    }
    return Counted(
        flaps=told["flaps"],
        seals=told["seals"],
        assignment_changes=told["assignment_changes"],
        failovers=told["failovers"],
        operations=ended,
    )


def running_operations() -> dict[str, int]:
    """Count unfinished operations by kind."""
    rows = Operation.objects.filter(outcome=None).values_list("kind").annotate(count=Count("pk"))
    return {kind.value: 0 for kind in OperationKind} | dict(rows)


def topics(*, limit: int) -> list[TopicFigures]:
    """Give the busiest topics that are scaled, and of equals the oldest."""
    rows = Topic.objects.filter(evaluation__isnull=False).select_related("namespace", "evaluation")
    now = database_now()
    return [
        TopicFigures(
            row.pk,
            str(TopicName(row.namespace.tenant, row.namespace.name, row.name)),
            row.active_segments,
            (now - row.evaluation.evaluated_at).total_seconds() if row.evaluation.evaluated_at else None,
            {name: getattr(row.evaluation, name) for name in COUNTERS},
            row.evaluation.is_split_capped,
            row.evaluation.is_merge_capped,
        )
        for row in rows.order_by("-msg_rate_in", "pk")[:limit]
    ]


def segment_rates(
    incarnations: Collection[int], *, limit: int
) -> Iterator[tuple[int, int, tuple[float, ...]]]:
    """Give (incarnation, segment id, rates) of active segments whose loads are known, the busiest first."""
    active = Segment.objects.filter(topic_id__in=incarnations, state=SegmentState.ACTIVE)
    keys = set(active.values_list("topic_id", "segment_id"))
    rows = SegmentLoad.objects.filter(topic_id__in=incarnations).order_by(F("msg_rate_in").desc(), "pk")
    fields = ("topic_id", "segment_id", "msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
    shown = 0
    for topic_id, segment_id, *rates in rows.values_list(*fields):
        if (topic_id, segment_id) in keys and shown < limit:
            shown += 1
            yield topic_id, segment_id, tuple(rates)
