"""What rules see of a load at each step: means, peaks and slopes, worked out for the whole series at once.

The spread of keys does not change during a replay, so that a segment's mean is its share of the topic's.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from replay.setup import Setup
from replay.traces import Series


class History:
    """The load of a replay and its derivatives, each by step."""

    def __init__(self, load: Series, setup: Setup) -> None:
        self.setup = setup
        self.load = load
        delay = min(len(load), round(setup.report_delay_seconds / setup.step_seconds))
        self.seen = np.concatenate([np.full(delay, load[0]), load])[: len(load)]
        self.mean = cache(self._mean)
        self.peak = cache(self._peak)
        self.lowest = cache(self._lowest)

    def _mean(self, seconds: float) -> Series:
        """Give the exponential mean with this time constant, which begins at the first value."""
        weight = 1 - math.exp(-self.setup.step_seconds / seconds)
        means = np.empty_like(self.seen)
        current = self.seen[0]
        for step, rate in enumerate(self.seen):
            current += weight * (rate - current)
            means[step] = current
        return means

    @property
    def rate(self) -> Series:
        """Give the mean by which rules judge."""
        return self.mean(self.setup.rate_window_seconds)

    def _steps(self, seconds: float) -> int:
        """Give a span in steps; before the load's first all is as there, and more of that tells nothing."""
        return min(len(self.load), max(1, round(seconds / self.setup.step_seconds)))

    def _peak(self, seconds: float) -> Series:
        """Give the highest mean of the last so many seconds."""
        return self._extreme(self._steps(seconds), highest=True)

    def _lowest(self, seconds: float) -> Series:
        """Give the lowest mean of the last so many seconds."""
        return self._extreme(self._steps(seconds), highest=False)

    def _extreme(self, steps: int, *, highest: bool) -> Series:
        padded = np.concatenate([np.full(steps, self.rate[0]), self.rate])
        windows = sliding_window_view(padded, steps + 1)
        extremes: Series = windows.max(axis=1) if highest else windows.min(axis=1)
        return extremes

    @property
    def slope(self) -> Series:
        """Give the change a second over the last `trend_seconds`."""
        steps = self._steps(self.setup.trend_seconds)
        before = np.concatenate([np.full(steps, self.seen[0]), self.seen[:-steps]])
        slopes: Series = (self.seen - before) / (steps * self.setup.step_seconds)
        return slopes
