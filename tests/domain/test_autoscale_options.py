"""The options beyond PIP-483: what each does alone, and what all of them never do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.autoscale import Merge, Rebucket, Snapshot, Split, decide
from scalable.domain.autoscale_cuts import balanced_cuts, hottest_part, isolating_cuts
from scalable.domain.decision import GuardCode
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout
from scalable.domain.load import Peak, SegmentRates, Trend
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, OLD_MS, load, snapshot

FULL = HashRange(0, 65_535)


def peak(rate: float, until_ms: int = NOW_MS + 10 * MINUTE_MS) -> Peak:
    """Give a peak of messages in."""
    return Peak(SegmentRates(rate), until_ms)


@pytest.mark.parametrize(
    ("rate", "policy", "children"),
    [
        (10_001, {"maxSplitChildren": 16, "splitTargetShare": 0.75}, 2),
        (29_000, {"maxSplitChildren": 16, "splitTargetShare": 0.75}, 4),
        (29_000, {}, 2),
        (1e9, {"maxSplitChildren": 16}, 16),
        (1e9, {"maxSplitChildren": 16, "maxSegments": 5}, 5),
    ],
)
def test_a_hot_segment_is_cut_into_as_many_as_its_load_asks_for(
    rate: float, policy: dict[str, Any], children: int
) -> None:
    case = snapshot(1, {0: load(rate)}, policy)
    action = decide(case, NOW_MS).action
    assert isinstance(action, Split)
    plan = case.layout.plan_split(action.segment_id, action.cuts or None)
    assert len(plan.children) == children
    assert len({child.hash_range.size for child in plan.children}) <= 2


@pytest.mark.parametrize(("actions", "expected"), [(1, (1,)), (2, (1, 3)), (9, (1, 3, 0))])
def test_several_hot_segments_are_split_at_once_the_hottest_first(
    actions: int, expected: tuple[int, ...]
) -> None:
    loads = {0: load(11_000), 1: load(30_000), 2: load(9_000), 3: load(20_000)}
    decision = decide(snapshot(4, loads, {"maxActionsPerTick": actions}), NOW_MS)
    assert decision.segment_ids == expected
    assert [margin.segment_ids for margin in decision.fired_by] == [(each,) for each in expected]


def test_consumers_get_their_segments_in_one_decision() -> None:
    policy = {"maxActionsPerTick": 8, "maxSplitChildren": 4}
    decision = decide(snapshot(2, policy=policy, stream_consumers={"s": 8}), NOW_MS)
    assert [len(action.cuts) for action in decision.actions if isinstance(action, Split)] == [3, 3]


def test_cuts_go_where_the_load_lies_and_say_when_that_is_not_known() -> None:
    heat = {0: [3.0, 1.0, 0.0, 0.0]}
    case = snapshot(1, {0: load(12_000)}, {"loadBalancedSplit": True}, heat=heat)
    assert decide(case, NOW_MS).action == Split(0, (10_923,))
    unknown = decide(snapshot(1, {0: load(12_000)}, {"loadBalancedSplit": True}), NOW_MS)
    assert unknown.action == Split(0)
    assert unknown.fired is not None
    assert "not known" in unknown.fired.detail


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=64), st.integers(2, 20), st.integers(2, 65_536))
def test_balanced_cuts_are_legal(heat: list[float], children: int, size: int) -> None:
    hash_range = HashRange(65_536 - size, 65_535)
    if sum(heat) > 0:
        cuts = balanced_cuts(hash_range, heat, children)
        assert 2 <= len(hash_range.split_at(cuts)) <= children


@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("hot", [0, 1, 777, 40_000, 65_535])
def test_a_key_with_most_of_the_load_is_alone_within_three_actions(segments: int, hot: int) -> None:
    layout, actions = Layout.initial(segments, OLD_MS), 0
    while layout.find_active(hot).hash_range.size > 1:
        loads, heat = {}, {}
        for each in layout.active:
            even = 4_800 * each.hash_range.size / 65_536 / 32
            heat[each.segment_id] = [even] * 32
            if each.hash_range.contains(hot):
                heat[each.segment_id][each.hash_range.part_of(hot, 32)] += 7_200
            loads[each.segment_id] = load(sum(heat[each.segment_id]))
        case = snapshot(layout, loads, {"profile": "recommended"}, heat=heat)
        (action,) = decide(case, NOW_MS).actions
        assert isinstance(action, Split)
        layout = layout.apply(layout.plan_split(action.segment_id, action.cuts), NOW_MS)
        actions += 1
    assert actions <= 3


@given(st.integers(2, 65_536), st.integers(1, 64), st.data())
def test_the_hottest_part_is_found_and_can_be_cut_out(size: int, parts: int, data: st.DataObject) -> None:
    hash_range = HashRange(0, size - 1)
    hot = data.draw(st.integers(0, size - 1))
    heat = [0.0] * parts
    heat[hash_range.part_of(hot, parts)] = 1.0
    part, rate = hottest_part(hash_range, heat)
    assert part.contains(hot)
    assert rate == 1.0
    cuts = isolating_cuts(hash_range, part)
    assert cuts
    assert any(each.contains(hot) for each in hash_range.split_at(cuts))


def test_a_rise_is_split_for_before_it_comes() -> None:
    trends = {0: Trend(SegmentRates(8_000), (50.0, 0.0, 0.0, 0.0))}
    assert decide(snapshot(1, {0: load(8_000)}, trends=trends), NOW_MS).action is None
    ahead = {"lookAheadSeconds": 60}
    assert decide(snapshot(1, {0: load(8_000)}, ahead, trends=trends), NOW_MS).action == Split(0)
    held = decide(snapshot(1, {0: load(8_000)}, ahead), NOW_MS)
    assert [guard.code for guard in held.held_by] == [GuardCode.TREND_UNKNOWN]


@pytest.mark.parametrize(
    ("policy", "merged"),
    [
        ({"maxMergeSegments": 8}, [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ({"maxMergeSegments": 4, "maxActionsPerTick": 2}, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ({"maxMergeSegments": 8, "mergeTargetShare": 0.5}, [(0, 1, 2, 3, 4)]),
        ({"maxMergeSegments": 8, "minSegments": 6}, [(0, 1, 2)]),
        ({"maxMergeSegments": 8, "mergeKeepsConsumers": True}, [(0, 1, 2, 3, 4)]),
        ({"maxMergeSegments": 8, "mergeTargetShare": 0.3, "minMergeSegments": 4}, []),
        ({"mergeMinAgeSeconds": 3_600}, []),
        ({"mergePeakSeconds": 600}, []),
    ],
)
def test_runs_of_neighbours_merge_as_far_as_they_fit(
    policy: dict[str, Any], merged: list[tuple[int, ...]]
) -> None:
    case = snapshot(8, {each: load(900) for each in range(8)}, policy, stream_consumers={"s": 4})
    decision = decide(case, NOW_MS)
    assert [action.segment_ids for action in decision.actions] == merged
    assert merged or decision.held_by


@pytest.mark.parametrize(("share", "high", "low"), [(0.5, 4_000, 2_000), (0, 1_000, 999)])
def test_peaks_hold_a_merge_back_until_so_many_have_passed_that_the_rest_allows_it(
    share: float, high: float, low: float
) -> None:
    policy = {"mergeTargetShare": share, "mergePeakSeconds": 600}
    later = NOW_MS + 7 * MINUTE_MS
    peaks = {
        0: (peak(high * 2, NOW_MS + MINUTE_MS), peak(high, later), peak(low, later + MINUTE_MS)),
        1: (peak(low, later + MINUTE_MS),),
    }
    case = snapshot(2, policy=policy, peaks=peaks)
    decision = decide(case, NOW_MS)
    assert [guard.code for guard in decision.held_by] == [GuardCode.RECENT_PEAK]
    assert decision.next_eligible_at_ms == later
    assert decide(case, later - 1).action is None
    assert decide(case, later).action == Merge((0, 1))


def test_a_split_provides_for_the_cooldown_that_it_begins() -> None:
    """It is as wide as the load at its end asks for, and takes along what would be hot by then."""
    policy = {
        "lookAheadSeconds": 20,
        "splitCooldownSeconds": 100,
        "splitTargetShare": 1,
        "maxSplitChildren": 16,
        "maxActionsPerTick": 4,
    }
    loads = {0: load(9_900), 1: load(5_000), 2: load(5_000), 3: load(9_000)}
    slopes = {0: 150.0, 1: 50.0, 2: 20.0, 3: 0.0}
    trends = {key: Trend(loads[key].rates, (slope, 0.0, 0.0, 0.0)) for key, slope in slopes.items()}
    actions = decide(snapshot(4, loads, policy, trends=trends), NOW_MS).actions
    assert [(each.segment_ids, len(each.cuts)) for each in actions if isinstance(each, Split)] == [
        ((0,), 3),
        ((1,), 0),
    ]
    later = {**policy, "lookAheadSeconds": 0}
    assert decide(snapshot(4, loads, later, trends=trends), NOW_MS).action is None


@pytest.mark.parametrize(
    ("room", "children"), [(2, [2, 2, 2]), (3, [2, 2, 2]), (5, [4, 2, 2]), (7, [4, 4, 2]), (99, [8, 8, 8])]
)
def test_where_there_is_no_room_for_all_the_fullest_children_are_halved_first(
    room: int, children: list[int]
) -> None:
    """A split too many is left out; it comes last."""
    loads = {0: load(60_000), 1: load(50_000), 2: load(42_000)}
    policy = {"maxSegments": 3 + room, "maxSplitChildren": 8, "splitTargetShare": 1, "maxActionsPerTick": 9}
    decision = decide(snapshot(3, loads, policy), NOW_MS)
    found = [max(2, len(each.cuts) + 1) for each in decision.actions if isinstance(each, Split)]
    assert found == children[: 2 if room == 2 else 3]


ALONE = {"isolateDominantKey": True, "mergeTargetShare": 0.9, "mergeWindowSeconds": 0, "minSegments": 1}


@pytest.mark.parametrize(("rate", "merges"), [(6_000, False), (2_000, True)])
def test_a_key_that_dominates_its_topic_is_not_merged_only_to_be_cut_out_again(
    rate: float, merges: bool
) -> None:
    """Below half of a split threshold it would not be cut out, and may merge."""
    layout = Layout.initial(1, OLD_MS)
    layout = layout.apply(layout.plan_split(0, (0x4000, 0x4001)), OLD_MS).prune(0)
    loads = {1: load(500), 2: load(rate), 3: load(500)}
    heat = {key: [record.rates.msg_rate_in / 32] * 32 for key, record in loads.items()}
    decision = decide(snapshot(layout, loads, ALONE, heat=heat), NOW_MS)
    assert (decision.action is not None) == merges
    assert (GuardCode.DOMINANT_KEY in [guard.code for guard in decision.held_by]) != merges


def test_room_is_made_for_what_can_be_split_and_only_when_nothing_else_holds_it_back() -> None:
    """A segment of a single hash stays the hottest whatever is merged; it asks for no room."""
    layout = Layout.initial(1, OLD_MS)
    layout = layout.apply(layout.plan_split(0, (1, 0x4000, 0x8000)), OLD_MS).prune(0)
    policy = {"maxSegments": 4, "mergeMakesRoom": True, "maxActionsPerTick": 4}
    loads = {1: load(90_000), 2: load(4_000), 3: load(4_000), 4: load(20_000)}
    case = snapshot(layout, loads, policy)
    assert decide(case, NOW_MS).action == Merge((2, 3))
    warm = {1: load(90_000), 2: load(9_000), 3: load(9_000), 4: load(20_000)}
    assert decide(snapshot(layout, warm, policy), NOW_MS).action is None
    assert decide(snapshot(layout, {**loads, 4: load(4_000)}, policy), NOW_MS).action is None
    assert decide(replace(case, last_split_at_ms=NOW_MS - 1_000), NOW_MS).action is None


def test_at_the_cap_cold_neighbours_make_room_for_a_hot_segment() -> None:
    loads = {0: load(30_000), 1: load(2_000), 2: load(2_500), 3: load(9_000)}
    policy = {"maxSegments": 4, "mergeMakesRoom": True}
    decision = decide(snapshot(4, loads, policy, last_merge_at_ms=NOW_MS), NOW_MS)
    assert (decision.action, decision.rule) == (Merge((1, 2)), "makes-room")
    even = {each: load(11_000) for each in range(4)}
    assert decide(snapshot(4, even, policy), NOW_MS).action is None


rates = st.floats(0, 1e6)
records = st.builds(load, rates, rates, rates, rates, st.integers(OLD_MS, NOW_MS))
instants = st.integers(NOW_MS - MINUTE_MS, NOW_MS + 30 * MINUTE_MS)
FRACTIONS = st.sampled_from([0.1, 0.5, 0.75, 1.0])


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "profile": draw(st.sampled_from(["pip-483", "pulsar-5.0", "recommended"])),
        "minSegments": draw(st.integers(1, 4)),
        "maxSegments": draw(st.integers(4, 14)),
        "maxActionsPerTick": draw(st.integers(1, 8)),
        "maxSplitChildren": draw(st.integers(2, 9)),
        "maxMergeSegments": draw(st.integers(2, 9)),
        "minMergeSegments": draw(st.integers(2, 4)),
        "splitTargetShare": draw(FRACTIONS),
        "mergeTargetShare": draw(FRACTIONS | st.just(0)),
        "dominantKeyShare": draw(FRACTIONS),
        "lookAheadSeconds": draw(st.sampled_from([0, 60])),
        "mergePeakSeconds": draw(st.sampled_from([0, 600])),
        "loadBalancedSplit": draw(st.booleans()),
        "isolateDominantKey": draw(st.booleans()),
        "mergeMakesRoom": draw(st.booleans()),
    }


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    count = draw(st.integers(1, 14))
    cuts = draw(st.sets(st.integers(1, 65_535), min_size=count, max_size=count))
    layout = Layout.initial(1, OLD_MS)
    layout = layout.apply(layout.plan_split(0, sorted(cuts)), OLD_MS)
    ids = st.sampled_from([each.segment_id for each in layout.active])
    heats = st.lists(rates, min_size=32, max_size=32)
    slopes = st.tuples(*[st.floats(-1e4, 1e4)] * 4)
    trends = st.builds(Trend, st.builds(SegmentRates, rates), slopes)
    return snapshot(
        layout,
        draw(st.dictionaries(ids, records)),
        draw(policies()),
        heat=draw(st.dictionaries(ids, heats, max_size=4)),
        trends=draw(st.dictionaries(ids, trends, max_size=4)),
        peaks=draw(st.dictionaries(ids, st.lists(st.builds(peak, rates, instants), max_size=3))),
        stream_consumers=draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 40))),
        load_known=draw(st.booleans()),
    )


@given(snapshots())
def test_actions_are_disjoint_legal_bounded_and_the_same_each_time(case: Snapshot) -> None:
    decision = decide(case, NOW_MS)
    assert decision == decide(case, NOW_MS)
    assert len(decision.actions) == len(decision.fired_by) <= case.policy.max_actions_per_tick
    assert len(set(decision.segment_ids)) == len(decision.segment_ids)
    layout, before = case.layout, len(case.layout.active)
    for action in decision.actions:
        if isinstance(action, Split):
            layout = layout.apply(layout.plan_split(action.segment_id, action.cuts or None), NOW_MS)
        elif isinstance(action, Merge):
            layout = layout.apply(layout.plan_merge(action.segment_ids), NOW_MS)
        elif isinstance(action, Rebucket):
            for segment_id in action.segment_ids:
                layout = layout.apply(layout.plan_rebucket(segment_id, action.bucket_count), NOW_MS)
    layout.check()
    assert len(layout.active) <= max(case.policy.max_segments, before)
    assert len(layout.active) >= min(case.policy.min_segments, before)
    assert decision.explanation["key"] == decision.key


def test_heat_is_summed_once_however_many_runs_may_merge() -> None:
    reads: list[int] = []

    class Heat(dict[int, tuple[float, ...]]):
        def get(self, key: int, default: Any = None) -> Any:
            reads.append(key)
            return super().get(key, default)

    segments = range(100)
    peaks = {each: (peak(10),) for each in segments}
    heat = Heat(dict.fromkeys(segments, (1.0,) * 32))
    loads = {each: load(10) for each in segments}
    case = snapshot(100, loads, {"profile": "recommended"}, heat=heat, peaks=peaks)
    assert isinstance(decide(case, NOW_MS).action, Merge)
    assert len(reads) <= 10 * len(segments)
