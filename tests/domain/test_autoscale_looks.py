"""What the clock alone brings about: nothing happens between a look and the next instant that it names."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from scalable.domain.autoscale import Decision, Merge, Snapshot, decide
from scalable.domain.decision import GuardCode
from scalable.domain.layout import Layout
from scalable.domain.load import Peak, SegmentRates, Trend
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, load, snapshot

LOOKS = 60
LATEST_MS = NOW_MS + 60 * MINUTE_MS
RATES = st.sampled_from([0.0, 0.0, 300.0, 500.0, 900.0, 2_500.0, 6_000.0])
HOT = st.sampled_from([0.0] * 20 + [12_000.0])


def instants(first_minute: int, last_minute: int) -> st.SearchStrategy[int]:
    return st.integers(first_minute, last_minute).map(lambda minute: NOW_MS + minute * MINUTE_MS)


PEAKS = st.lists(st.builds(Peak, st.builds(SegmentRates, RATES), instants(-1, 25)), max_size=3)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "profile": draw(st.sampled_from(["pip-483", "pulsar-5.0", "recommended"])),
        "enabled": draw(st.integers(0, 9)) > 0,
        "minSegments": draw(st.integers(1, 3)),
        "maxSegments": draw(st.sampled_from([8, 64])),
        "maxDagDepth": draw(st.sampled_from([1, 10])),
        "minMergeSegments": draw(st.integers(2, 5)),
        "maxMergeSegments": draw(st.integers(2, 6)),
        "mergeTargetShare": draw(st.sampled_from([0, 0.3, 0.9])),
        "mergePeakSeconds": draw(st.sampled_from([0, 1_200])),
        "mergeMinAgeSeconds": draw(st.sampled_from([0, 600])),
        "mergeRepeatSeconds": draw(st.sampled_from([0, 900])),
        "mergeWindowSeconds": draw(st.sampled_from([0, 300])),
        "isolateDominantKey": draw(st.booleans()),
        "dominantKeyShare": draw(st.sampled_from([0.1, 0.5])),
    }


@st.composite
def waiting(draw: st.DrawFn) -> Snapshot:
    """Give a topic of which much is young, lately changed, lately busy, or just after a change."""
    count = draw(st.integers(2, 8))
    layout = Layout.initial(count, NOW_MS)
    segments = {
        key: replace(segment, created_at_ms=draw(instants(-20, 0)))
        for key, segment in layout.segments.items()
    }
    rates = {key: draw(RATES) + draw(HOT) for key in range(count)}
    return snapshot(
        replace(layout, segments=segments),
        {key: load(rate, at_ms=draw(instants(-10, 0))) for key, rate in rates.items()},
        draw(policies()),
        heat={key: [rate / 32] * 32 for key, rate in rates.items()},
        trends={key: Trend(SegmentRates(rate)) for key, rate in rates.items()},
        peaks=draw(st.dictionaries(st.integers(0, count - 1), PEAKS, min_size=count - 1)),
        stream_consumers=draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, count + 1))),
        last_split_at_ms=draw(st.none() | instants(-10, 0)),
        last_merge_at_ms=draw(st.none() | instants(-10, 0)),
        last_rebucket_at_ms=draw(st.none() | instants(-10, 0)),
        operations_in_flight=int(draw(st.integers(0, 9)) == 0),
    )


def next_look_ms(decision: Decision) -> int:
    """Give the first instant at which a guard lets go."""
    named = (guard.next_eligible_at_ms for guard in decision.held_by)
    return min((at_ms for at_ms in named if at_ms is not None), default=LATEST_MS)


@given(waiting(), st.floats(0, 1, exclude_max=True))
def test_nothing_is_done_between_a_look_and_the_instant_that_it_names(case: Snapshot, part: float) -> None:
    """Followed from look to look until something is done, or nothing will be without a change."""
    at_ms = NOW_MS
    for look in range(LOOKS):
        decision = decide(case, at_ms)
        if decision.action or at_ms >= LATEST_MS:
            event(f"{decision.rule} at look {look}")
            return
        following_ms = next_look_ms(decision)
        assert following_ms > at_ms
        between_ms = at_ms + int(part * (following_ms - at_ms))
        assert decide(case, between_ms).action is None
        assert decide(case, following_ms - 1).action is None
        at_ms = following_ms
    raise AssertionError("the looks come to no end")


@given(waiting())
def test_what_is_told_to_be_eligible_at_an_instant_is(case: Snapshot) -> None:
    decision = decide(case, NOW_MS)
    if decision.next_eligible_at_ms is not None:
        event(decision.rule)
        assert decide(case, decision.next_eligible_at_ms).action is not None


@pytest.mark.parametrize("held", [{"policy": {"enabled": False}}, {"operations_in_flight": 1}])
def test_no_instant_is_told_while_the_whole_topic_is_held(held: dict[str, Any]) -> None:
    hot = {0: load(20_000)}
    assert decide(snapshot(1, hot, last_split_at_ms=NOW_MS), NOW_MS).next_eligible_at_ms is not None
    decision = decide(snapshot(1, hot, last_split_at_ms=NOW_MS, **held), NOW_MS)
    assert GuardCode.SPLIT_COOLDOWN in [guard.code for guard in decision.held_by]
    assert decision.next_eligible_at_ms is None


def test_a_pair_that_waits_for_its_young_neighbours_tells_when_they_are_old_enough() -> None:
    layout = Layout.initial(4, NOW_MS - 3_600_000)
    young = {key: replace(layout.segments[key], created_at_ms=NOW_MS - key * 1_000) for key in (2, 3)}
    layout = replace(layout, segments={**layout.segments, **young})
    policy = {"minMergeSegments": 4, "maxMergeSegments": 4, "mergeMinAgeSeconds": 600}
    case = snapshot(layout, policy=policy)
    decision = decide(case, NOW_MS)
    assert [(guard.code, guard.segment_ids) for guard in decision.held_by] == [
        (GuardCode.SEGMENT_TOO_YOUNG, (0, 1, 2, 3))
    ]
    assert decision.next_eligible_at_ms == NOW_MS - 2_000 + 600_000
    assert decide(case, decision.next_eligible_at_ms).action == Merge((0, 1, 2, 3))


def test_a_run_that_no_time_makes_long_enough_says_so() -> None:
    loads = {0: load(10), 1: load(10), 2: load(9_000), 3: load(10), 4: load(10)}
    policy = {"minMergeSegments": 4, "maxMergeSegments": 4}
    decision = decide(snapshot(5, loads, policy), NOW_MS)
    assert [(guard.code, guard.current, guard.threshold) for guard in decision.held_by] == [
        (GuardCode.RUN_TOO_SHORT, 2, 4)
    ]
    policy = {"minMergeSegments": 5, "maxMergeSegments": 3}  # of two levels: runs of three would do
    (held,) = decide(snapshot(5, loads, policy), NOW_MS).held_by
    assert (held.code, held.current, held.threshold) == (GuardCode.RUN_TOO_SHORT, 2, 3)
    assert decision.next_eligible_at_ms is None
