"""What came to nothing lately holds back itself alone: what else would serve as well is done."""

import pytest

from scalable.domain.autoscale import Merge, Rebucket, Snapshot, decide
from scalable.domain.decision import GuardCode
from scalable.domain.layout import Layout
from scalable.domain.operations import Outcome
from scalable.domain.setbacks import Setback, Setbacks
from tests.domain.autoscale_cases import NOW_MS, OLD_MS, load, snapshot

SEGMENTS = 4
CODES = {Outcome.FAILED: GuardCode.OPERATION_FAILED, Outcome.ABORTED: GuardCode.OPERATION_ABORTED}


def setbacks(kind: str, segment_ids: set[int], outcome: Outcome = Outcome.FAILED) -> Setbacks:
    """Give what came to nothing a second ago."""
    return {(kind, segment_id): Setback(outcome, 1, NOW_MS - 1_000) for segment_id in segment_ids}


def short_of_buckets(failed: Setbacks) -> Snapshot:
    """Give a topic at its cap whose consumers need more entry buckets in each segment."""
    layout = Layout.initial(SEGMENTS, OLD_MS, bucket_budget=SEGMENTS)
    return snapshot(
        layout,
        policy={"profile": "pulsar-5.0", "minSegments": SEGMENTS, "maxSegments": SEGMENTS},
        stream_consumers={"s": 16},
        max_buckets=64,
        setbacks=failed,
    )


@pytest.mark.parametrize("outcome", CODES)
@pytest.mark.parametrize("failed", [{0}, {1, 2}, {0, 1, 3}], ids=str)
def test_entry_buckets_are_added_where_that_did_not_fail(failed: set[int], outcome: Outcome) -> None:
    decision = decide(short_of_buckets(setbacks("REBUCKET", failed, outcome)), NOW_MS)
    others = tuple(key for key in range(SEGMENTS) if key not in failed)
    assert decision.actions == (Rebucket(others, 4),)
    assert decision.fired_by[0].segment_ids == others


@pytest.mark.parametrize("outcome", CODES)
def test_entry_buckets_wait_where_that_failed_everywhere(outcome: Outcome) -> None:
    failed = setbacks("REBUCKET", set(range(SEGMENTS)), outcome)
    decision = decide(short_of_buckets(failed), NOW_MS)
    assert decision.actions == ()
    told = [guard.segment_ids for guard in decision.held_by if guard.code is CODES[outcome]]
    assert told == [(key,) for key in range(SEGMENTS)]
    until_ms = NOW_MS - 1_000 + round(failed["REBUCKET", 0].wait_seconds * 1_000)
    assert decision.next_eligible_at_ms == until_ms
    assert decide(short_of_buckets(failed), until_ms).actions == (Rebucket(tuple(range(SEGMENTS)), 4),)


def hot_at_the_cap(failed: Setbacks, *, most: int) -> Snapshot:
    """Give a topic at its cap with two hot segments and six cold ones; the coldest pair is the first."""
    rates = {0: 20_000.0, 1: 19_000.0, 2: 10.0, 3: 10.0, 4: 20.0, 5: 20.0, 6: 30.0, 7: 30.0}
    policy = {
        "maxSegments": 8,
        "mergeMakesRoom": True,
        "maxActionsPerTick": most,
        "mergeMsgRateInThreshold": 0,
    }
    return snapshot(8, {key: load(rate) for key, rate in rates.items()}, policy, setbacks=failed)


@pytest.mark.parametrize(
    ("failed", "most", "merged"),
    [
        (set(), 1, [(2, 3)]),
        ({2, 3}, 1, [(4, 5)]),
        ({3}, 1, [(4, 5)]),
        ({2, 3, 5}, 1, [(6, 7)]),
        (set(), 8, [(2, 3), (4, 5)]),
        ({2, 3}, 8, [(4, 5), (6, 7)]),
        ({4, 5}, 8, [(2, 3), (6, 7)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("outcome", CODES)
def test_a_pair_that_failed_to_make_room_leaves_it_to_another(
    failed: set[int], most: int, merged: list[tuple[int, int]], outcome: Outcome
) -> None:
    decision = decide(hot_at_the_cap(setbacks("MERGE", failed, outcome), most=most), NOW_MS)
    assert decision.rule == "makes-room"
    assert decision.actions == tuple(Merge(pair) for pair in merged)


def test_no_room_is_made_where_that_failed_everywhere() -> None:
    decision = decide(hot_at_the_cap(setbacks("MERGE", set(range(8))), most=8), NOW_MS)
    assert decision.actions == ()
    held = [(guard.code, guard.rule, guard.segment_ids) for guard in decision.held_by]
    assert (GuardCode.OPERATION_FAILED, "makes-room", (2,)) in held
    assert len(held) == len(set(held))
