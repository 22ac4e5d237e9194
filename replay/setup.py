"""The numbers of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field


def _number(default: float, what: str) -> float:
    value: float = field(default=default, metadata={"help": what})
    return value


def _count(default: int, what: str) -> int:
    value: int = field(default=default, metadata={"help": what})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All numbers of a replay; each is an option of the command."""

    scale_percentile: float = _number(99.5, "the percentile of a trace's values that is scaled to the rate")
    scale_rate: float = _number(400_000, "messages a second at that percentile")
    cap_rate: float = _number(620_000, "messages a second at most")
    step_seconds: float = _number(10, "length of a step")
    points: int = _count(2_016, "points of a trace that are played at most")
    coarse_points: int = _count(672, "the same for traces with half an hour or more between points")
    warm_up_seconds: float = _number(1_800, "so long at the start nothing is counted")
    capacity: float = _number(12_500, "messages a second that a segment can take")
    initial_segments: int = _count(8, "equally wide segments at the start")
    max_segments: int = _count(64, "segments at most, whatever the rule")
    rate_window_seconds: float = _number(60, "time constant of the mean that rules see")
    trend_seconds: float = _number(30, "the slope is that over so many seconds")
    report_delay_seconds: float = _number(0, "rules see loads that are so old")
    material_change: float = _number(0, "a load is reported when it moved by more than this share; 0: always")
    heat_parts: int = _count(32, "equal parts of a segment in which its load is known")
