"""What holds for every decision of the autoscaler, whatever the snapshot."""

from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.autoscale import Merge, Snapshot, Split, decide
from scalable.domain.decision import STEADY
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, OLD_MS, load, snapshot

rates = st.floats(0, 1e9)
records = st.builds(load, rates, rates, rates, rates, st.integers(OLD_MS, NOW_MS))
instants = st.none() | st.integers(OLD_MS, NOW_MS + MINUTE_MS)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    segments = draw(st.integers(1, 12))
    policy = {"minSegments": draw(st.integers(1, 4)), "maxSegments": draw(st.integers(4, 12))}
    return snapshot(
        segments,
        draw(st.dictionaries(st.integers(0, segments - 1), records)),
        policy,
        stream_consumers=draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, 20))),
        last_split_at_ms=draw(instants),
        last_merge_at_ms=draw(instants),
        operations_in_flight=draw(st.integers(0, 1)),
        load_known=draw(st.booleans()),
    )


@given(snapshots())
def test_a_decision_is_total_deterministic_explained_and_within_bounds(case: Snapshot) -> None:
    decision = decide(case, NOW_MS)
    assert decision == decide(case, NOW_MS)
    active = {segment.segment_id for segment in case.layout.active}
    assert set(decision.segment_ids) <= active
    if isinstance(decision.action, Split):
        assert len(active) < case.policy.max_segments
        case.layout.plan_split(decision.action.segment_id)
    elif isinstance(decision.action, Merge):
        assert len(active) > case.policy.min_segments
        case.layout.plan_merge(decision.action.segment_ids)
    else:
        assert decision.rule == STEADY or decision.held_by
    assert (decision.action is None) or not decision.held_by
    assert decision.next_eligible_at_ms is None or decision.next_eligible_at_ms > NOW_MS


@given(snapshots())
def test_what_time_alone_lifts_is_lifted_at_the_named_instant(case: Snapshot) -> None:
    decision = decide(case, NOW_MS)
    if decision.next_eligible_at_ms is not None and not case.operations_in_flight:
        assert decide(case, decision.next_eligible_at_ms).action is not None
