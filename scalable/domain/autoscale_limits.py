"""What no merge may do, whichever rule wants it: leave too few, make a lineage too deep, or undo a split."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from scalable.domain.autoscale_isolation import would_be_isolated
from scalable.domain.autoscale_view import View, ids_of
from scalable.domain.decision import Guard, GuardCode
from scalable.domain.layout import Segment

Run = tuple[Segment, ...]


def adjacent(pair: Sequence[Segment]) -> bool:
    """Tell whether the second segment begins where the first one ends."""
    return pair[0].hash_range.end + 1 == pair[1].hash_range.start


def fewest(view: View) -> int:
    """Give below how many segments a topic is not merged."""
    consumers = view.largest_subscription[1] if view.policy.merge_keeps_consumers else 0
    return max(view.policy.min_segments, consumers)


def lost_buckets(view: View, run: Run) -> int:
    """Give how many entry buckets fewer there are once a run is one segment (PIP-486)."""
    return max(0, sum(segment.bucket_count for segment in run) - view.snapshot.max_buckets)


def spare_buckets(view: View) -> float:
    """Give how many entry buckets may go before a consumer that shares segments is left without."""
    if not view.policy.entry_bucket_lane:
        return math.inf
    capacity = sum(segment.bucket_count for segment in view.active)
    return capacity - min(view.bucket_consumer_count, capacity)


def depth_guards(view: View, segment: Segment, rule: str) -> Iterator[Guard]:
    """Hold a segment back whose lineage has as many merges as it may have (PIP-483, Anti-flip-flop)."""
    limit = view.policy.max_dag_depth
    depth = view.snapshot.layout.merge_depth(segment.segment_id, limit)
    if depth >= limit:
        yield Guard(GuardCode.MAX_DAG_DEPTH, rule, (segment.segment_id,), depth, limit)


def isolation_guards(view: View, run: Run, rule: str) -> Iterator[Guard]:
    """Hold a run back out of which a dominant key would be cut again."""
    if _is_isolated(view, run):
        until_ms = lifted_at(view, run, lambda at_ms: not _is_isolated(view, run, at_ms))
        share = view.policy.dominant_key_share
        yield Guard(GuardCode.DOMINANT_KEY, rule, ids_of(run), None, share, until_ms)


def _is_isolated(view: View, run: Run, at_ms: int | None = None) -> bool:
    """Tell whether a dominant key would be cut out of a run, or of any of its beginnings."""
    return any(would_be_isolated(view, run[:length], at_ms) for length in range(2, len(run) + 1))


def lifted_at(view: View, run: Run, is_free: Callable[[int], bool]) -> int | None:
    """Give the first instant at which so many peaks of a run have passed that it is free, or None."""
    instants = sorted(
        {
            peak.until_ms
            for segment in run
            for peak in view.snapshot.peaks.get(segment.segment_id, ())
            if peak.until_ms > view.now_ms
        }
    )
    found = bisect_left(instants, True, key=is_free)
    return instants[found] if found < len(instants) else None
