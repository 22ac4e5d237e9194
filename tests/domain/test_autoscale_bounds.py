"""What no decision of the autoscaler goes beyond, whichever rules and however many actions make it."""

from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from scalable.domain.autoscale import Decision, Merge, Snapshot, Split, decide
from scalable.domain.decision import GuardCode
from scalable.domain.layout import Layout
from tests.domain.autoscale_cases import NOW_MS, OLD_MS, load, snapshot

BUCKETS = 16
RATES = st.sampled_from([0.0, 10.0, 900.0, 4_000.0, 15_000.0, 90_000.0])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Give segments some of which come from merges, with entry buckets."""
    count = draw(st.integers(2, 12))
    layout = Layout.initial(count, OLD_MS, bucket_budget=BUCKETS * count)
    for _ in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, len(layout.active) - 2))
        pair = [each.segment_id for each in layout.active[first : first + 2]]
        layout = layout.apply(layout.plan_merge(pair, max_buckets=BUCKETS), OLD_MS)
        layout = layout.apply(layout.plan_split(layout.active[first].segment_id), OLD_MS)
    return layout


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Give a topic near its cap with hot and cold segments, and several actions at once."""
    layout = draw(layouts())
    count = len(layout.active)
    policy: dict[str, Any] = {
        "profile": draw(st.sampled_from(["pip-483", "recommended"])),
        "minSegments": draw(st.integers(1, count)),
        "maxSegments": draw(st.integers(count, count + 1)),
        "maxDagDepth": draw(st.integers(1, 3)),
        "maxActionsPerTick": draw(st.integers(1, 8)),
        "minMergeSegments": draw(st.integers(2, 3)),
        "maxMergeSegments": draw(st.integers(2, 6)),
        "mergeTargetShare": draw(st.sampled_from([0, 0.5, 1])),
        "mergeMakesRoom": True,
        "mergeKeepsConsumers": draw(st.booleans()),
        "mergeMinAgeSeconds": 0,
        "mergePeakSeconds": 0,
        "lookAheadSeconds": 0,
        "entryBucketLane": draw(st.booleans()),
        "splitVsRebucketMinMsgRateInThreshold": 1e9,
    }
    counts = st.dictionaries(st.sampled_from("ab"), st.integers(0, count * (BUCKETS + 1)), max_size=2)
    return snapshot(
        layout,
        {each.segment_id: load(draw(RATES)) for each in layout.active},
        policy,
        stream_consumers=draw(
            st.dictionaries(st.just("s"), st.integers(0, count)) if draw(st.booleans()) else counts
        ),
        bucket_consumers=draw(counts),
        max_buckets=BUCKETS,
    )


def after(case: Snapshot, decision: Decision) -> Layout:
    """Give the layout that the actions make."""
    layout = case.layout
    for action in decision.actions:
        if isinstance(action, Split):
            layout = layout.apply(layout.plan_split(action.segment_id, action.cuts or None), NOW_MS)
        elif isinstance(action, Merge):
            plan = layout.plan_merge(action.segment_ids, max_buckets=case.max_buckets)
            layout = layout.apply(plan, NOW_MS)
    return layout


@given(crowded())
def test_merges_of_one_decision_together_keep_to_what_each_keeps_to(case: Snapshot) -> None:
    decision = decide(case, NOW_MS)
    merged = [action.segment_ids for action in decision.actions if isinstance(action, Merge)]
    assume(merged)
    event(f"{decision.rule}, {len(merged)} merges")
    policy, made = case.policy, after(case, decision)
    assert len(made.active) >= policy.min_segments
    if policy.merge_keeps_consumers:
        assert len(made.active) >= max(case.stream_consumers.values(), default=0)
    for segment_id in (key for ids in merged for key in ids):
        assert case.layout.merge_depth(segment_id) < policy.max_dag_depth
    if policy.entry_bucket_lane:
        before, left = (sum(each.bucket_count for each in one.active) for one in (case.layout, made))
        assert case.bucket_consumers is not None
        assert left >= min(before, max(case.bucket_consumers.values(), default=0))


HOT_AND_COLD = {0: load(15_000), 1: load(14_000), **{key: load(10) for key in range(2, 8)}}


@pytest.mark.parametrize(
    ("policy", "merges"),
    [
        ({"minSegments": 1}, 2),
        ({"minSegments": 7}, 1),
        ({"minSegments": 8}, 0),
        ({"mergeKeepsConsumers": True}, 1),
        ({"maxDagDepth": 0}, 0),
    ],
)
def test_room_is_made_as_far_as_merges_may_go(policy: dict[str, Any], merges: int) -> None:
    given = {"maxSegments": 8, "mergeMakesRoom": True, "maxActionsPerTick": 8, **policy}
    case = snapshot(8, HOT_AND_COLD, given, stream_consumers={"s": 7})
    decision = decide(case, NOW_MS)
    assert len(decision.actions) == merges
    assert GuardCode.MAX_SEGMENTS in [guard.code for guard in decision.held_by]
    if "maxDagDepth" in policy:
        told = [(guard.code, guard.rule) for guard in decision.held_by]
        assert (GuardCode.MAX_DAG_DEPTH, "makes-room") in told


def test_no_room_is_made_by_what_a_dominant_key_would_be_cut_out_of_again() -> None:
    layout = Layout.initial(1, OLD_MS)
    layout = layout.apply(layout.plan_split(0, (1, 2, 0x8000)), OLD_MS).prune(0)
    loads = {1: load(100), 2: load(6_500), 3: load(100), 4: load(10_500)}
    heat = {key: [record.rates.msg_rate_in / 32] * 32 for key, record in loads.items()}
    policy = {"maxSegments": 4, "mergeMakesRoom": True, "mergeMsgRateInThreshold": 0}
    assert decide(snapshot(layout, loads, policy, heat=heat), NOW_MS).action == Merge((1, 2))
    alone = {**policy, "isolateDominantKey": True, "dominantKeyShare": 0.375}
    decision = decide(snapshot(layout, loads, alone, heat=heat), NOW_MS)
    assert decision.action is None
    assert (GuardCode.DOMINANT_KEY, "makes-room") in [(each.code, each.rule) for each in decision.held_by]


def test_merges_of_one_decision_leave_each_consumer_an_entry_bucket() -> None:
    layout = Layout.initial(4, OLD_MS, bucket_budget=256)
    policy = {"entryBucketLane": True, "maxActionsPerTick": 2}
    for consumers, merges in ((128, 2), (129, 1), (150, 1), (193, 0)):
        case = snapshot(layout, policy=policy, stream_consumers={"s": consumers}, max_buckets=64)
        assert len(decide(case, NOW_MS).actions) == merges
