"""Load of a segment: its rates, since when they are steady, and when a report is worth writing (PIP-483)."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from scalable.domain.errors import LoadReportUnreadable

DEFAULT_CHANGE_THRESHOLD = 0.25
IDLE_INTERVAL_SECONDS = 10
"""How often a node reports that wants no topic more often."""
WATERMARK_WINDOWS = 3
LEAST_STALE_SECONDS = 1.5 * IDLE_INTERVAL_SECONDS
"""Idle nodes are silent for one interval; the rest is for the pipeline's own time."""
MOST = sys.float_info.max
METRICS = ("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut")


@dataclass(frozen=True, slots=True)
class SegmentRates:
    """Messages and bytes per second, in and out: finite, not negative, else LoadReportUnreadable."""

    msg_rate_in: float = 0.0
    bytes_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bytes_rate_out: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= rate < math.inf for rate in self.values):
            wrong = ((metric, rate) for metric, rate in self.by_metric().items() if not 0 <= rate < math.inf)
            raise LoadReportUnreadable(problem="{} is {}".format(*next(wrong)))

    @property
    def values(self) -> tuple[float, float, float, float]:
        """Give the rates in the order of METRICS."""
        return self.msg_rate_in, self.bytes_rate_in, self.msg_rate_out, self.bytes_rate_out

    def by_metric(self) -> dict[str, float]:
        """Give the rates by their PIP-483 names, in the order that decides ties."""
        return dict(zip(METRICS, self.values, strict=True))

    @property
    def combined(self) -> float:
        """Sum all four rates, whatever their units, as PIP-483 compares cold pairs."""
        return self.msg_rate_in + self.bytes_rate_in + self.msg_rate_out + self.bytes_rate_out


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The rates last written for a segment, steady since `modified_at_ms`."""

    rates: SegmentRates
    modified_at_ms: int


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a segment's load is heading: its rates now, and how much they change a second."""

    rates: SegmentRates
    slopes: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def ahead(self, seconds: float) -> SegmentRates:
        """Extend the line so far into the future; a rate does not fall below zero, and stays finite."""
        pairs = zip(self.rates.values, self.slopes, strict=True)
        return SegmentRates(*(min(max(0.0, rate + slope * seconds), MOST) for rate, slope in pairs))


@dataclass(frozen=True, slots=True)
class Peak:
    """The rates of a minute that was busier than all since, and until when it counts as recent."""

    rates: SegmentRates
    until_ms: int


def stale_after_seconds(rate_window_seconds: float) -> float:
    """Give how old the pipeline's watermark may be: three windows, and longer than idle nodes are silent."""
    return max(WATERMARK_WINDOWS * rate_window_seconds, LEAST_STALE_SECONDS)


def is_material(
    previous: SegmentRates | None, current: SegmentRates, threshold: float = DEFAULT_CHANGE_THRESHOLD
) -> bool:
    """Tell whether any rate moved by more than the threshold from what was last *written* (PIP-483).

    A first report and any rise from zero are material; a change of exactly the threshold is not.
    """
    if previous is None:
        return True
    pairs = zip(previous.by_metric().values(), current.by_metric().values(), strict=True)
    return any(_moved(before, after, threshold) for before, after in pairs)


def _moved(before: float, after: float, threshold: float) -> bool:
    if before == 0:
        return after != 0
    return abs(after - before) > threshold * before
