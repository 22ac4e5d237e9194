"""Results as a table, in a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from replay.measures import Measures

COLUMNS: tuple[tuple[str, Callable[[Measures], str]], ...] = (
    ("trace", lambda each: each.trace),
    ("rule", lambda each: each.profile),
    ("keys", lambda each: each.keys),
    ("violation %", lambda each: f"{each.violation_percent:.2f}"),
    ("over capacity %", lambda each: f"{each.over_capacity_percent:.3f}"),
    ("segments over clairvoyant", lambda each: f"{each.segments_over_clairvoyant:.2f}"),
    ("actions", lambda each: str(each.actions)),
    ("splits", lambda each: str(each.splits)),
    ("merges", lambda each: str(each.merges)),
    ("new segments", lambda each: str(each.new_segments)),
    ("converged after step", lambda each: _seconds(each.converged_after_step_seconds)),
)

LEAST_WIDTH = 112
"""Words of the headings are never cut, on a narrower terminal or in a file either."""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g} s"


def show(results: Sequence[Measures], console: Console) -> None:
    """Print a table for each trace, with the columns in which something stands."""
    console.width = max(console.width, LEAST_WIDTH)
    for (trace, keys), group in groupby(results, key=lambda each: (each.trace, each.keys)):
        rows = list(group)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        shown = [(name, cell) for name, cell in COLUMNS[3:] if any(map(cell, rows))]
        table.add_column("rule", no_wrap=True)
        for name, _ in shown:
            table.add_column(name, justify="right", min_width=max(map(len, name.split())))
        for each in rows:
            table.add_row(each.profile, *(cell(each) for _, cell in shown))
        console.print(f"{trace}, {keys} keys", style="bold")
        console.print(table)
        console.print()


def markdown(results: Iterable[Measures]) -> str:
    """Give results as a Markdown table; the spread of keys and what is empty is left out."""
    shown = [
        column for column in COLUMNS if column[0] not in ("keys", "over capacity %", "converged after step")
    ]
    lines = [" | ".join(name for name, _ in shown), "|".join("---" for _ in shown)]
    lines += [" | ".join(cell(each) for _, cell in shown) for each in results]
    return "".join(f"| {line} |\n" for line in lines)
