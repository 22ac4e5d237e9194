"""The page of benchmarks is what was recorded, notes and all; bounds in notes are reckoned."""

import json
from pathlib import Path

import pytest

from bench.report import save
from bench.rows.spark import best_ratio, told_bounds, told_parts
from tests.docs.pages import ROOT, page


def test_the_page_is_made_of_the_records(tmp_path: Path) -> None:
    records = (ROOT / "docs" / "benchmarks.json").read_text()
    (tmp_path / "benchmarks.json").write_text(records)
    save([], folder=tmp_path)
    assert (tmp_path / "benchmarks.md").read_text() == page("benchmarks")
    assert (tmp_path / "benchmarks.json").read_text() == records


def test_jobs_on_spark_tell_what_bounds_them() -> None:
    bounds = told_bounds({8: 1.884, 16: 1.94})
    assert "at 1.88x with 8, 1.94x with 16 tasks" in bounds
    assert bounds.endswith("a job has 8")
    parts = told_parts({"numbers": 0.412, "names": 0.6})
    assert "0.41 s for numbers, 0.60 s for names" in parts
    records = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
    kept = {each["number"]: each["note"] for each in records if each["number"] in (16, 17)}
    assert kept[16].startswith("both read the same files with two threads; by itself, Spark takes ")
    assert kept[17].startswith("topics go to tasks by the hash of their names")


@pytest.mark.parametrize(
    ("sizes", "bound"),
    [([4], 1.0), ([2, 2], 2.0), ([1, 1, 2], 4 / 3), ([2, 1, 1], 2.0), ([8, 9, 9, 4, 8, 6, 9, 11], 64 / 34)],
)
def test_two_cores_take_tasks_in_their_order(sizes: list[int], bound: float) -> None:
    assert best_ratio(sizes) == pytest.approx(bound)
