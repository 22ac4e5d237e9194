"""Results as a table, in a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from replay.measures import Measures

COLUMNS = (
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


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g} s"


def show(results: Iterable[Measures], console: Console) -> None:
    """Print results as a table."""
    table = Table()
    for number, (name, _) in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 3 else "right")
    for each in results:
        table.add_row(*(cell(each) for _, cell in COLUMNS))
    console.print(table)


def markdown(results: Iterable[Measures]) -> str:
    """Give results as a Markdown table; the spread of keys and what is empty is left out."""
    shown = [
        column for column in COLUMNS if column[0] not in ("keys", "over capacity %", "converged after step")
    ]
    lines = [" | ".join(name for name, _ in shown), "|".join("---" for _ in shown)]
    lines += [" | ".join(cell(each) for _, cell in shown) for each in results]
    return "".join(f"| {line} |\n" for line in lines)
