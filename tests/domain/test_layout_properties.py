"""Whatever is split, merged and pruned in whatever order, a layout stays whole (integer arithmetic alone)."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.keyspace import KEYSPACE_SIZE
from scalable.domain.layout import Layout, ReshapePlan, Segment

STEPS = 1_000


def check_whole(layout: Layout) -> None:
    """Check by counting hashes one by one, without the code under test."""
    covered = bytearray(KEYSPACE_SIZE)
    for segment in layout.segments.values():
        if segment.is_active:
            start, end = segment.hash_range.start, segment.hash_range.end
            assert covered.count(1, start, end + 1) == 0, segment
            covered[start : end + 1] = b"\1" * (end + 1 - start)
    assert covered.count(1) == KEYSPACE_SIZE


def check_parents_sealed_before_children(layout: Layout) -> None:
    for segment in layout.segments.values():
        for parent in (layout.segments[parent_id] for parent_id in segment.parent_ids):
            assert parent.sealed_epoch == segment.created_epoch > parent.created_epoch
            assert parent.sealed_at_ms == segment.created_at_ms
            assert segment.segment_id in parent.child_ids
            assert parent.segment_id < segment.segment_id


def random_step(layout: Layout, random: Random, now_ms: int) -> Layout:
    choice = random.random()
    if choice < 0.15:
        return random_prune(layout, random)
    plan = random_split(layout, random) if choice < 0.6 else random_merge(layout, random)
    if plan is None:
        return layout
    reserved = layout.reserve(plan)
    return reserved if random.random() < 0.1 else reserved.apply(plan, now_ms)


def random_prune(layout: Layout, random: Random) -> Layout:
    prunable = [
        each.segment_id for each in layout.segments.values() if not each.is_active and not each.parent_ids
    ]
    return layout.prune(random.choice(sorted(prunable))) if prunable else layout


def random_split(layout: Layout, random: Random) -> ReshapePlan | None:
    parent = random.choice(layout.active)
    inner = range(parent.hash_range.start + 1, parent.hash_range.end + 1)
    if not inner or len(layout.active) > 60:
        return None
    if random.random() < 0.5:
        return layout.plan_split(parent.segment_id)
    return layout.plan_split(
        parent.segment_id, sorted(random.sample(inner, min(len(inner), random.randint(1, 3))))
    )


def random_merge(layout: Layout, random: Random) -> ReshapePlan | None:
    if len(layout.active) < 2:
        return None
    first = random.randrange(len(layout.active) - 1)
    neighbours: list[Segment] = list(layout.active[first : first + random.randint(2, 4)])
    random.shuffle(neighbours)
    return layout.plan_merge([segment.segment_id for segment in neighbours])


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_random_changes_keep_the_layout_whole(seed: int) -> None:
    random, layout = Random(seed), Layout.initial(1 + seed, 0)
    for step in range(1, STEPS + 1):
        before = layout
        layout = random_step(layout, random, step)
        check_whole(layout)
        assert layout.epoch - before.epoch == (layout.segments != before.segments)
        assert layout.next_segment_id >= before.next_segment_id
    check_parents_sealed_before_children(layout)
    layout.check()
    assert layout.epoch > STEPS // 2


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 25))
def test_any_short_history_is_whole(seed: int, initial_segments: int, steps: int) -> None:
    random, layout = Random(seed), Layout.initial(initial_segments, 0)
    for step in range(1, steps + 1):
        layout = random_step(layout, random, step)
        layout.check()
    check_whole(layout)
    check_parents_sealed_before_children(layout)


@given(st.integers(0, 2**32), st.integers(0, KEYSPACE_SIZE - 1))
def test_every_hash_finds_the_one_segment_that_contains_it(seed: int, hash16: int) -> None:
    random, layout = Random(seed), Layout.initial(3, 0)
    for step in range(1, 20):
        layout = random_step(layout, random, step)
    holders = [segment for segment in layout.active if segment.hash_range.contains(hash16)]
    assert holders == [layout.find_active(hash16)]


@given(st.integers(0, 2**32))
def test_splits_and_merges_alone_never_forget_a_segment(seed: int) -> None:
    random, layout = Random(seed), Layout.initial(2, 0)
    for step in range(1, 15):
        plan = random_split(layout, random) if random.random() < 0.6 else random_merge(layout, random)
        if plan is not None:
            before = set(layout.segments)
            layout = layout.apply(plan, step)
            assert set(layout.segments) == before | set(plan.child_ids)
    oldest = {key for key in layout.segments if not layout.segments[key].parent_ids}
    assert oldest == {0, 1}


def test_ten_thousand_changes_do_not_make_a_layout_larger() -> None:
    """What is pruned leaves no trace in it: nothing grows but the numbers."""
    layout, sizes = Layout.initial(1, 0), []
    for step in range(5_000):
        (active,) = layout.active
        layout = layout.apply(layout.plan_split(active.segment_id), step)
        layout = layout.apply(layout.plan_merge([each.segment_id for each in layout.active]), step)
        while not all(each.is_active for each in layout.segments.values()):
            layout = random_prune(layout, Random(step))
        sizes.append(len(json.dumps(layout.to_json())))
    assert (layout.epoch >= 10_000, len(layout.segments)) == (True, 1)
    assert max(sizes) - min(sizes) < 100
