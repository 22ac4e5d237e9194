"""The autoscaler's decision; numbers are those of Pulsar's test vectors, where PIP-483 agrees with them."""

from dataclasses import replace
from typing import Any

import pytest

from scalable.domain.autoscale import Decision, Merge, Snapshot, Split, decide
from scalable.domain.decision import STEADY, GuardCode
from scalable.domain.layout import Layout
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, load, snapshot


def guards(decision: Decision) -> list[GuardCode]:
    return [guard.code for guard in decision.held_by]


def fires(case: Snapshot, action: Split | Merge, rule: str) -> None:
    decision = decide(case, NOW_MS)
    assert (decision.action, decision.rule, decision.held_by) == (action, rule, ())


def holds(case: Snapshot, *codes: GuardCode) -> Decision:
    decision = decide(case, NOW_MS)
    assert decision.action is None
    assert guards(decision) == list(codes)
    assert decision.rule == (codes[0].value if codes else STEADY)
    return decision


HUGE = load(1e9, 1e12, 1e9, 1e12)


def test_vector_50_disabled_holds_everything() -> None:
    case = snapshot(2, {0: HUGE, 1: HUGE}, {"enabled": False}, stream_consumers={"s": 100})
    holds(case, GuardCode.DISABLED)


def test_vector_51_more_consumers_than_segments_split_the_busiest() -> None:
    case = snapshot(2, {0: load(1500), 1: load(2000)}, stream_consumers={"s": 3})
    fires(case, Split(1), "consumer-count")


def test_vector_52_consumers_of_several_subscriptions_are_not_added_up() -> None:
    fresh = load(at_ms=NOW_MS)
    holds(snapshot(2, {0: fresh, 1: fresh}, stream_consumers={"a": 2, "b": 2}), GuardCode.MERGE_WINDOW)


def test_vector_53_a_recent_split_holds_the_consumer_rule() -> None:
    loads = {0: load(1500, at_ms=NOW_MS), 1: load(2000, at_ms=NOW_MS)}
    case = snapshot(2, loads, stream_consumers={"s": 3}, last_split_at_ms=NOW_MS - 30_000)
    decision = holds(case, GuardCode.SPLIT_COOLDOWN)
    assert decision.next_eligible_at_ms == NOW_MS + 30_000
    guard = decision.held_by[0]
    assert (guard.rule, guard.current, guard.threshold) == ("consumer-count", 30, 60)


def test_vector_54_cold_segments_split_for_consumers_too_as_pip_483_has_it() -> None:
    fires(snapshot(2, stream_consumers={"s": 4}), Split(0), "consumer-count")


def test_vector_59_above_the_threshold_splits_and_at_it_does_not() -> None:
    fires(snapshot(1, {0: load(10_001)}), Split(0), "msgRateIn")
    holds(snapshot(1, {0: load(10_000)}))


@pytest.mark.parametrize(
    ("rates", "metric"),
    [
        ({"msg_in": 10_001}, "msgRateIn"),
        ({"bytes_in": 50_000_001}, "bytesRateIn"),
        ({"msg_out": 50_001}, "msgRateOut"),
        pytest.param({"bytes_out": 250_000_001}, "bytesRateOut", id="vector 60"),
    ],
)
def test_each_metric_splits_under_its_own_name(rates: dict[str, float], metric: str) -> None:
    case = snapshot(1, {0: load(**rates)})  # type: ignore[arg-type]
    fires(case, Split(0), metric)
    fired = decide(case, NOW_MS).fired
    assert fired is not None
    assert (fired.metric, fired.current, fired.segment_ids) == (metric, *rates.values(), (0,))


def test_vector_62_cold_neighbours_merge() -> None:
    fires(snapshot(2), Merge((0, 1)), "cold")


def test_vector_63a_a_recent_change_holds_the_merge_until_the_window_is_over() -> None:
    decision = holds(snapshot(2, {0: load(), 1: load(at_ms=NOW_MS - MINUTE_MS)}), GuardCode.MERGE_WINDOW)
    assert decision.next_eligible_at_ms == NOW_MS + 4 * MINUTE_MS


def test_vector_63b_without_records_nothing_merges() -> None:
    holds(snapshot(2, {}), GuardCode.SEGMENT_LOAD_UNKNOWN)


def test_vector_63c_the_minimum_holds_the_merge() -> None:
    decision = holds(snapshot(2, policy={"minSegments": 2}), GuardCode.MIN_SEGMENTS)
    assert decision.next_eligible_at_ms is None


def test_vector_63d_a_recent_merge_holds_the_merge() -> None:
    decision = holds(snapshot(2, last_merge_at_ms=NOW_MS - MINUTE_MS), GuardCode.MERGE_COOLDOWN)
    assert decision.next_eligible_at_ms == NOW_MS + 4 * MINUTE_MS


