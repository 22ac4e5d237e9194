"""What a replay is judged by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from replay.simulation import Outcome


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The result of one replay; percentages are of the time after the warm-up, or of the load in it."""

    profile: str
    trace: str
    keys: str
    violation_percent: float
    over_capacity_percent: float
    segments_over_clairvoyant: float
    actions: int
    splits: int
    merges: int
    rebuckets: int
    new_segments: int
    mean_segments: float
    converged_after_step_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """Give the result by the names of its fields."""
        return asdict(self)


def measure(outcome: Outcome, *, profile: str, trace: str, keys: str) -> Measures:
    """Judge what happened after the warm-up."""
    setup = outcome.setup
    first = round(setup.warm_up_seconds / setup.step_seconds)
    first = first if first < len(outcome.load) else 0
    load, segments, fullest = outcome.load[first:], outcome.segments[first:], outcome.fullest[first:]
    needed = np.maximum(1, np.ceil(load / setup.capacity))
    over = np.maximum(0, fullest - setup.capacity)
    done = {name: [each for each in getattr(outcome, name) if each[0] >= first] for name in KINDS}
    return Measures(
        profile=profile,
        trace=trace,
        keys=keys,
        violation_percent=round(100 * float(np.mean(fullest > setup.capacity)), 4),
        over_capacity_percent=round(100 * float(over.sum() / max(load.sum(), 1e-9)), 4),
        segments_over_clairvoyant=round(float(segments.sum() / needed.sum()), 4),
        actions=sum(map(len, done.values())),
        **{name: len(actions) for name, actions in done.items()},
        new_segments=sum(added for actions in done.values() for _, added in actions),
        mean_segments=round(float(segments.mean()), 3),
        converged_after_step_seconds=_converged(outcome),
    )


KINDS = ("splits", "merges", "rebuckets")
STEP_RATIO = 4.0
"""A load that rises so many times from one step to the next is a step load."""


def _converged(outcome: Outcome) -> float | None:
    """Give how long after the largest step of the load no segment was above capacity any more."""
    load, step_seconds = outcome.load, outcome.setup.step_seconds
    rises = load[1:] / np.maximum(load[:-1], 1e-9)
    if len(rises) == 0 or rises.max() < STEP_RATIO:
        return None
    step = int(rises.argmax()) + 1
    over = outcome.fullest[step:] > outcome.setup.capacity
    return float(np.flatnonzero(over)[-1] + 1) * step_seconds if over.any() else 0.0
