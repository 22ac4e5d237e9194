"""The layout of a topic: an immutable, versioned DAG of segments, and its changes (PIP-468, SegmentLayout).

A change has two halves. A plan names the parents and the children with their ids and ranges; it is made on
one layout and written down before anything happens. Applying it takes the *current* layout, which may have
moved on elsewhere: only the plan's own parents must still be active.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from scalable.domain import buckets, lineage
from scalable.domain.errors import (
    BucketCountUnchanged,
    InvalidBucketCount,
    InvalidInitialSegments,
    LayoutCorrupt,
    SegmentNotActive,
    SegmentNotFound,
    SegmentNotPrunable,
    SegmentsNotAdjacent,
    SegmentTooNarrow,
    TooManyBuckets,
    TooManyParts,
)
from scalable.domain.keyspace import FULL_RANGE, KEYSPACE_SIZE, MAX_PARTS, HashRange
from scalable.domain.layout_check import problem_of
from scalable.domain.operations import OperationKind
from scalable.domain.segment import (
    PlannedSegment,
    ReshapePlan,
    Segment,
    SegmentState,
    segment_from_json,
)

__all__ = [
    "Layout",
    "PlannedSegment",
    "ReshapePlan",
    "Segment",
    "SegmentState",
    "layout_from_json",
    "segment_from_json",
]


@dataclass(frozen=True)
class Layout:
    """All segments of a topic at one epoch; every change gives a new layout."""

    epoch: int
    next_segment_id: int
    segments: Mapping[int, Segment]

    @classmethod
    def initial(cls, count: int, now_ms: int, *, bucket_budget: int = buckets.DEFAULT_BUDGET) -> Layout:
        """Divide the hash space evenly, the remainder to the last, and the budget of entry buckets.

        Raises InvalidInitialSegments.
        """
        if not 1 <= count <= KEYSPACE_SIZE:
            raise InvalidInitialSegments(count=count, limit=KEYSPACE_SIZE)
        splits = buckets.initial_splits(bucket_budget, count)
        segments = {
            segment_id: Segment(segment_id, hash_range, created_at_ms=now_ms, entry_bucket_splits=splits)
            for segment_id, hash_range in enumerate(FULL_RANGE.parts(count))
        }
        return cls(0, count, segments)

    # Questions.

    @cached_property
    def active(self) -> tuple[Segment, ...]:
        """Give the active segments by range start; they tile the hash space."""
        active = (segment for segment in self.segments.values() if segment.is_active)
        return tuple(sorted(active, key=lambda segment: segment.hash_range))

    @cached_property
    def _active_starts(self) -> tuple[int, ...]:
        return tuple(segment.hash_range.start for segment in self.active)

    def find_active(self, hash16: int) -> Segment:
        """Give the active segment that a 16-bit hash belongs to."""
        return self.active[bisect_right(self._active_starts, hash16) - 1]

    def get(self, segment_id: int) -> Segment:
        """Give a segment; raises SegmentNotFound."""
        segment = self.segments.get(segment_id)
        if segment is None:
            raise SegmentNotFound(segment_id=segment_id)
        return segment

    def get_active(self, segment_id: int) -> Segment:
        """Give an active segment; raises SegmentNotFound, SegmentNotActive."""
        segment = self.get(segment_id)
        if not segment.is_active:
            raise SegmentNotActive(segment_id=segment_id, child_ids=list(segment.child_ids))
        return segment

    def ancestors(self, segment_id: int) -> frozenset[int]:
        """Collect what came before a segment and is still kept; raises SegmentNotFound."""
        self.get(segment_id)
        return lineage.ancestors(self.segments, segment_id)

    def descendants(self, segment_id: int) -> frozenset[int]:
        """Collect what came after a segment; raises SegmentNotFound."""
        self.get(segment_id)
        return lineage.descendants(self.segments, segment_id)

    def merge_depth(self, segment_id: int, limit: int | None = None) -> int:
        """Count the merges in a segment's lineage, itself included, up to a limit; raises SegmentNotFound."""
        self.get(segment_id)
        return lineage.merge_depth(self.segments, segment_id, limit)

    # Plans.

    def plan_split(self, segment_id: int, boundaries: Sequence[int] | None = None) -> ReshapePlan:
        """Plan a split at the midpoint, or before each of the given first hashes of later children.

        Raises SegmentNotFound, SegmentNotActive, SegmentTooNarrow, TooManyParts, InvalidBoundaries.
        """
        parent = self.get_active(segment_id)
        if parent.hash_range.size == 1:
            raise SegmentTooNarrow(segment_id=segment_id, hash_range=parent.hash_range.hex)
        if boundaries is None:
            ranges: Sequence[HashRange] = parent.hash_range.midpoint_split()
        else:
            _check_parts(len(boundaries) + 1)
            ranges = parent.hash_range.split_at(boundaries)
        splits = buckets.splits_of_children(parent.entry_bucket_splits, len(ranges))
        return self._plan(OperationKind.SPLIT, (segment_id,), ranges, splits)

    def plan_merge(
        self, segment_ids: Sequence[int], *, max_buckets: int = buckets.MAX_PER_SEGMENT
    ) -> ReshapePlan:
        """Plan the union of two or more neighbours, given in any order, with all their entry buckets.

        Raises TooManyParts, SegmentNotFound, SegmentNotActive, SegmentsNotAdjacent.
        """
        _check_parts(len(segment_ids))
        parents = [self.get_active(segment_id) for segment_id in segment_ids]
        ranges = sorted(parent.hash_range for parent in parents)
        gaps = any(left.end + 1 != right.start for left, right in pairwise(ranges))
        if len(ranges) < 2 or gaps:
            raise SegmentsNotAdjacent(segment_ids=list(segment_ids))
        union = HashRange(ranges[0].start, ranges[-1].end)
        splits = buckets.splits_of_union((parent.entry_bucket_splits for parent in parents), max_buckets)
        return self._plan(OperationKind.MERGE, tuple(segment_ids), (union,), splits)

    def plan_rebucket(
        self, segment_id: int, bucket_count: int, *, max_buckets: int = buckets.MAX_PER_SEGMENT
    ) -> ReshapePlan:
        """Plan a successor of the same range with another number of entry buckets, equally wide.

        Raises InvalidBucketCount, SegmentNotFound, SegmentNotActive, BucketCountUnchanged, TooManyBuckets.
        """
        if not 1 <= bucket_count <= max_buckets:
            raise InvalidBucketCount(bucket_count=bucket_count, limit=max_buckets)
        parent = self.get_active(segment_id)
        splits = buckets.equal_splits(bucket_count)
        if splits == parent.entry_bucket_splits:
            raise BucketCountUnchanged(segment_id=segment_id, bucket_count=bucket_count)
        plan = self._plan(OperationKind.REBUCKET, (segment_id,), (parent.hash_range,), splits)
        self.check_buckets(plan)
        return plan

    def check_buckets(self, plan: ReshapePlan, under_way: Iterable[ReshapePlan] = ()) -> None:
        """Raise TooManyBuckets when a plan adds more entry buckets than a topic may have in all.

        `under_way` are plans for other parents, which are counted as if they were applied.
        """
        more = self._more_buckets(plan)
        count = sum(segment.bucket_count for segment in self.active) + more
        count += sum(map(self._more_buckets, under_way))
        if more > 0 and count > buckets.MAX_PER_TOPIC:
            raise TooManyBuckets(count=count, limit=buckets.MAX_PER_TOPIC)

    def _more_buckets(self, plan: ReshapePlan) -> int:
        after = sum(buckets.bucket_count(child.entry_bucket_splits) for child in plan.children)
        return after - sum(self.segments[key].bucket_count for key in plan.parent_ids if key in self.segments)

    def _plan(
        self,
        kind: OperationKind,
        parent_ids: tuple[int, ...],
        child_ranges: Iterable[HashRange],
        splits: tuple[int, ...],
    ) -> ReshapePlan:
        children = (
            PlannedSegment(self.next_segment_id + index, hash_range, splits)
            for index, hash_range in enumerate(child_ranges)
        )
        return ReshapePlan(kind, parent_ids, tuple(children))

    # Changes.

    def reserve(self, plan: ReshapePlan) -> Layout:
        """Burn the plan's ids, so that no later plan uses them, whether this one is applied or not."""
        return replace(self, next_segment_id=max(self.next_segment_id, plan.first_free_id))

    def apply(self, plan: ReshapePlan, now_ms: int) -> Layout:
        """Seal the plan's parents and add its children, one epoch later.

        Raises SegmentNotFound or SegmentNotActive when a parent is gone, LayoutCorrupt when the plan misfits.
        """
        parents = [self.get_active(parent_id) for parent_id in plan.parent_ids]
        self._check_fit(plan, parents)
        epoch = self.epoch + 1
        changed = {
            parent.segment_id: parent.sealed(child_ids=plan.child_ids, epoch=epoch, now_ms=now_ms)
            for parent in parents
        }
        for child in plan.children:
            changed[child.segment_id] = Segment(
                child.segment_id,
                child.hash_range,
                parent_ids=plan.parent_ids,
                created_epoch=epoch,
                created_at_ms=now_ms,
                entry_bucket_splits=child.entry_bucket_splits,
            )
        reserved = self.reserve(plan)
        return replace(reserved, epoch=epoch, segments={**self.segments, **changed})

    def _check_fit(self, plan: ReshapePlan, parents: Sequence[Segment]) -> None:
        used = [child_id for child_id in plan.child_ids if child_id in self.segments]
        if used:
            raise LayoutCorrupt(problem=f"the ids {used} of planned children are in use")
        parent_hashes = sum(parent.hash_range.size for parent in parents)
        child_hashes = sum(child.hash_range.size for child in plan.children)
        covered = all(_covers(parents, child.hash_range) for child in plan.children)
        if parent_hashes != child_hashes or not covered:
            raise LayoutCorrupt(problem="the planned children do not cover exactly what their parents cover")

    def prune(self, segment_id: int) -> Layout:
        """Forget a sealed segment of which no ancestor is kept, one epoch later.

        Oldest first, since its descendants' consumers would otherwise no longer wait for its own ancestors.
        Raises SegmentNotFound, SegmentNotPrunable.
        """
        segment = self.get(segment_id)
        if segment.is_active:
            raise SegmentNotPrunable(segment_id=segment_id, problem="it is active")
        if segment.parent_ids:
            problem = f"its parents {list(segment.parent_ids)} are still kept"
            raise SegmentNotPrunable(segment_id=segment_id, problem=problem)
        segments = {key: value for key, value in self.segments.items() if key != segment_id}
        for child_id in segment.child_ids:
            segments[child_id] = segments[child_id].without_parent(segment_id)
        return replace(self, epoch=self.epoch + 1, segments=segments)

    def check(self) -> None:
        """Raise LayoutCorrupt when a rule that must always hold is broken."""
        problem = problem_of(self.segments, epoch=self.epoch, next_segment_id=self.next_segment_id)
        if problem:
            raise LayoutCorrupt(problem=problem)

    def to_json(self) -> dict[str, Any]:
        """Give epoch, nextSegmentId and segments by id as text (PIP-468, Metadata Store Schema)."""
        segments = {str(key): self.segments[key].to_json() for key in sorted(self.segments)}
        return {"epoch": self.epoch, "nextSegmentId": self.next_segment_id, "segments": segments}


def _check_parts(count: int) -> None:
    if count > MAX_PARTS:
        raise TooManyParts(count=count, limit=MAX_PARTS)


def _covers(parents: Sequence[Segment], hash_range: HashRange) -> bool:
    """Tell whether every hash of the range lies in one of the parents."""
    shared = (parent.hash_range.intersection(hash_range) for parent in parents)
    return sum(part.size for part in shared if part) == hash_range.size


def layout_from_json(body: Mapping[str, Any]) -> Layout:
    """Read what `Layout.to_json` gives; further fields are ignored."""
    segments = {int(key): segment_from_json(value) for key, value in body["segments"].items()}
    return Layout(int(body["epoch"]), int(body["nextSegmentId"]), segments)
