"""The numbers of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

MOST = 1e12
MOST_PARTS = 65_536


def _number(default: float, what: str, *, least: float = 0, most: float = MOST) -> float:
    value: float = field(default=default, metadata={"help": what, "least": least, "most": most})
    return value


def _positive(default: float, what: str) -> float:
    return _number(default, what, least=1e-6)


def _count(default: int, what: str, *, most: float = MOST) -> int:
    value: int = field(default=default, metadata={"help": what, "least": 1, "most": most})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All numbers of a replay, options of the command; ValueError for one out of its bounds."""

    scale_percentile: float = _number(
        99.5, "the percentile of a trace's values that is scaled to the rate", most=100
    )
    scale_rate: float = _positive(400_000, "messages a second at that percentile")
    cap_rate: float = _positive(620_000, "messages a second at most")
    step_seconds: float = _positive(10, "length of a step")
    points: int = _count(2_016, "points of a trace that are played at most")
    coarse_points: int = _count(672, "the same for traces with half an hour or more between points")
    warm_up_seconds: float = _number(
        1_800, "so long at the start nothing is counted, where the load is longer"
    )
    capacity: float = _positive(12_500, "messages a second that a segment can take")
    initial_segments: int = _count(8, "equally wide segments at the start", most=MOST_PARTS)
    max_segments: int = _count(64, "segments at most, whatever the rule")
    rate_window_seconds: float = _positive(60, "time constant of the mean that rules see")
    trend_seconds: float = _positive(30, "the slope is that over so many seconds")
    report_delay_seconds: float = _number(0, "rules see loads that are so old")
    material_change: float = _number(0, "a load is reported when it moved by more than this share; 0: always")
    heat_parts: int = _count(32, "equal parts of a segment in which its load is known", most=MOST_PARTS)

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of its bounds, NaN too."""
        for number in fields(self):
            least, most = number.metadata["least"], number.metadata["most"]
            value = getattr(self, number.name)
            if not least <= value <= most:
                raise ValueError(f"{number.name} is {value:g}: it must be from {least:g} to {most:g}")
        if self.initial_segments > self.max_segments:
            most = f"max_segments ({self.max_segments})"
            raise ValueError(f"initial_segments is {self.initial_segments}: it must not be above {most}")
