"""Loads, tiles and reports of them as REST reads and answers them."""

from typing import Any

from scalable.api.serializers import MAX_TIME_MS, Body, Identifier, Query, TimeMs


class TilesQuery(Query):
    """A span of minutes, both ends included."""

    from_ms: TimeMs = 0
    to_ms: TimeMs = MAX_TIME_MS


class LoadReportBody(Body):
    """Rates that a reporter computed, and up to when its input was complete."""

    reporter: str
    watermark_ms: TimeMs
    loads: list[dict[str, Any]]


class TileReportBody(Body):
    """One-minute tiles; one that is there is replaced."""

    tiles: list[dict[str, Any]]


class LoadsBody(Body):
    """Rates per segment id, as of the pipeline's watermark; `known` is false when that is too old."""

    watermark_ms: int | None
    known: bool
    segments: dict[str, dict[str, float]]


class TileBody(Body):
    """Messages into a segment per second, mean and largest, per 1/32 of its range.

    Of `spanMs` from `minuteMs` on; the mean is over the `observedMs` of them.
    """

    segment_id: Identifier
    minute_ms: TimeMs
    span_ms: int
    observed_ms: int
    mean: list[float]
    max: list[float]


class TilesBody(Body):
    """Tiles, ascending by time."""

    tiles: list[TileBody]


class ReportOutcomeBody(Body):
    """How many entries were written, needed no writing, or named what is not there."""

    written: int
    unchanged: int
    unknown: int
