"""Entry buckets of layouts by example; numbers are those of the published test vectors of Pulsar 5.0."""

from dataclasses import replace

import pytest

from scalable.domain.buckets import MAX_PER_SEGMENT, MAX_PER_TOPIC, equal_splits, initial_splits
from scalable.domain.cursors import bucket_ranges
from scalable.domain.errors import (
    BucketCountUnchanged,
    InvalidBucketCount,
    LayoutCorrupt,
    SegmentNotActive,
    SegmentNotFound,
    TooManyBuckets,
)
from scalable.domain.keyspace import KEYSPACE_SIZE
from scalable.domain.layout import Layout, ReshapePlan, layout_from_json
from scalable.domain.operations import OperationKind

NOW_MS = 123


def layout(segments: int, budget: int) -> Layout:
    return Layout.initial(segments, NOW_MS, bucket_budget=budget)


def counts(layout: Layout) -> list[int]:
    return [segment.bucket_count for segment in layout.active]


@pytest.mark.parametrize(
    ("count", "splits"),
    [
        (1, ()),
        (2, (32768,)),
        (3, (21845, 43690)),
        (4, (16384, 32768, 49152)),
    ],
)
def test_buckets_are_equally_wide(count: int, splits: tuple[int, ...]) -> None:
    """Vector 30."""
    assert equal_splits(count) == splits


def test_there_are_no_more_buckets_than_hashes() -> None:
    assert equal_splits(KEYSPACE_SIZE + 5) == tuple(range(1, KEYSPACE_SIZE))


@pytest.mark.parametrize(("segments", "buckets"), [(1, 4), (2, 2), (3, 1), (4, 1), (8, 1)])
def test_the_first_segments_share_the_budget(segments: int, buckets: int) -> None:
    """Vector 31."""
    assert len(initial_splits(4, segments)) + 1 == buckets
    assert counts(layout(segments, 4)) == [buckets] * segments


@pytest.mark.parametrize(
    ("buckets", "boundaries", "expected"),
    [(4, None, 2), (1, None, 1), (12, [100, 200], 4), (3, [1, 2, 3], 1)],
)
def test_children_of_a_split_share_their_parents_buckets(
    buckets: int, boundaries: list[int] | None, expected: int
) -> None:
    """Vector 32."""
    whole = layout(1, buckets)
    after = whole.apply(whole.plan_split(0, boundaries), NOW_MS)
    assert set(counts(after)) == {expected}
    after.check()


@pytest.mark.parametrize(("segments", "budget", "limit", "expected"), [(4, 4, 1024, 2), (2, 8, 6, 6)])
def test_a_merged_segment_has_its_parents_buckets_up_to_the_limit(
    segments: int, budget: int, limit: int, expected: int
) -> None:
    """Vector 33."""
    before = layout(segments, budget)
    after = before.apply(before.plan_merge([0, 1], max_buckets=limit), NOW_MS)
    assert after.get(segments).bucket_count == expected


def test_ranges_of_buckets() -> None:
    """Vector 34."""
    ranges = [hash_range.hex for hash_range in bucket_ranges([16384, 32768, 49152])]
    assert ranges == ["0000-3fff", "4000-7fff", "8000-bfff", "c000-ffff"]


def test_a_rebucket_replaces_a_segment_by_one_of_the_same_range() -> None:
    """Vector 27."""
    before = layout(1, 4)
    plan = before.plan_rebucket(0, 8)
    after = before.apply(plan, 123)
    parent, child = after.get(0), after.get(1)
    assert (after.epoch, plan.kind) == (1, OperationKind.REBUCKET)
    assert (parent.is_active, parent.child_ids, parent.sealed_at_ms) == (False, (1,), 123)
    assert (child.hash_range, child.bucket_count, child.parent_ids) == (parent.hash_range, 8, (0,))
    assert after.merge_depth(1) == 0
    after.check()
    assert layout_from_json(after.to_json()) == after
    assert ReshapePlan.from_json(plan.to_json()) == plan


def test_a_rebucket_that_cannot_be_is_refused() -> None:
    """Vector 28."""
    before = layout(1, 4)
    with pytest.raises(SegmentNotFound):
        before.plan_rebucket(7, 8)
    with pytest.raises(BucketCountUnchanged):
        before.plan_rebucket(0, 4)
    after = before.apply(before.plan_rebucket(0, 8), NOW_MS)
    with pytest.raises(SegmentNotActive):
        after.plan_rebucket(0, 2)


@pytest.mark.parametrize("count", [-1, 0, 7])
def test_a_number_of_buckets_outside_the_limits_is_refused(count: int) -> None:
    with pytest.raises(InvalidBucketCount):
        layout(1, 4).plan_rebucket(0, count, max_buckets=6)


def test_a_topic_has_a_limited_number_of_buckets_in_all() -> None:
    whole = layout(MAX_PER_TOPIC // MAX_PER_SEGMENT, 1)
    for segment in whole.active:
        whole = whole.apply(whole.plan_rebucket(segment.segment_id, MAX_PER_SEGMENT), NOW_MS)
    halved = whole.apply(whole.plan_split(whole.active[0].segment_id), NOW_MS)
    low, high, *_ = halved.active
    assert (low.bucket_count, high.bucket_count) == (512, 512)
    with pytest.raises(TooManyBuckets, match=str(MAX_PER_TOPIC + 1)):
        halved.plan_rebucket(low.segment_id, 513)
    halved = halved.apply(halved.plan_rebucket(low.segment_id, 511), NOW_MS)
    halved.apply(halved.plan_rebucket(high.segment_id, 513), NOW_MS).check()


def test_rebuckets_to_different_numbers_are_different_requests() -> None:
    whole = layout(1, 4)
    assert whole.plan_rebucket(0, 8).same_request_as(replace(whole, next_segment_id=9).plan_rebucket(0, 8))
    assert not whole.plan_rebucket(0, 8).same_request_as(whole.plan_rebucket(0, 2))


@pytest.mark.parametrize("splits", [(0,), (5, 5), (9, 3), (70_000,)])
def test_check_notices_buckets_that_do_not_ascend(splits: tuple[int, ...]) -> None:
    sound = layout(1, 4)
    broken = replace(sound.get(0), entry_bucket_splits=splits)
    with pytest.raises(LayoutCorrupt):
        replace(sound, segments={0: broken}).check()
