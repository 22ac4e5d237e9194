"""Results of benches as a table and as JSON; rows that were not run keep their last result."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from bench.harness import Comparison, Row

HEAD = """# Benchmarks

Every number is the median of one interleaved run against its floor on the same machine; the **ratio** is what
counts, and machines are noisy (about 30 %). `./run bench [row ...]` measures again and rewrites this page and
`benchmarks.json`.

| # | metric | variant | floor | ours | unit | ratio | goal | reached | machine | date |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def machine() -> str:
    """Describe this machine in a few words."""
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {python}"


def record(row: Row, comparison: Comparison) -> dict[str, Any]:
    """Return one comparison as JSON."""
    return {
        "number": row.number,
        "title": row.title,
        "unit": row.unit,
        "higherIsBetter": row.higher_is_better,
        **asdict(comparison),
        "goal": row.goal_of(comparison),
        "ratio": comparison.ratio,
        "reached": row.reached(comparison),
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def save(records: Sequence[dict[str, Any]], *, folder: Path) -> None:
    """Replace the records of the rows that ran, keep the others, and write both files."""
    path = folder / "benchmarks.json"
    measured = {entry["number"] for entry in records}
    kept = [entry for entry in _load(path) if entry["number"] not in measured]
    entries = sorted([*kept, *records], key=lambda entry: (entry["number"], entry["label"]))
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(entries, indent=1) + "\n")
    (folder / "benchmarks.md").write_text(HEAD + "".join(map(_line, entries)) + _notes(entries))


def _load(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return entries


def _line(entry: dict[str, Any]) -> str:
    floor, ours = _median(entry["floor"]), _median(entry["product"])
    cells = (
        *(
            str(entry["number"]),
            entry["title"],
            entry["label"],
            f"{floor:,.4g}",
            f"{ours:,.4g}",
            entry["unit"],
        ),
        *(f"{entry['ratio']:.3g}x", f"{entry['goal']}x", "yes" if entry["reached"] else "no"),
        *(entry["machine"], entry["date"]),
    )
    return "| " + " | ".join(cells) + " |\n"


def _median(values: Sequence[float]) -> float:
    return Comparison(label="", floor=values, product=values).floor_median


def _notes(entries: Sequence[dict[str, Any]]) -> str:
    notes = [
        f"* Row {entry['number']}, {entry['label']}: {entry['note']}\n" for entry in entries if entry["note"]
    ]
    return "\n## Notes\n\n" + "".join(notes) if notes else ""
