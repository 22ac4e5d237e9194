"""What every adapter refuses, and by which name."""

from collections.abc import Iterable, Sequence

from scalable.domain.errors import (
    BatchInvalid,
    BatchPartlyDuplicate,
    CursorSought,
    GenerationSuperseded,
    PositionInvalid,
    ScalableError,
)
from scalable.domain.keyspace import HashRange
from scalable.segments.port import CursorState, SegmentKey
from scalable.wire.batch import BatchHeader, check_batch
from scalable.wire.marks import Mark, flatten

MAX_BATCHES_PER_APPEND = 1_000
MAX_BATCHES_AHEAD = 1_000
"""So far above the frontier an acknowledgement may reach, and so many batches one claim looks at."""


def checked_headers(batches: Sequence[bytes]) -> list[BatchHeader]:
    """Check the batches of one append; raises BatchInvalid."""
    if not 1 <= len(batches) <= MAX_BATCHES_PER_APPEND:
        raise BatchInvalid(
            problem=f"an append takes 1 to {MAX_BATCHES_PER_APPEND} batches, not {len(batches)}"
        )
    return [check_batch(batch) for batch in batches]


def outside_range(header: BatchHeader, hash_range: HashRange) -> BatchInvalid:
    """Make the error of a batch whose keys belong to another segment."""
    found = f"{header.hash_min:04x}-{header.hash_max:04x}"
    return BatchInvalid(problem=f"it has keys of {found}, and the segment covers {hash_range.hex}")


def partly_duplicate(key: SegmentKey, header: BatchHeader, marks: Iterable[Mark]) -> BatchPartlyDuplicate:
    """Make the error of a batch that its producer must cut again."""
    return BatchPartlyDuplicate(
        segment_id=key.segment_id,
        sequence=header.first_sequence,
        marks=[list(mark) for mark in flatten(marks)],
    )


def ack_refusal(
    key: SegmentKey,
    cursor: CursorState,
    *,
    generation: int,
    position: int,
    incarnation: int | None,
    end_offset: int,
) -> ScalableError | None:
    """Name why an acknowledgement must be refused, if it must."""
    refusal = fence_refusal(key, cursor, generation=generation, incarnation=incarnation)
    return refusal or position_refusal(key, position=position, low=0, high=end_offset)


def fence_refusal(
    key: SegmentKey, cursor: CursorState, *, generation: int | None, incarnation: int | None
) -> ScalableError | None:
    """Name which fence of a cursor does not let the caller through, if one does not; None passes any."""
    if generation is not None and generation != cursor.generation:
        return GenerationSuperseded(
            segment_id=key.segment_id, generation=generation, current_generation=cursor.generation
        )
    if incarnation is not None and incarnation != cursor.incarnation:
        return CursorSought(
            segment_id=key.segment_id,
            subscription=cursor.subscription,
            incarnation=incarnation,
            current=cursor.incarnation,
        )
    return None


def range_refusal(
    key: SegmentKey, ranges: Iterable[tuple[int, int]], *, end_offset: int
) -> PositionInvalid | None:
    """Name the first range that cannot be acknowledged, if there is one."""
    for first, end in ranges:
        refusal = position_refusal(key, position=end, low=max(0, first) + 1, high=end_offset)
        if refusal or first < 0:
            return refusal or position_refusal(key, position=first, low=0, high=end_offset)
    return None


def too_far_ahead(key: SegmentKey, position: int) -> PositionInvalid:
    """Make the error of an acknowledgement far above everything that was delivered."""
    problem = f"it lies more than {MAX_BATCHES_AHEAD} batches above what was delivered"
    return PositionInvalid(segment_id=key.segment_id, position=position, problem=problem)


def position_refusal(key: SegmentKey, *, position: int, low: int, high: int) -> PositionInvalid | None:
    """Name why a position cannot be taken, if it cannot."""
    if low <= position <= high:
        return None
    problem = f"positions from {low} to {high} are possible here"
    return PositionInvalid(segment_id=key.segment_id, position=position, problem=problem)
