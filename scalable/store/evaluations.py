"""Rows of evaluations: which topics the autoscaler has to look at, and what it has counted.

A row is the last in the order of locks. Where several are locked at once, they are in their keys' order.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Min

from scalable.models import Evaluation as EvaluationRow
from scalable.store.clock import ClockTimestamp, database_now

COUNTERS = ("auto_splits", "auto_merges", "auto_rebuckets", "splits_capped", "merges_capped", "flaps")
MAX_POSTPONED_SECONDS = 60

_AT_ONCE = "clock_timestamp()"
_IN_ITS_RHYTHM = "greatest(clock_timestamp(), not_before)"
_MARK = """
WITH chosen AS (
    SELECT topic_id FROM scalable_evaluation WHERE {condition} ORDER BY topic_id {limit} FOR NO KEY UPDATE
)
UPDATE scalable_evaluation AS evaluation
   SET marks = marks + 1, due_at = least(due_at, {due})
  FROM chosen
 WHERE evaluation.topic_id = chosen.topic_id
"""
_SETTLE = """
WITH found AS (
    SELECT * FROM unnest(
        %(topic_id)s::bigint[], %(marks)s::bigint[], %(due_at)s::timestamptz[], %(not_before)s::timestamptz[],
        %(decision_key)s::text[], %(load_known)s::boolean[], %(stale_after_seconds)s::float[],
        %(wants_tiles)s::boolean[], %(settings_key)s::text[], %(is_split_capped)s::boolean[],
        %(is_merge_capped)s::boolean[], %(auto_splits)s::bigint[], %(auto_merges)s::bigint[],
        %(auto_rebuckets)s::bigint[], %(splits_capped)s::bigint[], %(merges_capped)s::bigint[],
        %(flaps)s::bigint[]
    ) AS found(
        topic_id, marks, due_at, not_before, decision_key, load_known, stale_after_seconds, wants_tiles,
        settings_key, is_split_capped, is_merge_capped, auto_splits, auto_merges, auto_rebuckets,
        splits_capped, merges_capped, flaps
    )
), locked AS (
    SELECT topic_id FROM scalable_evaluation WHERE topic_id = ANY(%(topic_id)s)
     ORDER BY topic_id FOR NO KEY UPDATE
)
UPDATE scalable_evaluation AS evaluation
   SET due_at = CASE WHEN evaluation.marks = found.marks THEN found.due_at ELSE evaluation.due_at END,
       not_before = found.not_before,
       evaluated_at = clock_timestamp(),
       failures = 0,
       decision_key = found.decision_key,
       load_known = found.load_known,
       stale_after_seconds = found.stale_after_seconds,
       wants_tiles = found.wants_tiles,
       settings_key = found.settings_key,
       is_split_capped = found.is_split_capped,
       is_merge_capped = found.is_merge_capped,
       auto_splits = evaluation.auto_splits + found.auto_splits,
       auto_merges = evaluation.auto_merges + found.auto_merges,
       auto_rebuckets = evaluation.auto_rebuckets + found.auto_rebuckets,
       splits_capped = evaluation.splits_capped + found.splits_capped,
       merges_capped = evaluation.merges_capped + found.merges_capped,
       flaps = evaluation.flaps + found.flaps,
       last_flap_at = CASE WHEN found.flaps > 0 THEN clock_timestamp() ELSE evaluation.last_flap_at END
  FROM found JOIN locked USING (topic_id)
 WHERE evaluation.topic_id = found.topic_id
"""
_POSTPONE = """
UPDATE scalable_evaluation
   SET failures = failures + 1,
       due_at = clock_timestamp() + least(power(2, least(failures, 10)), %s) * interval '1 second'
 WHERE topic_id = %s
"""


@dataclass(frozen=True, slots=True)
class Begun:
    """What an evaluation begins with: the marks that it takes in, and what the last one said."""

    marks: int
    decision_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What an evaluation ends with; counters are what it adds."""

    topic_id: int
    marks: int
    due_at: datetime
    not_before: datetime
    decision_key: str
    load_known: bool
    stale_after_seconds: float
    wants_tiles: bool
    settings_key: str
    is_split_capped: bool = False
    is_merge_capped: bool = False
    auto_splits: int = 0
    auto_merges: int = 0
    auto_rebuckets: int = 0
    splits_capped: int = 0
    merges_capped: int = 0
    flaps: int = 0


# What has to be looked at.


def mark(incarnation: int) -> None:
    """Have a topic evaluated at once: its consumers, policy, layout or operations changed."""
    _mark("topic_id = %s", [incarnation])


