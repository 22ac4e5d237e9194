"""Pulsar 5.0's test vectors of its evaluator, by number, in the profile `pulsar-5.0`."""

from collections.abc import Mapping
from typing import Any

import pytest

from scalable.domain.autoscale import Decision, Merge, Rebucket, Snapshot, Split, decide
from scalable.domain.decision import Action
from scalable.domain.layout import Layout
from scalable.domain.load import LoadRecord, SegmentRates, is_material
from tests.domain.autoscale_cases import MINUTE_MS, NOW_MS, OLD_MS, load, snapshot

HALF_A_MINUTE_AGO = NOW_MS - MINUTE_MS // 2


def pulsar(
    segments: int | Layout,
    loads: Mapping[int, LoadRecord] | None = None,
    policy: Mapping[str, Any] | None = None,
    *,
    budget: int = 4,
    **rest: Any,
) -> Snapshot:
    """Give a snapshot in Pulsar's profile; the segments share a budget of entry buckets."""
    layout = (
        segments if isinstance(segments, Layout) else Layout.initial(segments, OLD_MS, bucket_budget=budget)
    )
    return snapshot(layout, loads, {"profile": "pulsar-5.0", **(policy or {})}, **rest)


def consumers(*counts: int) -> dict[str, int]:
    return {f"s{number}": count for number, count in enumerate(counts)}


TWO_BUSY = {0: load(1_500), 1: load(2_000)}
ANCIENT_COLD = {0: load(), 1: load()}
FRESH_COLD = {0: load(at_ms=NOW_MS), 1: load(at_ms=NOW_MS)}
CASES: list[tuple[str, Snapshot, Action | None, str | None]] = [
    ("50", pulsar(1, {0: load(1e9)}, {"enabled": False}, stream_consumers=consumers(100)), None, None),
    ("51", pulsar(2, TWO_BUSY, stream_consumers=consumers(3)), Split(1), "consumer-count"),
    ("52", pulsar(2, FRESH_COLD, stream_consumers=consumers(2, 2)), None, None),
    (
        "53",
        pulsar(
            2,
            {0: load(1_500, at_ms=NOW_MS), 1: load(2_000, at_ms=NOW_MS)},
            stream_consumers=consumers(3),
            last_split_at_ms=HALF_A_MINUTE_AGO,
        ),
        None,
        None,
    ),
    ("54", pulsar(2, FRESH_COLD, stream_consumers=consumers(4)), None, None),
    ("55", pulsar(1, stream_consumers=consumers(5)), Rebucket((0,), 8), "below-split-rate-floor"),
    ("55b", pulsar(1, stream_consumers=consumers(5), last_rebucket_at_ms=HALF_A_MINUTE_AGO), None, None),
    (
        "56",
        pulsar(2, ANCIENT_COLD, {"maxSegments": 2}, stream_consumers=consumers(5)),
        Rebucket((0, 1), 4),
        "at-max-segments",
    ),
    (
        "57",
        pulsar(1, stream_consumers=consumers(5_000), max_buckets=8),
        Rebucket((0,), 8),
        "below-split-rate-floor",
    ),
    ("57b", pulsar(1, budget=8, stream_consumers=consumers(5_000), max_buckets=8), None, None),
    ("59", pulsar(1, {0: load(10_001)}), Split(0), "msgRateIn"),
    ("59b", pulsar(1, {0: load(10_000)}), None, None),
    ("60", pulsar(1, {0: load(bytes_out=250_000_001)}), Split(0), "bytesRateOut"),
    ("62", pulsar(2, ANCIENT_COLD), Merge((0, 1)), "cold"),
    ("63a", pulsar(2, {0: load(at_ms=NOW_MS - MINUTE_MS), 1: load(at_ms=NOW_MS - MINUTE_MS)}), None, None),
    ("63b", pulsar(2, {}), None, None),
    ("63c", pulsar(2, ANCIENT_COLD, {"minSegments": 2}), None, None),
    ("63d", pulsar(2, ANCIENT_COLD, last_merge_at_ms=NOW_MS - MINUTE_MS), None, None),
    ("64", pulsar(2, {0: load(1_001), 1: load()}), None, None),
    ("65", pulsar(2, {0: load(10_001), 1: load()}), Split(0), "msgRateIn"),
    ("68a", pulsar(2, budget=16, stream_consumers=consumers(12), max_buckets=8), None, None),
    ("68b", pulsar(2, budget=16, stream_consumers=consumers(8), max_buckets=8), Merge((0, 1)), "cold"),
    (
        "69",
        pulsar(
            2,
            budget=8,
            stream_consumers=consumers(20),
            max_buckets=8,
            last_rebucket_at_ms=HALF_A_MINUTE_AGO,
        ),
        Merge((0, 1)),
        "cold",
    ),
]


@pytest.mark.parametrize(
    ("case", "action", "rule"), [pytest.param(*case, id=f"vector {n}") for n, *case in CASES]
)
def test_vector_of_the_evaluator(case: Snapshot, action: Action | None, rule: str | None) -> None:
    decision = decide(case, NOW_MS)
    assert decision.action == action
    if rule:
        assert decision.rule == rule


@pytest.mark.parametrize(
    ("number", "before", "after", "written"),
    [
        (70, 1_000, 1_300, True),
        (70, 1_000, 1_100, False),
        (70, 1_000, 700, True),
        (71, 0, 1, True),
        (71, 1, 0, True),
        (71, 0, 0, False),
        (71, 1_000, 1_250, False),
    ],
)
def test_vector_of_the_reporter(number: int, before: float, after: float, written: bool) -> None:
    assert is_material(SegmentRates(before), SegmentRates(after)) is written, number


def test_groups_that_share_no_buckets_drive_splits_alone() -> None:
    """Consumers of CHECKPOINT groups count for the split lane, not for entry buckets."""
    cold = pulsar(1, stream_consumers=consumers(5), bucket_consumers={})
    assert decide(cold, NOW_MS).action is None
    busy = pulsar(1, {0: load(1_500)}, stream_consumers=consumers(5), bucket_consumers={})
    assert decide(busy, NOW_MS).action == Split(0)


@pytest.mark.parametrize(
    ("segments", "wanting", "each"), [(5, 2_600, 512), (8, 4_097, 512), (100, 3_300, 32)]
)
def test_as_many_entry_buckets_as_a_topic_may_have_are_better_than_none(
    segments: int, wanting: int, each: int
) -> None:
    case = pulsar(segments, stream_consumers=consumers(wanting))
    assert decide(case, NOW_MS).action == Rebucket(tuple(range(segments)), each)


def test_a_rebucket_held_by_its_cooldown_names_the_instant() -> None:
    case = pulsar(1, stream_consumers=consumers(5), last_rebucket_at_ms=HALF_A_MINUTE_AGO)
    decision: Decision = decide(case, NOW_MS)
    assert decision.next_eligible_at_ms == NOW_MS + MINUTE_MS // 2
    assert decide(case, NOW_MS + MINUTE_MS // 2).action == Rebucket((0,), 8)
