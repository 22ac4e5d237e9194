"""A replay as a picture: load and capacity, segments, and the load of the fullest segment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from replay.measures import Measures
from replay.simulation import Outcome
from replay.traces import Series

LOAD, CAPACITY, OVER, UNCOUNTED = "#222222", "#2a78d6", "#d03b3b", "#9a9a9a"
MOST_POINTS = 4_000


def draw(replays: Sequence[tuple[Measures, Outcome]], path: Path) -> None:
    """Write a PNG with a column for each replay; those of the same load are on the same scales."""
    mpl.use("Agg")
    figure = Figure(figsize=(6.2 * len(replays) + 1, 7.2), layout="constrained")
    rows = figure.subplots(3, len(replays), squeeze=False, height_ratios=(3, 2, 2))
    firsts: dict[str, list[Axes]] = {}
    for column, (measures, outcome) in enumerate(replays):
        axes = [row[column] for row in rows]
        _share(axes, firsts.setdefault(measures.trace, axes))
        axes[0].set_title(f"{measures.trace}, {measures.profile}", fontsize=11, loc="left")
        _draw_load(axes[0], outcome)
        _draw_segments(axes[1], measures, outcome)
        _draw_fullest(axes[2], measures, outcome)
        _draw_warm_up(axes, outcome)
        axes[2].set_xlabel("hours")
    for row, name in zip(rows, ("messages/s", "segments", "fullest segment,\nmessages/s"), strict=True):
        row[0].set_ylabel(name)
        for each in row:
            each.set_ylim(bottom=0)
    figure.savefig(path, dpi=110, format="png")


def _share(axes: Sequence[Axes], of_first: Sequence[Axes]) -> None:
    """Put a column on the scales of the first one of its load."""
    for each, first in zip(axes, of_first, strict=True):
        if each is not of_first[0]:
            each.sharex(of_first[0])
        if each is not first:
            each.sharey(first)


def _hours(outcome: Outcome) -> Series:
    return np.arange(len(outcome.load)) * outcome.setup.step_seconds / 3_600


def _thinned(outcome: Outcome, values: Series) -> tuple[Series, Series]:
    """Give hours and values; of a long series the highest of each of a few thousand spans."""
    span = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), span)
    return _hours(outcome)[starts], np.maximum.reduceat(values, starts)


def _draw_load(axes: Axes, outcome: Outcome) -> None:
    capacity = outcome.segments * outcome.setup.capacity
    axes.fill_between(
        *_thinned(outcome, capacity), step="post", color=CAPACITY, alpha=0.25, lw=0, label="capacity"
    )
    axes.plot(*_thinned(outcome, outcome.load), color=LOAD, lw=0.9, label="load")
    _explain(axes)


def _draw_segments(axes: Axes, measures: Measures, outcome: Outcome) -> None:
    needed = np.maximum(1, np.ceil(outcome.load / outcome.setup.capacity))
    axes.step(*_thinned(outcome, outcome.segments), where="post", color=CAPACITY, lw=1.1, label="segments")
    axes.step(*_thinned(outcome, needed), where="post", color=LOAD, lw=0.7, label="clairvoyant")
    text = f"{measures.segments_over_clairvoyant:.2f} times the clairvoyant, {measures.actions} actions"
    axes.set_title(text, fontsize=9, loc="left")
    _explain(axes)


def _draw_fullest(axes: Axes, measures: Measures, outcome: Outcome) -> None:
    hours, fullest = _thinned(outcome, outcome.fullest)
    axes.plot(hours, fullest, color=LOAD, lw=0.7)
    axes.axhline(outcome.setup.capacity, color=OVER, lw=1)
    over = fullest > outcome.setup.capacity
    axes.plot(hours[over], fullest[over], ".", color=OVER, ms=3)
    axes.set_title(f"above capacity {measures.violation_percent:.2f} % of the time", fontsize=9, loc="left")
    axes.set_ylim(0, 2.2 * outcome.setup.capacity)


def _draw_warm_up(axes: Sequence[Axes], outcome: Outcome) -> None:
    """Mark the time in which nothing counts."""
    hours = outcome.setup.warm_up_seconds / 3_600
    if hours <= 0:
        return
    for each in axes:
        each.axvspan(0, hours, color=UNCOUNTED, alpha=0.35, lw=0)
    text, by_hours_and_height = " grey: warm-up, not counted", axes[2].get_xaxis_transform()
    axes[2].text(hours, 1, text, fontsize=7, va="top", transform=by_hours_and_height)


def _explain(axes: Axes) -> None:
    """Name the lines, above them."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False, borderpad=0)
