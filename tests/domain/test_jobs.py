"""Days that a job is told: one form, none before the first minute of a history, none that has not begun."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import InvalidParameter
from scalable.domain.jobs import DAY_OPTIONS, FIRST_DAY, OPTIONS, JobKind, check_options, parse_day

TODAY = date(2026, 11, 29)
WITH_DAYS = [(kind, name) for kind in JobKind for name in DAY_OPTIONS if name in OPTIONS[kind]]


def options(name: str, value: object) -> dict[str, object]:
    """Give the option, and what it needs beside it."""
    return {"day": "1970-01-01", name: value} if name == "lastDay" else {name: value}


@pytest.mark.parametrize(("kind", "name"), WITH_DAYS)
@given(day=st.dates(FIRST_DAY, TODAY))
def test_each_day_up_to_today_is_taken_as_it_is_written(kind: JobKind, name: str, day: date) -> None:
    assert check_options(kind, options(name, str(day)), today=TODAY)[name] == str(day)
    assert parse_day(str(day)) == day


@pytest.mark.parametrize(("kind", "name"), WITH_DAYS)
@pytest.mark.parametrize(
    "value",
    [
        *("20261127", "2026-W48-5", "2026W485", "2026-1-5", "26-11-27", "27.11.2026", "2026-11-27T00:00:00"),
        *("2026-11-27\n", " 2026-11-27", "\u0662026-11-27", "2026-02-30", "0001-01-01", "1969-12-31"),
        *("", "today", 20261127, None, TODAY, str(TODAY + timedelta(days=1)), "9999-12-31"),
    ],
)
def test_what_is_no_such_day_is_refused_by_its_name_and_value(
    kind: JobKind, name: str, value: object
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_options(kind, options(name, value), today=TODAY)
    assert (refused.value.parameter, refused.value.value) == (name, str(value))