def test_vector_64_the_dead_band_neither_splits_nor_merges() -> None:
    holds(snapshot(2, {0: load(1001), 1: load()}))


def test_vector_65_a_split_wins_over_a_merge() -> None:
    fires(snapshot(3, {0: load(10_001), 1: load(), 2: load()}), Split(0), "msgRateIn")


def test_the_consumer_rule_wins_over_the_load_rule() -> None:
    case = snapshot(2, {0: load(5), 1: load(4, bytes_out=1e9)}, stream_consumers={"s": 3})
    fires(case, Split(0), "consumer-count")


def test_the_most_overloaded_segment_splits_by_ratio_not_by_size() -> None:
    case = snapshot(3, {0: load(11_000), 1: load(bytes_in=100_000_000), 2: load(msg_out=60_000)})
    fires(case, Split(1), "bytesRateIn")


def test_ties_go_to_the_lowest_id_and_the_first_metric() -> None:
    even = load(20_000, 100_000_000, 100_000, 500_000_000)
    fires(snapshot(3, {0: even, 1: even, 2: even}), Split(0), "msgRateIn")
    fires(snapshot(4), Merge((0, 1)), "cold")
    fires(snapshot(2, {0: load(7), 1: load(7)}, stream_consumers={"s": 9}), Split(0), "consumer-count")


def test_ties_follow_ids_even_when_ranges_stand_in_another_order() -> None:
    layout = Layout.initial(2, 0)
    layout = layout.apply(layout.plan_split(0), 0)
    hot = load(20_000)
    fires(snapshot(layout, {1: hot, 2: hot, 3: hot}), Split(1), "msgRateIn")


def test_the_coldest_pair_merges() -> None:
    loads = {0: load(10), 1: load(10), 2: load(1), 3: load(2)}
    fires(snapshot(4, loads), Merge((2, 3)), "cold")


@pytest.mark.parametrize("metric", range(4))
def test_each_metric_counts_when_pairs_are_compared(metric: int) -> None:
    lukewarm = load(*(9 if position == metric else 0 for position in range(4)))
    fires(snapshot(4, {0: lukewarm, 1: lukewarm, 2: load(1), 3: load(1)}), Merge((2, 3)), "cold")


def test_the_merge_window_ends_when_it_has_passed() -> None:
    edge_ms = NOW_MS - 5 * MINUTE_MS
    fires(snapshot(2, {0: load(at_ms=edge_ms), 1: load()}), Merge((0, 1)), "cold")
    decision = holds(snapshot(2, {0: load(at_ms=edge_ms + 1_000), 1: load()}), GuardCode.MERGE_WINDOW)
    assert (decision.held_by[0].current, decision.held_by[0].threshold) == (299, 300)


def test_a_cold_pair_past_its_window_goes_before_a_colder_one_that_is_not() -> None:
    loads = {0: load(10), 1: load(10), 2: load(1, at_ms=NOW_MS), 3: load(2)}
    fires(snapshot(4, loads), Merge((0, 1)), "cold")


@pytest.mark.parametrize("metric", range(4))
def test_one_warm_metric_keeps_a_segment(metric: int) -> None:
    thresholds = (1_000, 5_000_000, 5_000, 25_000_000)
    warm = load(*(thresholds[metric] if position == metric else 0 for position in range(4)))
    holds(snapshot(2, {0: warm, 1: load()}))


def test_merge_thresholds_of_zero_never_merge() -> None:
    holds(snapshot(2, policy={"mergeMsgRateInThreshold": 0}))


def deep_layout(merges: int) -> Layout:
    layout = Layout.initial(2, 0)
    for _ in range(merges):
        layout = layout.apply(layout.plan_merge([each.segment_id for each in layout.active]), 0)
        layout = layout.apply(layout.plan_split(layout.active[0].segment_id), 0)
    return layout


def test_a_lineage_at_its_cap_merges_no_more_and_still_splits() -> None:
    deep = deep_layout(merges=2)
    decision = holds(snapshot(deep, policy={"maxDagDepth": 2}), GuardCode.MAX_DAG_DEPTH)
    assert (decision.held_by[0].current, decision.held_by[0].threshold) == (2, 2)
    fires(
        snapshot(deep, policy={"maxDagDepth": 3}),
        Merge(tuple(each.segment_id for each in deep.active)),
        "cold",
    )
    low = deep.active[0].segment_id
    loads = {each.segment_id: load(20_000) for each in deep.active}
    fires(snapshot(deep, loads, {"maxDagDepth": 0}), Split(low), "msgRateIn")