def mark_of_operation(operation_id: str, *, succeeded: bool) -> None:
    """Have the topic of an operation that ended evaluated: at once, or in its rhythm if that changed nothing.

    What failed at once would else be asked for again at once, as fast as it can fail.
    """
    due = _AT_ONCE if succeeded else _IN_ITS_RHYTHM
    _mark("topic_id = (SELECT topic_id FROM scalable_operation WHERE id = %s)", [operation_id], due=due)


def mark_loads(incarnations: Collection[int]) -> None:
    """Have topics evaluated in their rhythm: their loads changed."""
    _mark("topic_id = ANY(%s)", [list(incarnations)], due=_IN_ITS_RHYTHM)


def mark_tiles(incarnations: Collection[int]) -> None:
    """Have those of the topics evaluated in their rhythm whose policy looks at parts of segments."""
    _mark("topic_id = ANY(%s) AND wants_tiles", [list(incarnations)], due=_IN_ITS_RHYTHM)


def mark_namespace(namespace_id: int) -> None:
    """Have all topics of a namespace evaluated at once: its policy changed."""
    _mark("topic_id = ANY(SELECT id FROM scalable_topic WHERE namespace_id = %s)", [namespace_id])


def mark_where_load_turned(watermark_age_seconds: float, *, limit: int) -> None:
    """Have topics evaluated at once whose loads became unknown, or known again, by the clock alone.

    Those whose evaluation failed wait until it is tried again: they stay as they were, and would be found
    again each time.
    """
    for turned in ("load_known AND stale_after_seconds < %s", "NOT load_known AND stale_after_seconds >= %s"):
        condition = f"{turned} AND failures = 0 AND due_at > clock_timestamp()"
        _mark(condition, [watermark_age_seconds], limit=f"LIMIT {limit}")


def mark_where_settings_differ(settings_key: str, *, limit: int) -> None:
    """Have topics evaluated in their rhythm whose last decision was made under other settings."""
    differs = "(settings_key < %s OR settings_key > %s)"  # as two ranges of an index; NULL: never evaluated
    condition = f"{differs} AND failures = 0 AND due_at > greatest(clock_timestamp(), not_before)"
    _mark(condition, [settings_key, settings_key], due=_IN_ITS_RHYTHM, limit=f"LIMIT {limit}")


def _mark(condition: str, parameters: list[Any], *, due: str = _AT_ONCE, limit: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(_MARK.format(condition=condition, due=due, limit=limit), parameters)


def due(*, limit: int, besides: Collection[int] = ()) -> list[int]:
    """Give topics whose time has come, the longest overdue first, without some."""
    rows = EvaluationRow.objects.filter(due_at__lte=ClockTimestamp()).exclude(topic_id__in=besides)
    return list(rows.order_by("due_at").values_list("topic_id", flat=True)[:limit])


def due_now(incarnation: int) -> bool:
    """Tell whether a topic's time has come."""
    return EvaluationRow.objects.filter(topic_id=incarnation, due_at__lte=ClockTimestamp()).exists()


def overdue_seconds() -> float:
    """Give for how long the topic has been due that has been for longest; 0 when none is."""
    oldest = EvaluationRow.objects.aggregate(oldest=Min("due_at"))["oldest"]
    return 0.0 if oldest is None else max(0.0, (database_now() - oldest).total_seconds())


# An evaluation's beginning and end.


def read_marks(incarnations: Collection[int]) -> Mapping[int, int]:
    """Read the marks of topics, before anything else that their evaluation reads."""
    rows = EvaluationRow.objects.filter(topic_id__in=incarnations)
    return dict(rows.values_list("topic_id", "marks"))


def begin(marks: Mapping[int, int]) -> Mapping[int, Begun]:
    """Add to the marks what the last evaluations said; the caller holds the topics' locks."""
    rows = EvaluationRow.objects.filter(topic_id__in=marks)
    return {key: Begun(marks[key], said) for key, said in rows.values_list("topic_id", "decision_key")}


def settle(evaluated: Iterable[Settled]) -> None:
    """Write the ends of evaluations down; the caller holds the topics' locks."""
    rows = list(evaluated)
    columns = {name: [getattr(row, name) for row in rows] for name in Settled.__dataclass_fields__}
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_SETTLE, columns)


def postpone(incarnation: int) -> None:
    """Note that an evaluation failed: it is tried again after a time that doubles, a minute at most."""
    with connection.cursor() as cursor:
        cursor.execute(_POSTPONE, [MAX_POSTPONED_SECONDS, incarnation])
