"""The last minutes of load of the active segments: of each range, whichever segment took its messages then.

A tile is one minute of one segment: messages per second in each of equally wide parts of its range, over the
time for which the segment was observed in that minute. In the minute of a split or merge both parents and
children have one, so that rates are made of the messages of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression

from scalable.domain.forecast import share_of
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout
from scalable.domain.load import LoadRecord, Peak, SegmentRates, Trend
from scalable.domain.segment import Segment

MINUTE_MS = 60_000
HEAT_MINUTES = 3
TREND_MINUTES = 6
LEAST_MINUTES_OF_A_TREND = 3
HIGHEST_FACTOR_OUT = 4.0
"""Consumers that catch up read much more than comes in: what goes out is no multiple of that."""

ByMinute = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of one segment; the rates are over what was observed of it."""

    segment_id: int
    minute_ms: int
    parts: Sequence[float]
    observed_ms: int = MINUTE_MS


@dataclass(frozen=True, slots=True)
class Recent:
    """Of a topic's active segments: the rates of their parts, where their loads head, and their peaks.

    A segment is left out of what is not known of it.
    """

    heat: Mapping[int, Sequence[float]] = field(default_factory=dict)
    trends: Mapping[int, Trend] = field(default_factory=dict)
    peaks: Mapping[int, Sequence[Peak]] = field(default_factory=dict)


def recent(
    layout: Layout,
    minutes: Iterable[Minute],
    loads: Mapping[int, LoadRecord],
    *,
    past: Mapping[int, HashRange],
    now_ms: int,
    peak_seconds: float,
) -> Recent:
    """Tell the last minutes; `past` has the ranges of segments that left the layout, as far as known.

    Tiles count messages in alone, the other rates are taken to go with them.
    """
    known = [each for each in minutes if each.segment_id in layout.segments or each.segment_id in past]
    by_segment = _by_active_segment(layout, past, known)
    since_ms = now_ms - TREND_MINUTES * MINUTE_MS
    records = {key: record for key, record in loads.items() if key in by_segment}
    lost = {key for key, record in records.items() if _is_lost(record.rates, by_segment[key], since_ms)}
    slopes = {key: _slopes(record.rates, by_segment[key], since_ms) for key, record in records.items()}
    return Recent(
        heat=_heat(layout, known, now_ms - HEAT_MINUTES * MINUTE_MS),
        trends={key: Trend(records[key].rates, slope) for key, slope in slopes.items() if slope},
        peaks={
            key: _peaks(records[key].rates if key in records else SegmentRates(), rates, now_ms, peak_seconds)
            for key, rates in by_segment.items()
            if (rates or key in records) and key not in lost
        },
    )


def _by_active_segment(
    layout: Layout, past: Mapping[int, HashRange], minutes: Iterable[Minute]
) -> dict[int, ByMinute]:
    """Give the rate of what came into the range of each active segment, minute by minute.

    Its messages are those of all segments that had a part of the range in that minute; the time is that for
    which the one was observed that was so the longest, which is until the end also of a sealed one.
    """
    messages: dict[int, dict[int, float]] = {each.segment_id: defaultdict(float) for each in layout.active}
    observed_ms: dict[int, dict[int, int]] = {each.segment_id: defaultdict(int) for each in layout.active}
    ends = [each.hash_range.end for each in layout.active]
    for minute in minutes:
        then, at_ms = layout.segments.get(minute.segment_id), minute.minute_ms
        hash_range = then.hash_range if then else past[minute.segment_id]
        total = sum(minute.parts) * minute.observed_ms
        for each in [then] if then and then.is_active else _within(layout, ends, hash_range):
            key = each.segment_id
            messages[key][at_ms] += total * share_of(each.hash_range, hash_range, minute.parts)
            observed_ms[key][at_ms] = max(observed_ms[key][at_ms], minute.observed_ms)
    return {
        key: {at_ms: sent / observed_ms[key][at_ms] for at_ms, sent in found.items()}
        for key, found in messages.items()
    }


def _within(layout: Layout, ends: Sequence[int], hash_range: HashRange) -> Iterable[Segment]:
    """Give the active segments, which `ends` end, that have hashes of a range."""
    for place in range(bisect_left(ends, hash_range.start), len(ends)):
        if layout.active[place].hash_range.start > hash_range.end:
            return
        yield layout.active[place]


def _heat(layout: Layout, minutes: Iterable[Minute], since_ms: int) -> dict[int, Sequence[float]]:
    newest = sorted(minutes, key=lambda minute: minute.minute_ms)
    return {
        minute.segment_id: minute.parts
        for minute in newest
        if minute.minute_ms >= since_ms
        and minute.segment_id in layout.segments
        and layout.segments[minute.segment_id].is_active
        and sum(minute.parts) > 0
    }


def _is_lost(rates: SegmentRates, by_minute: ByMinute, since_ms: int) -> bool:
    """Tell whether messages come in of which the last minutes do not tell; an idle segment has no minutes."""
    return rates.msg_rate_in > 0 and not any(at_ms >= since_ms for at_ms in by_minute)


def _slopes(
    rates: SegmentRates, by_minute: ByMinute, since_ms: int
) -> tuple[float, float, float, float] | None:
    """Give how much each rate changes a second, or None where too few minutes tell of messages that come in.

    Of rates out it is no more than if they had begun with the first of those minutes.
    """
    if rates.msg_rate_in <= 0:
        return (0.0, 0.0, 0.0, 0.0)
    points = sorted((at_ms, rate) for at_ms, rate in by_minute.items() if at_ms >= since_ms)
    if len(points) < LEAST_MINUTES_OF_A_TREND:
        return None
    line = linear_regression([at_ms / 1000 for at_ms, _ in points], [rate for _, rate in points])
    relative = line.slope / rates.msg_rate_in
    steepest = 1000 / (points[-1][0] - points[0][0])
    of_out = min(max(relative, -steepest), steepest)
    return (
        line.slope,
        rates.bytes_rate_in * relative,
        rates.msg_rate_out * of_out,
        rates.bytes_rate_out * of_out,
    )


def _peaks(rates: SegmentRates, by_minute: ByMinute, now_ms: int, peak_seconds: float) -> tuple[Peak, ...]:
    """Give the minutes that were busier than all since and than now, as long as they are recent.

    A minute is recent until so many seconds after its end.
    """
    found: list[Peak] = []
    highest = rates.msg_rate_in
    for at_ms, rate in sorted(by_minute.items(), reverse=True):
        until_ms = at_ms + MINUTE_MS + round(peak_seconds * 1000)
        if until_ms > now_ms and rate > highest:
            highest = rate
            found.append(Peak(_with_messages(rates, rate), until_ms))
    return tuple(found)


def _with_messages(rates: SegmentRates, msg_rate_in: float) -> SegmentRates:
    """Raise rates to those of more messages in: bytes in as much as these, rates out within bounds."""
    if rates.msg_rate_in <= 0:
        return SegmentRates(msg_rate_in, rates.bytes_rate_in, rates.msg_rate_out, rates.bytes_rate_out)
    factor = msg_rate_in / rates.msg_rate_in
    of_out = min(factor, HIGHEST_FACTOR_OUT)
    return SegmentRates(
        msg_rate_in, rates.bytes_rate_in * factor, rates.msg_rate_out * of_out, rates.bytes_rate_out * of_out
    )
