"""The rules of the house for its sources: each takes text and returns complaints, and is tested itself."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.tidy.sources import Source

LONGEST_FUNCTION = 60
LONG_FUNCTION = 40
LONG_SHARE = 0.05
MEDIAN_FUNCTION = 10
LONGEST_FILE = 400

# Written in two parts, so that this file does not contain what it forbids.
FORBIDDEN_WORDS = tuple(
    first + second
    for first, second in (
        *(
            ("/wo", "rk/"),
            ("/fa", "rm/"),
            ("/tm", "p/"),
            ("/ho", "me/"),
            ("../sha", "red"),
            ("shared/", "design"),
        ),
        *(("DESIGN sec", "tion"), ("sub", "agent"), ("this ses", "sion's task"), ("in this ses", "sion,")),
        *(
            ("pypi", ".org"),
            ("python", "hosted"),
            ("registry.", "npmjs"),
            ("crates", ".io"),
            ("proxy.", "golang"),
        ),
        *(("repo1.", "maven"), ("deb.", "debian"), ("FIX", "ME"), ("XX", "X "), ("TO", "DO:"), ("HA", "CK:")),
    )
)
BANNER = re.compile(r"^\s*(?:#|//)\s*(?:[-=*#~]{4,}|[-=]{2,} .* [-=]{2,})", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
RELEASE = re.compile(r"^## (?:Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\))$")
MODULE = re.compile(r"^[a-z_0-9]+(?:\.[a-z_0-9]+)+(?::[a-z_]+)?$")
DECISION_NAME = re.compile(r"^\d{4}-[a-z0-9]+(?:-[a-z0-9]+)*\.md$")


@dataclass(frozen=True)
class Function:
    """A function's place, and its length in lines without its docstring."""

    place: str
    length: int


def functions(source: Source) -> Iterator[Function]:
    """Yield every function and method, also nested ones."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(f"{source.path}:{node.lineno} {node.name}", _length(node))


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)


def long_functions(sources: Iterable[Source]) -> list[str]:
    """Complain about functions over the limit."""
    return [
        f"{function.place}: {function.length} lines"
        for source in sources
        for function in functions(source)
        if function.length > LONGEST_FUNCTION
    ]


def long_files(sources: Iterable[Source]) -> list[str]:
    """Complain about files over the limit."""
    counts = ((source.path, source.text.count("\n")) for source in sources)
    return [f"{path}: {lines} lines" for path, lines in counts if lines > LONGEST_FILE]


def forbidden_words(source: Source) -> list[str]:
    """Complain about places and words that mean something on one machine only, and about unfinished work."""
    return [
        f"{source.path}:{number}: {word}"
        for number, line in enumerate(source.text.splitlines(), 1)
        for word in FORBIDDEN_WORDS
        if word in line
    ]


def banners(source: Source) -> list[str]:
    """Complain about comments that only draw a line."""
    return [f"{source.path}: {match.group().strip()}" for match in BANNER.finditer(source.text)]


def imported_names(source: Source) -> Iterator[str]:
    """Yield every dotted name that the file may load: by an import, or in a text like `p.asgi:main`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.match(node.value):
            yield node.value.partition(":")[0]


def dead_modules(sources: Sequence[Source], *, entry_points: Sequence[str]) -> list[str]:
    """Complain about modules that no other one imports; `entry_points` are patterns of the others.

    A module that can be run as a program needs nobody either, and a package's `__init__` that only exists
    to make the folder a package is not a module of its own.
    """
    imported = {name for source in sources for name in imported_names(source)}
    return [
        source.path
        for source in sources
        if source.module not in imported
        and not source.path.endswith("__init__.py")
        and 'if __name__ == "__main__":' not in source.text
        and not any(PurePosixPath(source.path).match(pattern) for pattern in entry_points)
    ]


def broken_links(source: Source, *, existing: Iterable[str]) -> list[str]:
    """Complain about relative links to files that do not exist; `existing` are paths of files and folders."""
    known = set(existing)
    folder = PurePosixPath(source.path).parent
    complaints = []
    for match in LINK.finditer(source.text):
        target = (match.group(1) or match.group(2)).partition("#")[0]
        if target and not re.match(r"[a-z]+:", target) and _normal(folder / target) not in known:
            complaints.append(f"{source.path}: {target}")
    return complaints


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def changelog_shape(source: Source) -> list[str]:
    """Complain unless it is a title, then releases, each a list of sentences."""
    lines = source.text.splitlines()
    complaints = [] if lines[:1] == ["# Changelog"] else ["the title is not `# Changelog`"]
    headings = [line for line in lines if line.startswith("## ")]
    if not headings:
        complaints.append("no release")
    complaints += [f"not a release: {line}" for line in headings if not RELEASE.match(line)]
    complaints += [f"no sentence: {line}" for line in _items(lines) if not line.endswith((".", "!", "`"))]
    return complaints


def _items(lines: Sequence[str]) -> Iterator[str]:
    """Yield each list item with its further lines joined."""
    item = ""
    for line in [*lines, ""]:
        if line.startswith("* ") or not line.startswith("  "):
            if item:
                yield item
            item = line if line.startswith("* ") else ""
        elif item:
            item += " " + line.strip()


def decision_shape(source: Source) -> list[str]:
    """Complain unless a decision record's name, number and title fit, and it says what was decided."""
    name = PurePosixPath(source.path).name
    complaints = [] if DECISION_NAME.match(name) else [f"{source.path}: not a name like 0007-short-title.md"]
    if not source.text.startswith(f"# {name[:4]} "):
        complaints.append(f"{source.path}: the title does not begin with its number")
    if "**Decision" not in source.text:
        complaints.append(f"{source.path}: no paragraph **Decision**")
    return complaints
