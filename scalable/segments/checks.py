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
    if generation != cursor.generation:
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
    return position_refusal(key, position=position, low=0, high=end_offset)


def position_refusal(key: SegmentKey, *, position: int, low: int, high: int) -> PositionInvalid | None:
    """Name why a position cannot be taken, if it cannot."""
    if low <= position <= high:
        return None
    problem = f"the segment's positions go from {low} to {high}"
    return PositionInvalid(segment_id=key.segment_id, position=position, problem=problem)
