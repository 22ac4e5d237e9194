"""A node of a topic's DAG, and the plan of a change to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from scalable.domain.buckets import bucket_count
from scalable.domain.keyspace import HashRange
from scalable.domain.operations import OperationKind

NOT_SEALED_EPOCH = 0
NOT_SEALED_MS = -1


class SegmentState(StrEnum):
    """Whether a segment takes writes."""

    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of hashes with its place in the DAG; `sealed_epoch` is 0 and `sealed_at_ms` -1 while ACTIVE."""

    segment_id: int
    hash_range: HashRange
    state: SegmentState = SegmentState.ACTIVE
    parent_ids: tuple[int, ...] = ()
    child_ids: tuple[int, ...] = ()
    created_epoch: int = 0
    sealed_epoch: int = NOT_SEALED_EPOCH
    created_at_ms: int = 0
    sealed_at_ms: int = NOT_SEALED_MS
    entry_bucket_splits: tuple[int, ...] = ()

    @property
    def is_active(self) -> bool:
        """Tell whether the segment takes writes."""
        return self.state is SegmentState.ACTIVE

    @property
    def bucket_count(self) -> int:
        """Count the entry buckets."""
        return bucket_count(self.entry_bucket_splits)

    def sealed(self, *, child_ids: tuple[int, ...], epoch: int, now_ms: int) -> Segment:
        """Give this segment as replaced by its children."""
        return replace(
            self, state=SegmentState.SEALED, child_ids=child_ids, sealed_epoch=epoch, sealed_at_ms=now_ms
        )

    def without_parent(self, parent_id: int) -> Segment:
        """Give this segment with one parent forgotten."""
        return replace(self, parent_ids=tuple(known for known in self.parent_ids if known != parent_id))

    def to_json(self) -> dict[str, Any]:
        """Give the segment by the field names of PIP-468's SegmentInfo."""
        return {
            "segmentId": self.segment_id,
            "hashRange": {"start": self.hash_range.start, "end": self.hash_range.end},
            "state": self.state.value,
            "parentIds": list(self.parent_ids),
            "childIds": list(self.child_ids),
            "createdAtEpoch": self.created_epoch,
            "sealedAtEpoch": self.sealed_epoch,
            "createdAtMs": self.created_at_ms,
            "sealedAtMs": self.sealed_at_ms,
            "entryBucketSplits": list(self.entry_bucket_splits),
        }


def segment_from_json(body: Mapping[str, Any]) -> Segment:
    """Read what `Segment.to_json` gives; further fields are ignored."""
    return Segment(
        segment_id=int(body["segmentId"]),
        hash_range=HashRange(int(body["hashRange"]["start"]), int(body["hashRange"]["end"])),
        state=SegmentState(body["state"]),
        parent_ids=tuple(body["parentIds"]),
        child_ids=tuple(body["childIds"]),
        created_epoch=int(body["createdAtEpoch"]),
        sealed_epoch=int(body["sealedAtEpoch"]),
        created_at_ms=int(body["createdAtMs"]),
        sealed_at_ms=int(body["sealedAtMs"]),
        entry_bucket_splits=tuple(body.get("entryBucketSplits", ())),
    )


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A child that a plan will add."""

    segment_id: int
    hash_range: HashRange
    entry_bucket_splits: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the child as kept in an operation's row and shown by REST."""
        return {
            "segmentId": self.segment_id,
            "hashRange": {"start": self.hash_range.start, "end": self.hash_range.end},
            "entryBucketSplits": list(self.entry_bucket_splits),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PlannedSegment:
        """Read what `to_json` gives."""
        hash_range = HashRange(int(body["hashRange"]["start"]), int(body["hashRange"]["end"]))
        return cls(int(body["segmentId"]), hash_range, tuple(body.get("entryBucketSplits", ())))


@dataclass(frozen=True, slots=True)
class ReshapePlan:
    """A change as written down before its first effect; `parent_ids` keep the request's order."""

    kind: OperationKind
    parent_ids: tuple[int, ...]
    children: tuple[PlannedSegment, ...]

    @property
    def child_ids(self) -> tuple[int, ...]:
        """Give the ids of the children in range order."""
        return tuple(child.segment_id for child in self.children)

    @property
    def first_free_id(self) -> int:
        """Give the lowest id that lies above all of the plan's children."""
        return max(self.child_ids) + 1

    def same_request_as(self, other: ReshapePlan) -> bool:
        """Tell whether both would do the same, whatever ids they burn and in which order parents stand."""
        return self._effect() == other._effect()

    def _effect(self) -> tuple[OperationKind, frozenset[int], tuple[tuple[HashRange, tuple[int, ...]], ...]]:
        children = tuple((child.hash_range, child.entry_bucket_splits) for child in self.children)
        return self.kind, frozenset(self.parent_ids), children

    def to_json(self) -> dict[str, Any]:
        """Give the plan as kept in an operation's row and shown by REST."""
        children = [child.to_json() for child in self.children]
        return {"kind": self.kind.value, "parentIds": list(self.parent_ids), "children": children}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ReshapePlan:
        """Read what `to_json` gives."""
        children = (PlannedSegment.from_json(child) for child in body["children"])
        return cls(OperationKind(body["kind"]), tuple(body["parentIds"]), tuple(children))
