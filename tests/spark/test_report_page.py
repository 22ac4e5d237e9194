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
