"""Layouts by example; numbers are those of the published test vectors of Pulsar 5.0."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from scalable.domain.errors import (
    InvalidBoundaries,
    InvalidInitialSegments,
    LayoutCorrupt,
    SegmentNotActive,
    SegmentNotFound,
    SegmentNotPrunable,
    SegmentsNotAdjacent,
    SegmentTooNarrow,
    TooManyParts,
)
from scalable.domain.keyspace import MAX_PARTS, HashRange, key_hash, segment_hash
from scalable.domain.layout import (
    Layout,
    PlannedSegment,
    ReshapePlan,
    Segment,
    SegmentState,
    layout_from_json,
)
from scalable.domain.operations import OperationKind

NOW_MS = 1_700_000_000_000


def initial(count: int) -> Layout:
    return Layout.initial(count, NOW_MS)


def split(layout: Layout, segment_id: int, boundaries: Sequence[int] | None = None) -> Layout:
    return layout.apply(layout.plan_split(segment_id, boundaries), NOW_MS)


def merge(layout: Layout, *segment_ids: int) -> Layout:
    return layout.apply(layout.plan_merge(segment_ids), NOW_MS)


def ranges(layout: Layout) -> list[str]:
    return [segment.hash_range.hex for segment in layout.active]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(1, ["0000-ffff"], id="vector 12a"),
        pytest.param(2, ["0000-7fff", "8000-ffff"], id="vector 12b"),
        pytest.param(3, ["0000-5554", "5555-aaa9", "aaaa-ffff"], id="vector 13"),
        pytest.param(4, ["0000-3fff", "4000-7fff", "8000-bfff", "c000-ffff"], id="vector 14"),
    ],
)
def test_initial_layout(count: int, expected: list[str]) -> None:
    layout = initial(count)
    assert ranges(layout) == expected
    assert (layout.epoch, layout.next_segment_id) == (0, count)
    assert sorted(layout.segments) == list(range(count))
    layout.check()


@pytest.mark.parametrize("count", [pytest.param(0, id="vector 17"), -1, 65537])
def test_impossible_initial_counts(count: int) -> None:
    with pytest.raises(InvalidInitialSegments):
        initial(count)


def test_the_finest_layout_has_one_hash_a_segment() -> None:
    layout = initial(65536)
    layout.check()
    assert layout.find_active(0x1234).segment_id == 0x1234


def test_vector_18_routing_by_hash() -> None:
    layout = initial(2)
    assert layout.find_active(0x1000).segment_id == 0
    assert layout.find_active(0x9000).segment_id == 1


def test_vector_46_routing_by_key() -> None:
    layout = initial(2)
    assert layout.find_active(segment_hash(key_hash("k1"))).segment_id == 1
    assert layout.find_active(segment_hash(key_hash("key2"))).segment_id == 0


def test_vector_19_split() -> None:
    layout = split(initial(2), 0)
    assert (layout.epoch, layout.next_segment_id) == (1, 4)
    assert (len(layout.active), len(layout.segments)) == (3, 4)
    parent = layout.get(0)
    assert (parent.state, parent.child_ids) == (SegmentState.SEALED, (2, 3))
    assert (parent.created_epoch, parent.sealed_epoch) == (0, 1)
    low, high = layout.get(2), layout.get(3)
    assert (low.hash_range.hex, high.hash_range.hex) == ("0000-3fff", "4000-7fff")
    assert low.parent_ids == high.parent_ids == (0,)
    layout.check()


def test_vector_20_ids_rise_over_splits() -> None:
    assert split(split(initial(2), 0), 1).next_segment_id == 6


def test_vector_21_a_sealed_segment_is_not_split_again() -> None:
    with pytest.raises(SegmentNotActive) as caught:
        split(split(initial(2), 0), 0)
    assert caught.value.child_ids == [2, 3]


def test_vector_22_merge() -> None:
    layout = merge(split(initial(2), 0), 2, 3)
    child = layout.get(4)
    assert layout.epoch == 2
    assert (child.hash_range.hex, child.parent_ids) == ("0000-7fff", (2, 3))
    assert len(layout.active) == 2
    layout.check()


@pytest.mark.parametrize(
    "segment_ids", [pytest.param((0, 2), id="vector 23"), (0, 0), (1,), (), (0, 1, 3), (0, 1, 1), (3, 0)]
)
def test_segments_that_are_not_neighbours_do_not_merge(segment_ids: tuple[int, ...]) -> None:
    with pytest.raises(SegmentsNotAdjacent):
        initial(4).plan_merge(segment_ids)


def test_vector_24_one_time_stamp_for_parent_and_children() -> None:
    layout = Layout.initial(1, 5)
    layout = layout.apply(layout.plan_split(0), NOW_MS)
    assert layout.get(0).sealed_at_ms == layout.get(1).created_at_ms == layout.get(2).created_at_ms == NOW_MS
    assert layout.get(1).sealed_at_ms == layout.get(2).sealed_at_ms == -1
    assert layout.get(1).sealed_epoch == 0


def test_time_may_begin_at_zero() -> None:
    layout = Layout.initial(1, 0)
    layout.apply(layout.plan_split(0), 0).check()


def test_vector_26_an_active_segment_is_not_pruned() -> None:
    with pytest.raises(SegmentNotPrunable):
        initial(1).prune(0)


def test_merge_parents_keep_the_order_of_the_request() -> None:
    layout = merge(initial(4), 2, 0, 1)
    assert layout.get(4).parent_ids == (2, 0, 1)
    assert ranges(layout) == ["0000-bfff", "c000-ffff"]
    layout.check()


def test_split_at_boundaries() -> None:
    layout = split(initial(2), 1, [0x9000, 0xFFFF])
    assert ranges(layout) == ["0000-7fff", "8000-8fff", "9000-fffe", "ffff-ffff"]
    layout.check()


@pytest.mark.parametrize(
    "boundaries", [[], [0x8000], [0x7FFF], [0x10000], [0x9000, 0x9000], [0xA000, 0x9000], [-1]]
)
def test_boundaries_that_do_not_divide_the_segment(boundaries: list[int]) -> None:
    with pytest.raises(InvalidBoundaries):
        initial(2).plan_split(1, boundaries)


def test_so_many_parts_and_no_more() -> None:
    layout = split(initial(1), 0, range(1, MAX_PARTS))
    assert len(layout.active) == MAX_PARTS
    merged = [each.segment_id for each in layout.active]
    assert layout.plan_merge(merged).child_ids
    with pytest.raises(TooManyParts, match="257"):
        initial(1).plan_split(0, range(1, MAX_PARTS + 1))
    last = layout.active[-1].segment_id
    wider = split(layout, last)
    with pytest.raises(TooManyParts, match="257"):
        wider.plan_merge([each.segment_id for each in wider.active])


def test_one_hash_cannot_be_split_in_any_way() -> None:
    layout = split(initial(2), 1, [0xFFFF])
    narrow = layout.find_active(0xFFFF).segment_id
    for boundaries in (None, [0xFFFF]):
        with pytest.raises(SegmentTooNarrow):
            layout.plan_split(narrow, boundaries)


QUESTIONS: dict[str, Callable[[Layout], object]] = {
    "get": lambda layout: layout.get(9),
    "split": lambda layout: layout.plan_split(9),
    "merge": lambda layout: layout.plan_merge([0, 9]),
    "prune": lambda layout: layout.prune(9),
    "ancestors": lambda layout: layout.ancestors(9),
    "descendants": lambda layout: layout.descendants(9),
    "merge depth": lambda layout: layout.merge_depth(9),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_unknown_segments_are_named(question: Callable[[Layout], object]) -> None:
    with pytest.raises(SegmentNotFound) as caught:
        question(initial(2))
    assert caught.value.segment_id == 9


def test_a_plan_survives_a_disjoint_change_and_burns_its_ids() -> None:
    layout = initial(2)
    first = layout.plan_split(0)
    layout = layout.reserve(first)
    second = layout.plan_split(1)
    layout = layout.reserve(second)
    assert (first.child_ids, second.child_ids, layout.epoch) == ((2, 3), (4, 5), 0)
    layout = layout.apply(second, NOW_MS).apply(first, NOW_MS)
    assert (layout.epoch, layout.next_segment_id) == (2, 6)
    assert ranges(layout) == ["0000-3fff", "4000-7fff", "8000-bfff", "c000-ffff"]
    layout.check()


def test_an_abandoned_plan_leaves_a_gap_and_no_id_twice() -> None:
    layout = initial(1)
    abandoned = layout.plan_split(0)
    layout = layout.reserve(abandoned)
    later = layout.plan_split(0)
    assert not set(later.child_ids) & set(abandoned.child_ids)
    assert later.same_request_as(abandoned)
    layout.apply(later, NOW_MS).check()


def test_a_plan_is_refused_once_its_parent_is_gone() -> None:
    layout = initial(2)
    plan = layout.plan_split(0)
    with pytest.raises(SegmentNotActive):
        merge(layout.reserve(plan), 0, 1).apply(plan, NOW_MS)


def _plan(layout: Layout, *child_ranges: HashRange, parents: tuple[int, ...] = (0,)) -> ReshapePlan:
    children = (PlannedSegment(layout.next_segment_id + n, each) for n, each in enumerate(child_ranges))
    return ReshapePlan(OperationKind.SPLIT, parents, tuple(children))


@pytest.mark.parametrize(
    "child_ranges",
    [
        [HashRange(0, 0x3FFF)],
        [HashRange(0, 0x3FFF), HashRange(0x3FFF, 0x7FFF)],
        [HashRange(0, 0x3FFF), HashRange(0x4001, 0x8000)],
        [HashRange(0x8000, 0xFFFF)],
    ],
)
def test_children_that_do_not_cover_their_parents_are_refused(child_ranges: list[HashRange]) -> None:
    layout = initial(2)
    with pytest.raises(LayoutCorrupt):
        layout.apply(_plan(layout, *child_ranges), NOW_MS)


def test_children_under_ids_in_use_are_refused() -> None:
    layout = initial(2)
    plan = ReshapePlan(OperationKind.SPLIT, (0,), (PlannedSegment(1, HashRange(0, 0x7FFF)),))
    with pytest.raises(LayoutCorrupt):
        layout.apply(plan, NOW_MS)


def test_equal_requests_are_recognised_whatever_order_and_ids() -> None:
    layout = initial(4)
    assert layout.plan_merge([0, 1]).same_request_as(layout.plan_merge([1, 0]))
    assert not layout.plan_merge([0, 1]).same_request_as(layout.plan_merge([0, 1, 2]))
    assert layout.plan_split(0).same_request_as(layout.plan_split(0, [0x2000]))
    assert not layout.plan_split(0).same_request_as(layout.plan_split(0, [0x2001]))


def test_manual_and_automatic_split_compute_the_same_point() -> None:
    layout = split(initial(1), 0, [0x0003])
    middle = layout.get(1).hash_range.midpoint_split()[1].start
    assert layout.plan_split(1).same_request_as(layout.plan_split(1, [middle]))


def test_lineage_and_merge_depth() -> None:
    layout = merge(split(split(initial(1), 0), 1), 3, 4)
    assert layout.ancestors(5) == {0, 1, 3, 4}
    assert layout.descendants(1) == {3, 4, 5}
    assert [layout.merge_depth(key) for key in (0, 2, 3, 5)] == [0, 0, 0, 1]
    layout = merge(layout, 5, 2)
    assert layout.merge_depth(6) == 2
    layout = split(layout, 6)
    assert [layout.merge_depth(child.segment_id) for child in layout.active] == [2, 2]


def test_pruning_goes_oldest_first_so_that_descendants_keep_waiting_for_what_is_kept() -> None:
    layout = split(split(initial(1), 0), 1)
    with pytest.raises(SegmentNotPrunable):
        layout.prune(1)
    pruned = layout.prune(0)
    assert pruned.epoch == layout.epoch + 1
    assert pruned.get(1).parent_ids == ()
    assert pruned.next_segment_id == layout.next_segment_id
    pruned.check()
    assert pruned.prune(1).ancestors(3) == frozenset()


def test_json_has_the_documented_names_and_comes_back() -> None:
    layout = split(initial(1), 0)
    body = layout.to_json()
    assert body["segments"]["0"] == {
        "segmentId": 0,
        "hashRange": {"start": 0, "end": 65535},
        "state": "SEALED",
        "parentIds": [],
        "childIds": [1, 2],
        "createdAtEpoch": 0,
        "sealedAtEpoch": 1,
        "createdAtMs": NOW_MS,
        "sealedAtMs": NOW_MS,
        "entryBucketSplits": [],
    }
    assert (body["segments"]["1"]["sealedAtEpoch"], body["segments"]["1"]["sealedAtMs"]) == (0, -1)
    assert layout_from_json(body) == layout
    plan = layout.plan_merge([2, 1])
    assert ReshapePlan.from_json(plan.to_json()) == plan


CORRUPTIONS: dict[str, Callable[[Segment], Segment]] = {
    "unsealed parent": lambda parent: replace(
        parent, state=SegmentState.ACTIVE, sealed_epoch=0, sealed_at_ms=-1, child_ids=()
    ),
    "forgotten child": lambda parent: replace(parent, child_ids=(2,)),
    "invented child": lambda parent: replace(parent, child_ids=(2, 3, 9)),
    "no child": lambda parent: replace(parent, child_ids=()),
    "sealed in another epoch": lambda parent: replace(parent, created_epoch=0, sealed_epoch=2),
    "sealed before its creation": lambda parent: replace(parent, created_epoch=1),
    "never sealed": lambda parent: replace(parent, sealed_at_ms=-1),
    "another id": lambda parent: replace(parent, segment_id=7),
    "another range": lambda parent: replace(parent, hash_range=HashRange(0x8000, 0xFFFF)),
}


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS.keys())
def test_check_notices_a_corrupt_parent(corrupt: Callable[[Segment], Segment]) -> None:
    layout = split(initial(2), 0)
    broken = replace(layout, epoch=2, segments={**layout.segments, 0: corrupt(layout.get(0))})
    with pytest.raises(LayoutCorrupt):
        broken.check()


@pytest.mark.parametrize(
    "change",
    [
        {"state": SegmentState.SEALED, "sealed_epoch": 2, "sealed_at_ms": 1},
        {"hash_range": HashRange(0, 0x4000)},
        {"hash_range": HashRange(1, 0x3FFF)},
        {"sealed_epoch": 1},
        {"child_ids": (3,)},
        {"parent_ids": (1,)},
        {"created_epoch": 9},
    ],
)
def test_check_notices_a_corrupt_child(change: dict[str, object]) -> None:
    layout = split(initial(2), 0)
    broken = replace(layout, segments={**layout.segments, 2: replace(layout.get(2), **change)})  # type: ignore[arg-type]
    with pytest.raises(LayoutCorrupt):
        broken.check()


def test_check_notices_an_id_that_was_never_given_out() -> None:
    with pytest.raises(LayoutCorrupt):
        replace(initial(2), next_segment_id=1).check()


def test_a_refused_change_changes_nothing() -> None:
    layout = split(initial(2), 0)
    before = layout.to_json()
    with pytest.raises(SegmentNotPrunable):
        layout.prune(1)
    with pytest.raises(SegmentNotActive):
        split(layout, 0)
    with pytest.raises(SegmentsNotAdjacent):
        merge(layout, 1, 2)
    assert layout.to_json() == before


def test_merge_depth_stops_counting_at_its_limit() -> None:
    layout = merge(split(merge(split(initial(1), 0), 1, 2), 3), 4, 5)
    assert [layout.merge_depth(6, limit) for limit in (None, 0, 1, 2, 3)] == [2, 0, 1, 2, 2]
