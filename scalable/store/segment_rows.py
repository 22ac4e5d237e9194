"""Rows of segments and the domain's values, in both directions."""

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from scalable.domain.keyspace import HashRange
from scalable.domain.segment import NOT_SEALED_MS, Segment, SegmentState
from scalable.models import Segment as SegmentRow
from scalable.store.clock import Milliseconds, moment

_COLUMNS = (
    "segment_id",
    "hash_start",
    "hash_end",
    "state",
    "parent_ids",
    "child_ids",
    "created_epoch",
    "sealed_epoch",
    "entry_bucket_splits",
)
_WIDTH = len(_COLUMNS) + 2
_WRITTEN = ", ".join((*_COLUMNS, "created_at", "sealed_at"))
_INSERT = f"""
INSERT INTO scalable_segment (topic_id, {_WRITTEN})
SELECT %s, {_WRITTEN} FROM json_populate_recordset(NULL::scalable_segment, %s::json)
"""
_ROWS_AT_ONCE = 1_000
_STATES = {state.value: state for state in SegmentState}


def read_segments(rows: QuerySet[SegmentRow], *others: str) -> list[tuple[Segment, tuple[Any, ...]]]:
    """Read segments as the domain's values, each with its `others`, further columns.

    No rows of the ORM, and numbers for times: a layout may have a thousand segments, and is read often.
    """
    times = Milliseconds("created_at"), Milliseconds("sealed_at")
    found = rows.values_list(*_COLUMNS, *times, *others)
    return [(_segment(row), row[_WIDTH:]) for row in found]


def _segment(row: tuple[Any, ...]) -> Segment:
    segment_id, start, end, state, parents, children, created, sealed, splits, created_ms, sealed_ms = row[
        :_WIDTH
    ]
    return Segment(
        segment_id=segment_id,
        hash_range=HashRange(start, end),
        state=_STATES[state],
        parent_ids=tuple(parents),
        child_ids=tuple(children),
        created_epoch=created,
        sealed_epoch=sealed,
        created_at_ms=created_ms,
        sealed_at_ms=NOT_SEALED_MS if sealed_ms is None else sealed_ms,
        entry_bucket_splits=tuple(splits),
    )


def insert_segments(incarnation: int, segments: Iterable[Segment]) -> None:
    """Add rows of segments; no objects and parameters of the ORM for each of what may be 65,536."""
    rest = iter(segments)
    with connection.cursor() as cursor:
        while portion := list(islice(rest, _ROWS_AT_ONCE)):
            rows = [{"segment_id": each.segment_id, **segment_columns(each)} for each in portion]
            cursor.execute(_INSERT, [incarnation, json.dumps(rows, default=str)])


def segment_columns(segment: Segment) -> dict[str, Any]:
    """Give the columns of a segment's row but its keys."""
    return {
        "hash_start": segment.hash_range.start,
        "hash_end": segment.hash_range.end,
        "state": segment.state.value,
        "parent_ids": list(segment.parent_ids),
        "child_ids": list(segment.child_ids),
        "entry_bucket_splits": list(segment.entry_bucket_splits),
        "created_epoch": segment.created_epoch,
        "sealed_epoch": segment.sealed_epoch,
        "created_at": moment(segment.created_at_ms),
        "sealed_at": None if segment.is_active else moment(segment.sealed_at_ms),
    }
