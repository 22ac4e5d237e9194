"""What a decision is made from, and what every rule asks of it: which loads count, and how near they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from scalable.domain import buckets
from scalable.domain.decision import Guard, GuardCode
from scalable.domain.layout import Layout, Segment
from scalable.domain.load import METRICS, LoadRecord, Peak, Trend
from scalable.domain.policy import AutoScalePolicy
from scalable.domain.setbacks import Setbacks

Rates = tuple[float, ...]
"""One number for each of METRICS, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a decision depends on.

    `loads` by segment id, a missing one is unknown; `stream_consumers` counts by subscription, those in
    grace too, `bucket_consumers` are those of them whose subscription shares segments by entry buckets (None:
    all). `load_known` is False when the load pipeline as a whole has fallen behind: then no record is
    trusted. The rest serves options beyond PIP-483, each of which holds still without what it needs: `heat`
    is the rate in each of a segment's equally wide parts, `trends` how loads change, `peaks` what was highest
    in the last `mergePeakSeconds` in the ranges of segments, fresh ones too, and what is after that;
    `merged_for_ms` tells, of segments that a split made of a merged one, for how long that one had lived.
    """

    layout: Layout
    policy: AutoScalePolicy
    loads: Mapping[int, LoadRecord] = field(default_factory=dict)
    stream_consumers: Mapping[str, int] = field(default_factory=dict)
    last_split_at_ms: int | None = None
    last_merge_at_ms: int | None = None
    last_rebucket_at_ms: int | None = None
    operations_in_flight: int = 0
    load_known: bool = True
    load_unknown_since_ms: int | None = None
    bucket_consumers: Mapping[str, int] | None = None
    heat: Mapping[int, Sequence[float]] = field(default_factory=dict)
    trends: Mapping[int, Trend] = field(default_factory=dict)
    peaks: Mapping[int, Sequence[Peak]] = field(default_factory=dict)
    merged_for_ms: Mapping[int, int] = field(default_factory=dict)
    max_buckets: int = buckets.MAX_PER_SEGMENT
    setbacks: Setbacks = field(default_factory=dict)


class View:
    """A snapshot at an instant, with what several rules need worked out once."""

    def __init__(self, snapshot: Snapshot, now_ms: int) -> None:
        self.snapshot = snapshot
        self.now_ms = now_ms
        self.policy = snapshot.policy
        self.active = snapshot.layout.active
        self.records = snapshot.loads if snapshot.load_known else {}
        self.split_limits: Rates = tuple(self.policy.split_thresholds.values())
        self.merge_limits: Rates = tuple(self.policy.merge_thresholds.values())

    @cached_property
    def largest_subscription(self) -> tuple[str, int]:
        """Name the stream subscription with the most consumers, and count them; ties go to the first name."""
        counts = self.snapshot.stream_consumers
        largest = min(counts, key=lambda name: (-counts[name], name), default="")
        return largest, counts.get(largest, 0)

    @property
    def bucket_consumer_count(self) -> int:
        """Count the consumers of the largest subscription that shares segments by entry buckets."""
        counts = self.snapshot.bucket_consumers
        return max((self.snapshot.stream_consumers if counts is None else counts).values(), default=0)

    # Loads.

    @cached_property
    def known(self) -> tuple[Segment, ...]:
        """Give the active segments whose load is known, in range order."""
        return tuple(segment for segment in self.active if segment.segment_id in self.records)

    @cached_property
    def demand(self) -> Mapping[int, Rates]:
        """Give what each known segment is taken to carry: its rates, or more where the trend leads there."""
        return {segment.segment_id: self._demand(segment.segment_id) for segment in self.known}

    def _demand(self, segment_id: int) -> Rates:
        rates = self.records[segment_id].rates.values
        trend = self.snapshot.trends.get(segment_id) if self.policy.look_ahead_seconds else None
        if trend is None:
            return rates
        return highest(rates, trend.ahead(self.policy.look_ahead_seconds).values)

    def demand_ahead(self, segment_id: int, seconds: float) -> Rates:
        """Give what a known segment is taken to carry so much later, where the policy looks ahead at all."""
        demand = self.demand[segment_id]
        trend = self.snapshot.trends.get(segment_id) if self.policy.look_ahead_seconds else None
        return (
            highest(demand, trend.ahead(self.policy.look_ahead_seconds + seconds).values) if trend else demand
        )

    def with_peak(self, segment_id: int) -> Rates:
        """Give what a merge counts a known segment with: its demand, or the peak that was not long ago."""
        return self._with_peaks[segment_id]

    @cached_property
    def _with_peaks(self) -> Mapping[int, Rates]:
        return {segment_id: self.with_peak_at(segment_id, self.now_ms) for segment_id in self.demand}

    def with_peak_at(self, segment_id: int, at_ms: int) -> Rates:
        """Give what a merge would count a known segment with at an instant, if its load stays as it is."""
        found = self.demand[segment_id]
        if self.policy.merge_peak_seconds:
            for peak in self.snapshot.peaks.get(segment_id, ()):
                if peak.until_ms > at_ms:
                    found = highest(found, peak.rates.values)
        return found

    @cached_property
    def scores(self) -> Mapping[int, float]:
        """Give the highest ratio of each known segment's demand to a split threshold."""
        return {segment_id: ratio(demand, self.split_limits) for segment_id, demand in self.demand.items()}

    @cached_property
    def heat(self) -> Mapping[int, float]:
        """Give the rate in all parts of each known segment together."""
        parts = self.snapshot.heat
        return {each.segment_id: sum(parts.get(each.segment_id, ())) for each in self.known}

    @cached_property
    def whole_heat(self) -> float:
        """Give the rate in all parts of all known segments."""
        return sum(self.heat.values())

    def hottest_metric(self, segment_id: int) -> int:
        """Give the first of METRICS in which a known segment is nearest to its split threshold."""
        ratios = [
            rate / limit for rate, limit in zip(self.demand[segment_id], self.split_limits, strict=True)
        ]
        return ratios.index(max(ratios))

    # Guards.

    def cooldown(self, code: GuardCode, rule: str, last_ms: int | None, seconds: float) -> Iterator[Guard]:
        """Yield a guard while less than so many seconds have passed since the last time."""
        if last_ms is None:
            return
        until_ms = last_ms + milliseconds(seconds)
        if self.now_ms < until_ms:
            yield Guard(code, rule, (), (self.now_ms - last_ms) / 1000, seconds, until_ms)

    def setback_guards(self, rule: str, kind: str, segment_ids: Iterable[int]) -> Iterator[Guard]:
        """Yield a guard for each segment on which an operation of this kind came to nothing lately."""
        for segment_id in segment_ids:
            setback = self.snapshot.setbacks.get((kind, segment_id))
            guard = setback.guard(rule, segment_id, self.now_ms) if setback else None
            if guard:
                yield guard


def milliseconds(seconds: float) -> int:
    """Round a policy's time to whole milliseconds."""
    return round(seconds * 1000)


def highest(first: Rates, second: Rates) -> Rates:
    """Give the higher of two rates on each axis."""
    return tuple(map(max, first, second))


def ratio(rates: Rates, limits: Rates) -> float:
    """Give the highest ratio of a rate to its limit; a rate above a limit of zero is infinitely far over."""
    found = 0.0
    for rate, limit in zip(rates, limits, strict=True):
        if rate:
            found = max(found, rate / limit if limit else math.inf)
    return found


def added(many: Iterable[Rates]) -> Rates:
    """Add rates up, axis by axis."""
    return tuple(map(sum, zip(*many, strict=True)))


def metric_name(index: int) -> str:
    """Name a metric by its place."""
    return METRICS[index]


def ids_of(segments: Iterable[Segment]) -> tuple[int, ...]:
    """Name segments in the order in which they are given."""
    return tuple(segment.segment_id for segment in segments)
