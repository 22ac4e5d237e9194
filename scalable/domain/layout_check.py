"""The rules that hold for every layout, checked from outside the code that changes layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from scalable.domain.keyspace import MAX_HASH, tiles
from scalable.domain.segment import NOT_SEALED_EPOCH, NOT_SEALED_MS, Segment


def problem_of(segments: Mapping[int, Segment], *, epoch: int, next_segment_id: int) -> str | None:
    """Name the first broken rule, or give None."""
    active = sorted(segment.hash_range for segment in segments.values() if segment.is_active)
    if not tiles(active):
        return "the active segments do not tile the hash space"
    for segment_id, segment in segments.items():
        for problem in _problems(segments, segment, epoch):
            return f"segment {segment_id}: {problem}"
        if segment_id != segment.segment_id or not 0 <= segment_id < next_segment_id:
            return f"segment {segment_id}: its id is wrong or was never given out"
    return None


def _problems(segments: Mapping[int, Segment], segment: Segment, epoch: int) -> Iterator[str]:
    if not 0 <= segment.created_epoch <= epoch:
        yield "it was created in the future"
    starts = (0, *segment.entry_bucket_splits)
    if starts[-1] > MAX_HASH or any(after <= before for before, after in pairwise(starts)):
        yield "its entry buckets do not ascend within the hash space"
    yield from _active_problems(segment) if segment.is_active else _sealed_problems(segment, epoch)
    for parent_id in segment.parent_ids:
        yield from _parent_problems(segment, segments.get(parent_id))
    for child_id in segment.child_ids:
        child = segments.get(child_id)
        if child is None or segment.segment_id not in child.parent_ids:
            yield f"its child {child_id} does not know it"


def _active_problems(segment: Segment) -> Iterator[str]:
    if segment.child_ids or segment.sealed_epoch != NOT_SEALED_EPOCH or segment.sealed_at_ms != NOT_SEALED_MS:
        yield "it is active and has children or a time of sealing"


def _sealed_problems(segment: Segment, epoch: int) -> Iterator[str]:
    if not segment.created_epoch < segment.sealed_epoch <= epoch or segment.sealed_at_ms < 0:
        yield "it is sealed, but not between its creation and now"
    if not segment.child_ids:
        yield "it is sealed and nothing follows it"


def _parent_problems(segment: Segment, parent: Segment | None) -> Iterator[str]:
    if parent is None or segment.segment_id not in parent.child_ids:
        yield "a parent does not know it"
    elif parent.is_active:
        yield f"its parent {parent.segment_id} is active"
    elif parent.sealed_epoch != segment.created_epoch or parent.segment_id >= segment.segment_id:
        yield f"it was not created when its parent {parent.segment_id} was sealed"
    elif not parent.hash_range.overlaps(segment.hash_range):
        yield f"it shares no hash with its parent {parent.segment_id}"
