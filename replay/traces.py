"""Traces of load: read from CSV files (`timestamp,value`), scaled and interpolated to equal steps."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from replay.setup import Setup

Series = npt.NDArray[np.float64]
FOLDER = Path(__file__).parent / "traces"
COARSE_SECONDS = 1_800
MAX_POINTS = 1_000_000
MAX_STEPS = 10_000_000
"""What a replay plays in some minutes."""
COLUMNS = ["timestamp", "value"]


class TraceUnreadable(ValueError):
    """A trace that cannot be read, with the reason."""


@dataclass(frozen=True)
class Trace:
    """Values at ascending instants in seconds, the first at 0."""

    name: str
    seconds: Series
    values: Series


def bundled() -> list[str]:
    """Name the traces that come with the product."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def find(name: str) -> Path:
    """Give the file of a bundled trace's bare name, else the path as it is; raises TraceUnreadable."""
    for path in (Path(name), FOLDER / f"{name}.csv", FOLDER / name):
        if path.is_file():
            return path
    raise TraceUnreadable(f"{name} is no file, and no bundled trace ({', '.join(bundled())})")


def read(path: Path) -> Trace:
    """Read a CSV file of `timestamp,value`; raises TraceUnreadable with the line at fault.

    Timestamps are ISO 8601 or seconds, and ascend; values are finite and not negative.
    """
    points: list[tuple[float, float]] = []
    try:
        for line, row in _rows(path):
            points.append(_point(path.name, line, row))
            if len(points) > 1 and points[-1][0] <= points[-2][0]:
                raise TraceUnreadable(f"{path.name}, line {line}: the timestamp does not ascend")
            if len(points) > MAX_POINTS:
                raise TraceUnreadable(f"{path.name} has more than {MAX_POINTS} points")
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceUnreadable(f"{path.name} is no CSV in UTF-8: {error}") from None
    if len(points) < 2:
        raise TraceUnreadable(f"{path.name} has fewer than two points")
    columns = np.array(points, dtype=np.float64)
    return Trace(path.stem, columns[:, 0] - columns[0, 0], columns[:, 1])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Give the rows behind the headings with the numbers of their lines; spreadsheets begin with a mark."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        if next(rows, None) != COLUMNS:
            raise TraceUnreadable(f"{path.name}: the first line is not {','.join(COLUMNS)}")
        for row in rows:
            if row:
                yield rows.line_num, row


def _point(name: str, line: int, row: list[str]) -> tuple[float, float]:
    try:
        timestamp, text = row  # a comma as the sign of decimals would make three of them
        seconds, value = _seconds(timestamp), float(text)
    except ValueError:
        raise TraceUnreadable(f"{name}, line {line}: {','.join(row)[:80]!r} is no timestamp,value") from None
    if not np.isfinite(seconds):
        raise TraceUnreadable(f"{name}, line {line}: the timestamp {timestamp[:40]} is not finite")
    if not (np.isfinite(value) and value >= 0):
        raise TraceUnreadable(f"{name}, line {line}: the value {text[:40]} is not finite, or negative")
    return seconds, value


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def load_of(trace: Trace, setup: Setup) -> Series:
    """Give messages a second in equal steps: scaled by a percentile of the points used, then capped.

    The percentile is that of the points that are used; gaps between them are bridged in time.
    """
    coarse = float(np.median(np.diff(trace.seconds))) >= COARSE_SECONDS
    count = max(2, setup.coarse_points if coarse else setup.points)
    seconds, values = trace.seconds[:count], trace.values[:count]
    reference = float(np.percentile(values, setup.scale_percentile))
    if reference <= 0:
        raise TraceUnreadable(f"{trace.name}: the percentile that is scaled is zero")
    instants = steps(trace.name, seconds[-1], setup)
    rates = np.interp(instants, seconds, values / reference * setup.scale_rate)
    load: Series = np.minimum(rates, setup.cap_rate)
    return load


def steps(name: str, seconds: float, setup: Setup) -> Series:
    """Give the instants of a load's steps, in seconds; raises TraceUnreadable where they are too many."""
    count = seconds / setup.step_seconds
    if count > MAX_STEPS:
        raise TraceUnreadable(
            f"{name}: {count:.3g} steps of {setup.step_seconds:g} s are more than {MAX_STEPS}; "
            "timestamps are seconds; fewer points or longer steps are played"
        )
    return np.arange(0.0, seconds, setup.step_seconds)
