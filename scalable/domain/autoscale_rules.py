"""The rules of PIP-483, each as what it would do now and what holds it back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from scalable.domain import buckets
from scalable.domain.decision import (
    COLD_RULE,
    CONSUMER_RULE,
    Guard,
    GuardCode,
    Margin,
    Merge,
    Split,
    Wish,
)
from scalable.domain.layout import Layout, Segment
from scalable.domain.load import LoadRecord, SegmentRates, Trend
from scalable.domain.policy import AutoScalePolicy

Pair = tuple[Segment, Segment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a decision depends on.

    `loads` by segment id, a missing one is unknown; `stream_consumers` counts by subscription, those in
    grace too, `bucket_consumers` are those of them whose subscription shares segments by entry buckets (None:
    all). `load_known` is False when the load pipeline as a whole has fallen behind: then no record is
    trusted. The rest serves options beyond PIP-483, each of which holds still without what it needs: `heat`
    is the rate in each of a segment's equally wide parts, `trends` how loads change, `peaks` the highest
    rates of the last `mergePeakSeconds` in the ranges of segments, fresh ones too.
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
    peaks: Mapping[int, SegmentRates] = field(default_factory=dict)
    max_buckets: int = buckets.MAX_PER_SEGMENT

    @property
    def trusted_loads(self) -> Mapping[int, LoadRecord]:
        """Give the records that rules may use."""
        return self.loads if self.load_known else {}

    @property
    def active_count(self) -> int:
        """Count the active segments."""
        return len(self.layout.active)


# Splits.


def split_wish(snapshot: Snapshot, now_ms: int) -> Wish | None:
    """Give what the split pass wants: the consumer rule first, else the load rule."""
    wish = _consumer_wish(snapshot) or _load_wish(snapshot)
    if wish is None:
        return None
    return replace(wish, guards=(*_split_guards(snapshot, wish.rule, now_ms), *wish.guards))


def _split_guards(snapshot: Snapshot, rule: str, now_ms: int) -> Iterator[Guard]:
    policy, active = snapshot.policy, snapshot.active_count
    if active >= policy.max_segments:
        yield Guard(GuardCode.MAX_SEGMENTS, rule, current=active, threshold=policy.max_segments)
    yield from _cooldown(
        GuardCode.SPLIT_COOLDOWN, rule, snapshot.last_split_at_ms, policy.split_cooldown_seconds, now_ms
    )


def _cooldown(
    code: GuardCode, rule: str, last_ms: int | None, cooldown_seconds: float, now_ms: int
) -> Iterator[Guard]:
    until_ms = -1 if last_ms is None else last_ms + _milliseconds(cooldown_seconds)
    if last_ms is not None and now_ms < until_ms:
        yield Guard(code, rule, (), (now_ms - last_ms) / 1000, cooldown_seconds, until_ms)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _consumer_wish(snapshot: Snapshot) -> Wish | None:
    margin = consumer_margin(snapshot)
    if margin is None or margin.current <= margin.threshold:
        return None
    loads = snapshot.trusted_loads

    def busiest_first(segment: Segment) -> tuple[float, int]:
        record = loads.get(segment.segment_id)
        return -record.rates.msg_rate_in if record else 0.0, segment.segment_id

    return _split_first(CONSUMER_RULE, margin, sorted(snapshot.layout.active, key=busiest_first))


def _load_wish(snapshot: Snapshot) -> Wish | None:
    thresholds = snapshot.policy.split_thresholds
    hot = [
        segment
        for segment in snapshot.layout.active
        if any(rate > thresholds[metric] for metric, rate in _rates(snapshot, segment).items())
    ]
    if not hot:
        return None
    hot.sort(key=lambda segment: (-_hottest_metric(snapshot, segment)[0], segment.segment_id))
    splittable = [segment for segment in hot if segment.hash_range.size > 1] or hot
    margin = _load_margin(snapshot, splittable[0])
    return _split_first(margin.metric, margin, splittable)


def _split_first(rule: str, margin: Margin, candidates: Iterable[Segment]) -> Wish:
    """Wish to split the first candidate that is wider than one hash."""
    candidates = list(candidates)
    for segment in candidates:
        if segment.hash_range.size > 1:
            fitted = replace(margin, segment_ids=(segment.segment_id,))
            return Wish(rule, Split(segment.segment_id), fitted)
    narrow = tuple(segment.segment_id for segment in candidates)
    return Wish(rule, None, margin, (Guard(GuardCode.SEGMENT_TOO_NARROW, rule, narrow),))


# Merges.


def merge_wish(snapshot: Snapshot, now_ms: int) -> Wish | None:
    """Give what the merge pass wants: the coldest pair that may merge, else the one that may soonest."""
    cold = [pair for pair in pairwise(snapshot.layout.active) if _is_cold(snapshot, pair)]
    if not cold:
        return None
    pair_guards = {pair: tuple(_pair_guards(snapshot, pair, now_ms)) for pair in cold}

    def best_first(pair: Pair) -> tuple[int, float, float]:
        lineage_full = any(guard.code is GuardCode.MAX_DAG_DEPTH for guard in pair_guards[pair])
        instants = (guard.next_eligible_at_ms or 0 for guard in pair_guards[pair])
        return lineage_full, max(instants, default=0), _combined(snapshot, pair)

    best = min(cold, key=best_first)
    guards = (*_merge_guards(snapshot, now_ms), *pair_guards[best])
    return Wish(COLD_RULE, Merge(_ids(best)), _cold_margin(snapshot, best), guards)


def _merge_guards(snapshot: Snapshot, now_ms: int) -> Iterator[Guard]:
    policy, active = snapshot.policy, snapshot.active_count
    if active <= policy.min_segments:
        yield Guard(GuardCode.MIN_SEGMENTS, COLD_RULE, current=active, threshold=policy.min_segments)
    yield from _cooldown(
        GuardCode.MERGE_COOLDOWN, COLD_RULE, snapshot.last_merge_at_ms, policy.merge_cooldown_seconds, now_ms
    )


def _pair_guards(snapshot: Snapshot, pair: Pair, now_ms: int) -> Iterator[Guard]:
    policy = snapshot.policy
    since_ms = max(snapshot.trusted_loads[segment_id].modified_at_ms for segment_id in _ids(pair))
    until_ms = since_ms + _milliseconds(policy.merge_window_seconds)
    if now_ms < until_ms:
        cold_seconds = (now_ms - since_ms) / 1000
        window = policy.merge_window_seconds
        yield Guard(GuardCode.MERGE_WINDOW, COLD_RULE, _ids(pair), cold_seconds, window, until_ms)
    limit = policy.max_dag_depth
    depth = max(snapshot.layout.merge_depth(segment_id, limit) for segment_id in _ids(pair))
    if depth >= limit:
        yield Guard(GuardCode.MAX_DAG_DEPTH, COLD_RULE, _ids(pair), depth, limit)


def _is_cold(snapshot: Snapshot, pair: Pair) -> bool:
    """Tell whether both loads are known and below every merge threshold."""
    thresholds = snapshot.policy.merge_thresholds
    rates = [_rates(snapshot, segment) for segment in pair]
    return all(known and all(known[metric] < thresholds[metric] for metric in thresholds) for known in rates)


def _combined(snapshot: Snapshot, pair: Pair) -> float:
    return sum(snapshot.trusted_loads[segment_id].rates.combined for segment_id in _ids(pair))


def _ids(pair: Iterable[Segment]) -> tuple[int, ...]:
    return tuple(segment.segment_id for segment in pair)


# Margins.


def margins(snapshot: Snapshot) -> Iterator[Margin]:
    """Tell how near each rule is: the most consumers, the hottest segment, the coldest pair."""
    consumers = consumer_margin(snapshot)
    if consumers:
        yield consumers
    known = [segment for segment in snapshot.layout.active if segment.segment_id in snapshot.trusted_loads]
    if known:
        yield _load_margin(
            snapshot, min(known, key=lambda each: (-_hottest_metric(snapshot, each)[0], each.segment_id))
        )
    pairs = [
        pair for pair in pairwise(snapshot.layout.active) if all(_rates(snapshot, each) for each in pair)
    ]
    if pairs:
        yield min((_cold_margin(snapshot, pair) for pair in pairs), key=_ratio)


def consumer_margin(snapshot: Snapshot) -> Margin | None:
    """Compare the largest STREAM subscription with the number of active segments."""
    counts = snapshot.stream_consumers
    if not counts:
        return None
    largest = min(counts, key=lambda name: (-counts[name], name))
    return Margin(CONSUMER_RULE, "consumers", (), counts[largest], snapshot.active_count, largest)


def _rates(snapshot: Snapshot, segment: Segment) -> dict[str, float]:
    record = snapshot.trusted_loads.get(segment.segment_id)
    return record.rates.by_metric() if record else {}


def _hottest_metric(snapshot: Snapshot, segment: Segment) -> tuple[float, str]:
    """Give the highest ratio of a rate to its split threshold, and the first metric that has it."""
    thresholds = snapshot.policy.split_thresholds
    ratios = [(rate / thresholds[metric], metric) for metric, rate in _rates(snapshot, segment).items()]
    return max(ratios, key=lambda each: each[0])


def _load_margin(snapshot: Snapshot, segment: Segment) -> Margin:
    metric = _hottest_metric(snapshot, segment)[1]
    rate, threshold = _rates(snapshot, segment)[metric], snapshot.policy.split_thresholds[metric]
    return Margin(metric, metric, (segment.segment_id,), rate, threshold)


def _cold_margin(snapshot: Snapshot, pair: Pair) -> Margin:
    """Give the warmest rate of a pair against its merge threshold."""
    thresholds = snapshot.policy.merge_thresholds
    found = (
        Margin(COLD_RULE, metric, _ids(pair), rate, thresholds[metric])
        for segment in pair
        for metric, rate in _rates(snapshot, segment).items()
    )
    return max(found, key=_ratio)


def _ratio(margin: Margin) -> float:
    return margin.current / margin.threshold if margin.threshold else math.inf