def test_a_pair_with_room_in_its_lineage_goes_before_a_colder_one_without() -> None:
    layout = Layout.initial(4, 0)
    merged = layout.apply(layout.plan_merge([0, 1]), 0)
    mixed = merged.apply(merged.plan_split(4), 0)
    capped, free = mixed.active[:2], mixed.active[2:]
    loads = {each.segment_id: load() for each in capped} | {each.segment_id: load(9) for each in free}
    fires(snapshot(mixed, loads, {"maxDagDepth": 1}), Merge((2, 3)), "cold")


@pytest.mark.parametrize(
    ("elapsed_ms", "held"),
    [(59_999, True), (60_000, False), (-5_000, True)],
    ids=["in", "over", "clock ran back"],
)
def test_the_split_cooldown_ends_when_it_has_passed(elapsed_ms: int, held: bool) -> None:
    case = snapshot(1, {0: load(20_000)}, last_split_at_ms=NOW_MS - elapsed_ms)
    assert (GuardCode.SPLIT_COOLDOWN in guards(decide(case, NOW_MS))) is held


def test_cooldowns_are_part_of_the_snapshot_so_no_restart_forgets_them() -> None:
    """Split at t0, hot still: whoever decides, nothing happens before t0 + 60 s; the same for merges."""
    hot = snapshot(1, {0: load(20_000)}, last_split_at_ms=NOW_MS)
    assert [decide(hot, NOW_MS + 1_000 * second).kind for second in (5, 59, 60)] == [None, None, "SPLIT"]
    cold = snapshot(2, last_merge_at_ms=NOW_MS)
    assert [decide(cold, NOW_MS + 1_000 * second).kind for second in (5, 299, 300)] == [None, None, "MERGE"]


@pytest.mark.parametrize("split_held_by", [GuardCode.SPLIT_COOLDOWN, GuardCode.MAX_SEGMENTS])
@pytest.mark.parametrize(
    "wanted",
    [{"loads": {0: load(20_000), 1: load(), 2: load()}}, {"stream_consumers": {"s": 4}}],
    ids=["by load", "by consumers"],
)
def test_a_merge_tells_what_held_back_the_split_that_comes_before_it(
    split_held_by: GuardCode, wanted: dict[str, Any]
) -> None:
    case = snapshot(3, **wanted)
    if split_held_by is GuardCode.SPLIT_COOLDOWN:
        case = replace(case, last_split_at_ms=NOW_MS - 1)
    else:
        case = replace(case, policy=replace(case.policy, max_segments=3))
    decision = decide(case, NOW_MS)
    assert (decision.kind, decision.rule) == ("MERGE", "cold")
    assert guards(decision) == [split_held_by]
    assert [guard["guard"] for guard in decision.explanation["heldBy"]] == [split_held_by.value]


@pytest.mark.parametrize(
    ("policy", "segments", "rate", "kind", "guard"),
    [
        ({"minSegments": 2}, 2, 20_000, "SPLIT", None),
        ({"maxSegments": 2}, 2, 0, "MERGE", None),
        ({"maxSegments": 2}, 2, 20_000, None, GuardCode.MAX_SEGMENTS),
        ({"minSegments": 2}, 2, 0, None, GuardCode.MIN_SEGMENTS),
        ({"maxSegments": 1}, 3, 20_000, None, GuardCode.MAX_SEGMENTS),
        ({"minSegments": 4}, 3, 0, None, GuardCode.MIN_SEGMENTS),
    ],
)
def test_bounds(
    policy: dict[str, int], segments: int, rate: float, kind: str | None, guard: GuardCode | None
) -> None:
    loads = dict.fromkeys(range(segments), load(rate))
    decision = decide(snapshot(segments, loads, policy), NOW_MS)
    assert decision.kind == kind
    assert guards(decision) == ([guard] if guard else [])


def test_a_hot_segment_becomes_exactly_two_halves() -> None:
    case = snapshot(1, {0: load(12_000)})
    decision = decide(case, NOW_MS)
    assert isinstance(decision.action, Split)
    layout = case.layout.apply(case.layout.plan_split(decision.action.segment_id), NOW_MS)
    assert [segment.hash_range.size for segment in layout.active] == [32_768, 32_768]


def one_hash_layout() -> Layout:
    layout = Layout.initial(1, 0)
    return layout.apply(layout.plan_split(0, [1]), 0)


def test_a_segment_of_one_hash_lets_the_next_hottest_split() -> None:
    loads = {1: load(90_000), 2: load(20_000)}
    fires(snapshot(one_hash_layout(), loads), Split(2), "msgRateIn")
    fires(snapshot(one_hash_layout(), loads, stream_consumers={"s": 3}), Split(2), "consumer-count")


def test_the_rule_names_what_is_hot_in_the_segment_that_splits() -> None:
    loads = {1: load(90_000), 2: load(bytes_in=60_000_000)}
    fires(snapshot(one_hash_layout(), loads), Split(2), "bytesRateIn")


