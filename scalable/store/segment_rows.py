"""Rows of segments and the domain's values, in both directions."""

from typing import Any

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
