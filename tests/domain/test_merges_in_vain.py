"""What was merged and soon parted again is not merged at once: whose lives count, and what they hold back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import keys
from replay.setup import Setup
from replay.world import World
from scalable.domain.autoscale import decide
from scalable.domain.decision import Action, GuardCode, Merge, Rebucket, Split
from scalable.domain.flaps import merged_for_ms
from scalable.domain.layout import Layout
from scalable.domain.segment import Segment
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, snapshot

HOUR = {"mergeRepeatSeconds": 3_600, "mergeCooldownSeconds": 0, "mergeWindowSeconds": 0}


def apply(layout: Layout, action: Action, at_ms: int) -> Layout:
    """Carry out an action and keep what it seals."""
    plan = (
        layout.plan_split(action.segment_id, action.cuts or None)
        if isinstance(action, Split)
        else layout.plan_merge(action.segment_ids)
        if isinstance(action, Merge)
        else layout.plan_rebucket(action.segment_ids[0], action.bucket_count)
    )
    return layout.apply(plan, at_ms)


def merged_and_split(*, lived_ms: int, split_at_ms: int) -> Layout:
    """Two segments, 0 and 1, merged into 2, which was split into 3 and 4 when it had lived for so long."""
    layout = apply(Layout.initial(2, 0), Merge((0, 1)), split_at_ms - lived_ms)
    return apply(layout, Split(2), split_at_ms)


def sealed(layout: Layout) -> list[Segment]:
    """Give the segments that take no writes."""
    return [segment for segment in layout.segments.values() if not segment.is_active]


def test_a_split_of_a_merged_segment_tells_how_long_that_one_lived() -> None:
    layout = merged_and_split(lived_ms=7, split_at_ms=NOW_MS)
    assert merged_for_ms(layout.active, sealed(layout)) == {3: 7, 4: 7}
    further = apply(layout, Split(3), NOW_MS)
    assert merged_for_ms(further.active, sealed(further)) == {4: 7}
    again = apply(layout, Merge((3, 4)), NOW_MS)
    assert merged_for_ms(again.active, sealed(again)) == {}


def test_what_is_forgotten_or_no_longer_named_as_a_parent_tells_what_is_left_of_it() -> None:
    layout = merged_and_split(lived_ms=7, split_at_ms=NOW_MS)
    nameless = [replace(segment, parent_ids=()) for segment in layout.active]
    past = {segment.segment_id: replace(segment, parent_ids=()) for segment in sealed(layout)}
    assert merged_for_ms(nameless, past.values()) == {3: 7, 4: 7}
    for forgotten in past:
        left = [segment for key, segment in past.items() if key != forgotten]
        assert merged_for_ms(nameless, left) == {}, forgotten


@pytest.mark.parametrize(
    ("lived", "age", "held"),
    [(59, 59, True), (59, 60, False), (60, 1, False), (1, 1, True)],
)
def test_a_merge_that_was_in_vain_is_not_tried_again_for_as_long(lived: int, age: int, held: bool) -> None:
    layout = merged_and_split(lived_ms=lived * MINUTE_MS, split_at_ms=NOW_MS - age * MINUTE_MS)
    lives = merged_for_ms(layout.active, sealed(layout))
    decision = decide(snapshot(layout, policy=HOUR, merged_for_ms=lives), NOW_MS)
    assert decision.action == (None if held else Merge((3, 4)))
    codes = [guard.code for guard in decision.held_by]
    assert codes == ([GuardCode.MERGED_IN_VAIN] if held else [])
    if held:
        assert decision.next_eligible_at_ms == NOW_MS + (60 - age) * MINUTE_MS
        assert decide(snapshot(layout, policy=HOUR, merged_for_ms=lives), decision.next_eligible_at_ms).action
    off = {**HOUR, "mergeRepeatSeconds": 0}
    assert decide(snapshot(layout, policy=off, merged_for_ms=lives), NOW_MS).action == Merge((3, 4))


@pytest.mark.parametrize(
    ("segments", "most", "held"),
    [(4, 4, True), (5, 4, False), (16, 64, True), (17, 64, False), (17, 68, True)],
)
def test_it_waits_only_where_the_topic_has_few_segments(segments: int, most: int, held: bool) -> None:
    lives = dict.fromkeys(range(segments), 0)
    policy = {**HOUR, "maxSegments": most}
    layout = Layout.initial(segments, NOW_MS)
    decision = decide(snapshot(layout, policy=policy, merged_for_ms=lives), NOW_MS)
    assert (decision.action is None) == held
    assert {guard.code for guard in decision.held_by} == ({GuardCode.MERGED_IN_VAIN} if held else set())


def choices(layout: Layout) -> Iterator[Action]:
    """Give what may be done to a small topic."""
    active = [segment.segment_id for segment in layout.active]
    for segment in layout.active:
        if segment.hash_range.size > 1 and len(active) < 6:
            yield Split(segment.segment_id)
    for first in range(len(active) - 1):
        yield Merge(tuple(active[first : first + 2]))
    yield Rebucket((active[0],), 2 * layout.active[0].bucket_count)


@given(st.data())
def test_a_replay_remembers_what_a_topic_would_tell(data: st.DataObject) -> None:
    """It prunes at once, and keeps of what went only how long it lived."""
    world = World(Setup(initial_segments=2), keys.uniform())
    layout = world.layout
    for minute in range(1, data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(list(choices(layout))))
        world.act(action, minute * MINUTE_MS)
        layout = apply(layout, action, minute * MINUTE_MS)
        assert [each.segment_id for each in layout.active] == [
            each.segment_id for each in world.layout.active
        ]
        assert world.merged_for_ms == merged_for_ms(layout.active, sealed(layout))
