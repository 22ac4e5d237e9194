"""Which segments leave a layout, and in which order."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import ScalableError
from scalable.domain.layout import Layout
from scalable.domain.pruning import pause_seconds, prune_oldest
from scalable.domain.segment import Segment

LIMIT = 10_000


def grown(random: Random, steps: int) -> Layout:
    """A layout after random splits and merges."""
    layout = Layout.initial(2, now_ms=0)
    for step in range(steps):
        index = random.randrange(len(layout.active))
        pair = [segment.segment_id for segment in layout.active[index : index + 2]]
        try:
            plan = layout.plan_split(pair[0]) if random.random() < 0.5 else layout.plan_merge(pair)
        except ScalableError:
            continue
        layout = layout.apply(plan, now_ms=step)
    return layout


@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_what_leaves_is_sealed_willing_and_without_kept_ancestors(random: Random, steps: int) -> None:
    layout = grown(random, steps)
    willing = {key for key in layout.segments if random.random() < 0.8}
    pruning = prune_oldest(layout, lambda segment: segment.segment_id in willing, limit=LIMIT)
    pruning.layout.check()
    gone = [segment.segment_id for segment in pruning.segments]
    assert set(gone) == layout.segments.keys() - pruning.layout.segments.keys()
    assert pruning.layout.epoch == layout.epoch + len(gone)
    assert pruning.layout.next_segment_id == layout.next_segment_id
    for place, segment_id in enumerate(gone):
        assert not layout.segments[segment_id].is_active
        assert segment_id in willing
        assert layout.ancestors(segment_id) <= set(gone[:place])
    for segment in pruning.layout.segments.values():  # and everything that could go went
        stays = segment.is_active or segment.segment_id not in willing or segment.parent_ids
        assert stays, segment


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_the_limit_holds(limit: int) -> None:
    layout = Layout.initial(1, now_ms=0)
    for segment_id in (0, 1, 3):
        layout = layout.apply(layout.plan_split(segment_id), now_ms=1)
    pruning = prune_oldest(layout, lambda _: True, limit=limit)
    assert [segment.segment_id for segment in pruning.segments] == [0, 1, 3][:limit]


def test_each_is_asked_about_once() -> None:
    layout = Layout.initial(1, now_ms=0)
    for segment_id in (0, 1):
        layout = layout.apply(layout.plan_split(segment_id), now_ms=1)
    layout = layout.apply(layout.plan_merge([3, 4, 2]), now_ms=2)
    asked: list[int] = []

    def may_go(segment: Segment) -> bool:
        asked.append(segment.segment_id)
        return True

    pruning = prune_oldest(layout, may_go, limit=LIMIT)
    assert sorted(asked) == [0, 1, 2, 3, 4]
    assert sorted(pruning.layout.segments) == [5]


@pytest.mark.parametrize(
    ("quiet", "interval", "retention", "pause"),
    [
        (0, 30, 0, 30),
        (1, 30, 0, 60),
        (4, 30, -1, 480),
        (5, 30, 0, 480),
        (32_767, 30, 0, 480),  # as much as the row can hold
        (4, 30, 600, 60),  # a tenth of the retention
        (4, 30, 100, 30),  # never below the interval
        (3, 0.01, 3_600, 0.08),
    ],
)
def test_pauses_double_within_bounds(quiet: int, interval: float, retention: int, pause: float) -> None:
    found = pause_seconds(quiet_sweeps=quiet, interval_seconds=interval, retention_seconds=retention)
    assert found == pytest.approx(pause)
