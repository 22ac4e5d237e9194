"""Loads: what is readable, and which change is worth a report; numbers are those of Pulsar's test vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import LoadReportUnreadable
from scalable.domain.load import METRICS, SegmentRates, is_material

rates = st.builds(SegmentRates, *[st.floats(0, 1e12)] * 4)


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        pytest.param(1000, 1300, True, id="vector 70a"),
        pytest.param(1000, 1100, False, id="vector 70b"),
        pytest.param(1000, 700, True, id="vector 70c"),
        pytest.param(0, 1, True, id="vector 71a"),
        pytest.param(1, 0, True, id="vector 71b"),
        pytest.param(0, 0, False, id="vector 71c"),
        pytest.param(1000, 1250, False, id="vector 71d"),
        pytest.param(1000, 750, False, id="exactly the threshold downwards"),
    ],
)
@pytest.mark.parametrize("metric", range(4))
def test_material_changes(before: float, after: float, written: bool, metric: int) -> None:
    def only(rate: float) -> SegmentRates:
        return SegmentRates(*(rate if position == metric else 5.0 for position in range(4)))

    assert is_material(only(before), only(after)) is written


@given(rates)
def test_the_first_report_is_written_and_a_repeat_is_not(current: SegmentRates) -> None:
    assert is_material(None, current)
    assert not is_material(current, current)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -float("inf"), -1.0, -1e-9])
@pytest.mark.parametrize("metric", range(4))
def test_impossible_rates_are_refused(rate: float, metric: int) -> None:
    with pytest.raises(LoadReportUnreadable) as caught:
        SegmentRates(*(rate if position == metric else 0.0 for position in range(4)))
    assert METRICS[metric] in caught.value.problem
