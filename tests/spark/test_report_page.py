"""The page of the daily report: names are shown as they are, whatever they look like."""

from typing import Any

import pytest

from spark.report_page import draw, page

QUARTER = {"incarnation": 1, "quarter": 3, "segments": 1, "needed": 1, "msg_rate_in": 1.0, "highest": 2.0}


@pytest.mark.parametrize("name", ["a$b_{$c", r"\frac{$1$}", "<script>alert(1)</script>", "\N{SNOWMAN}"])
def test_names_are_neither_formulas_nor_markup(name: str) -> None:
    row: dict[str, Any] = {**QUARTER, "topic": f"topic://public/default/{name}"}
    picture = draw([row], 10_000.0)
    assert picture.startswith(b"\x89PNG")
    told = page(name, {"topics": [row]}, picture, segment_rate=10_000.0)
    assert "<script" not in told


def test_a_page_says_of_how_much_of_the_day_it_tells() -> None:
    hours = [{"hour": hour, "minutes_with_data": 60 if hour else 12, "topics": 1} for hour in range(24)]
    told = page("day", {"hours": hours}, b"", segment_rate=1.0, unreadable=["day=2026-11-27/<a>.parquet"])
    assert "1,392 of the day's 1,440 minutes have data." in told
    assert "Files that cannot be read are left out (1): day=2026-11-27/&lt;a&gt;.parquet." in told
