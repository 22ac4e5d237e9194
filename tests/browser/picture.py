"""What the map must look like, computed from what REST says and from nothing of the page's own code."""

import math
from collections.abc import Mapping
from typing import Any

VIRIDIS = (
    (68, 1, 84),
    (72, 40, 120),
    (62, 74, 137),
    (49, 104, 142),
    (38, 130, 142),
    (31, 158, 137),
    (53, 183, 121),
    (109, 205, 89),
    (180, 222, 44),
    (253, 231, 37),
)
METRICS = {
    "msgRateIn": ("splitMsgRateInThreshold", "mergeMsgRateInThreshold"),
    "bytesRateIn": ("splitBytesRateInThreshold", "mergeBytesRateInThreshold"),
    "msgRateOut": ("splitMsgRateOutThreshold", "mergeMsgRateOutThreshold"),
    "bytesRateOut": ("splitBytesRateOutThreshold", "mergeBytesRateOutThreshold"),
}


def colour(load: Mapping[str, float], policy: Mapping[str, float]) -> tuple[int, int, int]:
    """Give the colour of a load: logarithmic, of the metric nearest to its split threshold."""
    metric = max(METRICS, key=lambda name: load[name] / policy[METRICS[name][0]])
    split, merge = (policy[field] for field in METRICS[metric])
    low, high = math.log1p(merge), math.log1p(split)
    level = min(1.0, max(0.0, (math.log1p(load[metric]) - low) / (high - low)))
    at = level * (len(VIRIDIS) - 1)
    index = min(len(VIRIDIS) - 2, int(at))
    below, above = VIRIDIS[index], VIRIDIS[index + 1]
    red, green, blue = (
        round(low + (high - low) * (at - index)) for low, high in zip(below, above, strict=True)
    )
    return red, green, blue


def expected_edges(topic: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Give all (parent, child) pairs of the DAG."""
    return {(parent, one["segmentId"]) for one in topic["segments"].values() for parent in one["parentIds"]}


def expected_marks(topic: Mapping[str, Any]) -> int:
    """Count the borders that splits made and merges removed, and the rebuckets."""
    segments = topic["segments"].values()
    borders = sum(max(0, len(one[side]) - 1) for one in segments for side in ("childIds", "parentIds"))
    rebuckets = [
        one
        for one in segments
        for parent in one["parentIds"]
        if topic["segments"][str(parent)]["hashRange"] == one["hashRange"]
    ]
    return borders + len(rebuckets)


class Axes:
    """Maps hash and time to pixels, fitted on two rectangles and then held against all others."""

    def __init__(self, topic: Mapping[str, Any], boxes: Mapping[int, Mapping[str, float]]) -> None:
        segments = {one["segmentId"]: one for one in topic["segments"].values()}
        first = min(segments.values(), key=lambda one: one["createdAtMs"])
        last = max(segments.values(), key=lambda one: one["createdAtMs"])
        whole = boxes[first["segmentId"]]
        self._top: float = whole["y"]
        self._height: float = whole["height"]
        self._left: float = whole["x"]
        self._from: float = first["createdAtMs"]
        span = last["createdAtMs"] - first["createdAtMs"]
        self._pixels_per_ms: float = (boxes[last["segmentId"]]["x"] - whole["x"]) / span

    def x(self, at_ms: float) -> float:
        return self._left + (at_ms - self._from) * self._pixels_per_ms

    def y(self, hash_value: int) -> float:
        """Give the height of a border; 0x0000 lies below. The first segment covers everything."""
        return self._top + self._height * (1 - hash_value / 65536)
