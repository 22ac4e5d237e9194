"""Every known fault of the document has tests, and those tests are there."""

import ast
import re
from functools import cache

import pytest

from tests.tidy.sources import ROOT

DOCUMENT = ROOT / "docs" / "known-faults.md"
ROW = re.compile(r"^\| (?P<id>B\d+) \| [^|]+ \| (?P<tests>[^|]*) \|$", re.MULTILINE)
ROWS = {row["id"]: re.findall(r"`([^`]+)`", row["tests"]) for row in ROW.finditer(DOCUMENT.read_text())}


@cache
def functions_of(file: str) -> set[str]:
    """The tests of a file, those of classes as `Class::test`; none where there is no file."""
    path = ROOT / file
    return _tests(ast.parse(path.read_text()).body) if path.is_file() else set()


def _tests(body: list[ast.stmt], prefix: str = "") -> set[str]:
    found = set()
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found.add(f"{prefix}{node.name}")
    return found


@pytest.mark.parametrize("fault", ROWS)
def test_a_fault_has_tests_that_are_there(fault: str) -> None:
    assert ROWS[fault]
    for test in ROWS[fault]:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test


def test_every_line_of_the_tables_is_read() -> None:
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| B")]
    assert len(lines) == len(ROWS)
