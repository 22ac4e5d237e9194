"""The last minutes of load of the active segments: of each range, whichever segment took its messages then.

A tile is one minute of one segment: messages per second in each of equally wide parts of its range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression

from scalable.domain.forecast import share_of
from scalable.domain.layout import Layout
from scalable.domain.load import METRICS, LoadRecord, SegmentRates, Trend

MINUTE_MS = 60_000
HEAT_MINUTES = 3
TREND_MINUTES = 6
LEAST_MINUTES_OF_A_TREND = 3


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of one segment."""

    segment_id: int
    minute_ms: int
    parts: Sequence[float]


@dataclass(frozen=True, slots=True)
class Recent:
    """Of a topic's active segments: the rates of their parts, where their loads head, and their peaks."""

    heat: Mapping[int, Sequence[float]] = field(default_factory=dict)
    trends: Mapping[int, Trend] = field(default_factory=dict)
    peaks: Mapping[int, SegmentRates] = field(default_factory=dict)


def recent(
    layout: Layout,
    minutes: Iterable[Minute],
    loads: Mapping[int, LoadRecord],
    *,
    now_ms: int,
    peak_seconds: float,
) -> Recent:
    """Tell the last minutes; tiles count messages in alone, the other rates are taken to go with them."""
    known = [minute for minute in minutes if minute.segment_id in layout.segments]
    by_segment = _by_active_segment(layout, known)
    peaks_since_ms = now_ms - round(peak_seconds * 1000) - MINUTE_MS
    trends_since_ms = now_ms - TREND_MINUTES * MINUTE_MS
    records = {key: record for key, record in loads.items() if key in by_segment}
    return Recent(
        heat=_heat(layout, known, now_ms - HEAT_MINUTES * MINUTE_MS),
        trends={
            key: Trend(record.rates, _slopes(record.rates, by_segment[key], trends_since_ms))
            for key, record in records.items()
        },
        peaks={
            key: _with_messages(
                records[key].rates if key in records else SegmentRates(),
                max((rate for at_ms, rate in rates.items() if at_ms >= peaks_since_ms), default=0.0),
            )
            for key, rates in by_segment.items()
            if rates or key in records
        },
    )


def _by_active_segment(layout: Layout, minutes: Iterable[Minute]) -> dict[int, dict[int, float]]:
    """Sum up what came into the range of each active segment, minute by minute."""
    found: dict[int, dict[int, float]] = {each.segment_id: defaultdict(float) for each in layout.active}
    for minute in minutes:
        then = layout.segments[minute.segment_id]
        total = sum(minute.parts)
        for each in [then] if then.is_active else layout.active:
            if each.hash_range.intersection(then.hash_range) is not None:
                share = share_of(each.hash_range, then.hash_range, minute.parts)
                found[each.segment_id][minute.minute_ms] += total * share
    return found


def _heat(layout: Layout, minutes: Iterable[Minute], since_ms: int) -> dict[int, Sequence[float]]:
    newest = sorted(minutes, key=lambda minute: minute.minute_ms)
    return {
        minute.segment_id: minute.parts
        for minute in newest
        if minute.minute_ms >= since_ms
        and layout.segments[minute.segment_id].is_active
        and sum(minute.parts) > 0
    }


def _slopes(
    rates: SegmentRates, by_minute: Mapping[int, float], since_ms: int
) -> tuple[float, float, float, float]:
    points = sorted((at_ms, rate) for at_ms, rate in by_minute.items() if at_ms >= since_ms)
    if len(points) < LEAST_MINUTES_OF_A_TREND or rates.msg_rate_in <= 0:
        return (0.0, 0.0, 0.0, 0.0)
    line = linear_regression([at_ms / 1000 for at_ms, _ in points], [rate for _, rate in points])
    messages, size, out, size_out = (rates.by_metric()[metric] for metric in METRICS)
    relative = line.slope / messages
    return (messages * relative, size * relative, out * relative, size_out * relative)


def _with_messages(rates: SegmentRates, msg_rate_in: float) -> SegmentRates:
    """Raise all rates with that of messages in, when that was higher."""
    if msg_rate_in <= rates.msg_rate_in:
        return rates
    if rates.msg_rate_in <= 0:
        return SegmentRates(msg_rate_in, rates.bytes_rate_in, rates.msg_rate_out, rates.bytes_rate_out)
    factor = msg_rate_in / rates.msg_rate_in
    return SegmentRates(*(rate * factor for rate in rates.by_metric().values()))