def test_a_hot_segment_of_one_hash_alone_says_why_nothing_happens() -> None:
    case = snapshot(one_hash_layout(), {1: load(90_000), 2: load()})
    decision = holds(case, GuardCode.SEGMENT_TOO_NARROW)
    assert decision.held_by[0].segment_ids == (1,)


def test_an_operation_in_flight_holds_every_rule() -> None:
    for case in (
        snapshot(1, {0: load(20_000)}, operations_in_flight=1),
        snapshot(2, operations_in_flight=2),
        snapshot(1, stream_consumers={"s": 5}, operations_in_flight=1),
    ):
        holds(case, GuardCode.OPERATION_IN_FLIGHT)


def test_unknown_load_holds_load_rules_and_leaves_the_consumer_rule() -> None:
    hot = {0: load(1), 1: HUGE}
    holds(snapshot(2, hot, load_known=False), GuardCode.LOAD_UNKNOWN)
    never = holds(snapshot(2, load_known=False), GuardCode.LOAD_UNKNOWN)
    assert never.held_by[0].detail == "no load pipeline has reported yet"
    fires(snapshot(2, hot, load_known=False, stream_consumers={"s": 3}), Split(0), "consumer-count")


def test_a_fresh_child_without_a_record_is_no_candidate() -> None:
    decision = holds(snapshot(3, {0: load(1), 2: load(1)}), GuardCode.SEGMENT_LOAD_UNKNOWN)
    assert decision.held_by[0].segment_ids == (1,)
    fires(snapshot(3, {0: load(), 1: load()}), Merge((0, 1)), "cold")


def test_a_steady_old_record_is_not_stale() -> None:
    ancient = load(20_000, at_ms=0)
    fires(snapshot(1, {0: ancient}), Split(0), "msgRateIn")


@pytest.mark.parametrize(
    "policy",
    [{"minSegments": 9, "maxSegments": 3}, {"splitMsgRateInThreshold": 0}, {"splitMsgRateInThreshold": 10}],
)
def test_an_invalid_policy_holds_everything_still_and_says_so(policy: dict[str, int]) -> None:
    case = snapshot(2, {0: HUGE, 1: load()}, policy, stream_consumers={"s": 9})
    decision = holds(case, GuardCode.POLICY_INVALID)
    assert next(iter(policy)) in decision.held_by[0].detail


def test_vector_83_a_stored_contradiction_is_visible_not_silent() -> None:
    case = snapshot(1, {0: load(3_000)}, {"splitMsgRateInThreshold": 2_000, "mergeMsgRateInThreshold": 5_000})
    assert holds(case, GuardCode.POLICY_INVALID).explanation["heldBy"][0]["detail"]


def test_every_guard_of_a_rule_is_named_with_the_instant_at_which_time_has_lifted_them() -> None:
    case = snapshot(
        2,
        {0: load(at_ms=NOW_MS - MINUTE_MS), 1: load()},
        {"maxDagDepth": 1},
        last_merge_at_ms=NOW_MS - 2 * MINUTE_MS,
    )
    decision = holds(case, GuardCode.MERGE_COOLDOWN, GuardCode.MERGE_WINDOW)
    assert decision.next_eligible_at_ms == NOW_MS + 4 * MINUTE_MS


def test_a_guard_that_time_does_not_lift_leaves_no_next_instant() -> None:
    case = snapshot(1, {0: load(20_000)}, {"maxSegments": 1}, last_split_at_ms=NOW_MS)
    assert holds(case, GuardCode.MAX_SEGMENTS, GuardCode.SPLIT_COOLDOWN).next_eligible_at_ms is None


def test_margins_tell_how_near_each_rule_is() -> None:
    case = snapshot(2, {0: load(8_000), 1: load(500)}, stream_consumers={"a": 1, "b": 2})
    margins = {margin.rule: margin for margin in decide(case, NOW_MS).margins}
    assert (margins["consumer-count"].current, margins["consumer-count"].threshold) == (2, 2)
    assert margins["consumer-count"].detail == "b"
    assert (margins["msgRateIn"].current, margins["msgRateIn"].threshold) == (8_000, 10_000)
    assert (margins["cold"].current, margins["cold"].threshold) == (8_000, 1_000)


def test_the_key_changes_with_the_reasoning_and_not_with_time() -> None:
    case = snapshot(1, {0: load(20_000)}, last_split_at_ms=NOW_MS)
    keys = {decide(case, NOW_MS + second * 1_000).key for second in range(60)}
    assert len(keys) == 1
    assert decide(case, NOW_MS + 60_000).key not in keys
    assert decide(replace(case, operations_in_flight=1), NOW_MS).key not in keys
