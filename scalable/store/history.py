"""Rows of segments that were pruned, and who reads which segment now."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from scalable.domain.keyspace import HashRange
from scalable.domain.segment import Segment
from scalable.models import Assignment, PrunedSegment
from scalable.store.clock import milliseconds


@dataclass(frozen=True, slots=True)
class PastSegment:
    """A segment that was pruned, with all parents and children that it had."""

    segment_id: int
    hash_range: HashRange
    parent_ids: tuple[int, ...]
    child_ids: tuple[int, ...]
    created_epoch: int
    sealed_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    pruned_at_ms: int
    end_offset: int


def page(incarnation: int, *, limit: int, offset: int = 0) -> tuple[list[PastSegment], int]:
    """A page of a topic's pruned segments, those pruned last first, and how many are remembered."""
    rows = PrunedSegment.objects.filter(topic_id=incarnation).order_by("-pk")
    return _views(rows[offset : offset + limit]), rows.count()


def holding(incarnation: int, hash16: int, *, limit: int) -> list[PastSegment]:
    """The pruned segments that held a hash, the newest of them."""
    rows = PrunedSegment.objects.filter(
        topic_id=incarnation, hash_start__lte=hash16, hash_end__gte=hash16
    ).order_by("-created_epoch", "-segment_id")
    return _views(rows[:limit])


def ranges(refs: Collection[tuple[int, int]]) -> dict[tuple[int, int], HashRange]:
    """The hash ranges of those of these segments, by topic and id, that are remembered as pruned."""
    if not refs:
        return {}
    rows = PrunedSegment.objects.filter(
        topic_id__in={topic_id for topic_id, _ in refs}, segment_id__in={segment_id for _, segment_id in refs}
    )
    found = rows.values_list("topic_id", "segment_id", "hash_start", "hash_end")
    return {(topic_id, segment_id): HashRange(start, end) for topic_id, segment_id, start, end in found}


def sealed_since(incarnations: Collection[int], since: datetime) -> dict[int, list[PastSegment]]:
    """The pruned segments of topics that were sealed at an instant or later, by topic."""
    found: dict[int, list[PastSegment]] = defaultdict(list)
    for row in PrunedSegment.objects.filter(topic_id__in=incarnations, sealed_at__gte=since):
        found[row.topic_id].append(_view(row))
    return found


def all_parents(incarnation: int, segments: Collection[Segment]) -> dict[int, set[int]]:
    """Give the parents that segments had; those that were pruned are no longer named by their children."""
    parents = {segment.segment_id: set(segment.parent_ids) for segment in segments}
    earlier = PrunedSegment.objects.filter(topic_id=incarnation, child_ids__overlap=list(parents))
    for parent_id, child_ids in earlier.values_list("segment_id", "child_ids"):
        for child_id in parents.keys() & set(child_ids):
            parents[child_id].add(parent_id)
    return parents


def owners(incarnation: int, segment_ids: Collection[int]) -> dict[tuple[int, int, int], str]:
    """Who reads these segments: consumers by subscription's id, segment and entry bucket."""
    rows = Assignment.objects.filter(
        subscription__topic_id=incarnation, segment_id__in=segment_ids, owner__isnull=False
    )
    found = rows.values_list("subscription_id", "segment_id", "bucket", "owner")
    return {(key, segment_id, bucket): str(owner) for key, segment_id, bucket, owner in found}


def _views(rows: QuerySet[PrunedSegment]) -> list[PastSegment]:
    return [_view(row) for row in rows]


def _view(row: PrunedSegment) -> PastSegment:
    return PastSegment(
        row.segment_id,
        HashRange(row.hash_start, row.hash_end),
        tuple(row.parent_ids),
        tuple(row.child_ids),
        row.created_epoch,
        row.sealed_epoch,
        milliseconds(row.created_at),
        milliseconds(row.sealed_at),
        milliseconds(row.pruned_at),
        row.end_offset,
    )
