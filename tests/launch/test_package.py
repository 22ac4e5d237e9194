"""What is installed with the product: packages that the documents' examples import, and what they need."""

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")}
APPLICATIONS = ("client", "cli", "domain", "wire")
"""The parts of `scalable` that run without a server."""


def imported(source: str) -> set[str]:
    """Give which of the product's top packages a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found & OURS


def examples() -> Iterator[str]:
    """Give the Python of the documents."""
    for page in (ROOT / "docs").glob("*.md"):
        for source in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            if re.search(r"^(from|import) ", source, re.MULTILINE):
                yield source


def test_what_examples_import_is_installed_with_all_that_it_needs() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    wanted = {name for source in examples() for name in imported(source)}
    assert {"scalable", "spark"} <= wanted
    parts = [*(ROOT / "scalable" / part for part in APPLICATIONS), ROOT / "spark", ROOT / "replay"]
    for source in (path for part in parts for path in part.rglob("*.py")):
        wanted |= imported(source.read_text())
    assert {name for name in wanted if not any(fnmatch(name, pattern) for pattern in patterns)} == set()
