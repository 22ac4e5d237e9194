"""Estimates of what a split would do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.forecast import added, passing, scaled, share_of
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.layout import Layout
from scalable.domain.load import SegmentRates
from scalable.domain.subscriptions import BucketKey


def test_without_measurements_traffic_is_even() -> None:
    low, high = FULL_RANGE.midpoint_split()
    assert share_of(low, FULL_RANGE, ()) == share_of(high, FULL_RANGE, [0.0] * 32) == 0.5
    assert share_of(HashRange(0, 0), HashRange(1, 5), ()) == 0.0


def test_measured_parts_decide() -> None:
    low, high = FULL_RANGE.midpoint_split()
    assert share_of(low, FULL_RANGE, [3.0, 1.0]) == pytest.approx(0.75)
    assert share_of(high, FULL_RANGE, [3.0, 1.0]) == pytest.approx(0.25)
    assert share_of(FULL_RANGE, low, [1.0]) == pytest.approx(1.0)  # a merge takes all


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=32),
    st.lists(st.integers(1, 65_535), min_size=1, max_size=8, unique=True),
)
def test_the_shares_of_all_children_are_one(parts: list[float], boundaries: list[int]) -> None:
    children = FULL_RANGE.split_at(sorted(boundaries))
    assert sum(share_of(child, FULL_RANGE, parts) for child in children) == pytest.approx(1.0)


def test_rates_are_scaled_and_added() -> None:
    half = scaled(SegmentRates(10, 1000, 20, 2000), 0.5)
    assert half == SegmentRates(5, 500, 10, 1000)
    assert added([half, half]) == SegmentRates(10, 1000, 20, 2000)
    assert added([]) == SegmentRates()


def test_a_child_that_stays_with_its_parents_consumer_does_not_pass() -> None:
    layout = Layout.initial(1, 0)
    after = layout.apply(layout.plan_split(0), 1)
    owners = {BucketKey(0): "a"}
    alone = passing(after, drained={0}, owners=owners, consumers=["a"], key_shared=False)
    assert alone == ()
    (moved,) = passing(after, drained={0}, owners=owners, consumers=["a", "b"], key_shared=False)
    assert (moved.before, moved.after) == ("a", "b")
    assert passing(after, drained={0}, owners={}, consumers=[], key_shared=False) == ()
