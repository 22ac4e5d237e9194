"""A key with most of a segment's load, or of its topic's, is cut out until it is alone, and stays alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from scalable.domain.autoscale_cuts import hottest_part, isolating_cuts
from scalable.domain.autoscale_view import View, added, metric_name, ratio
from scalable.domain.decision import Margin, Split, Wish
from scalable.domain.forecast import share_of
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Segment

DOMINANT_KEY_RULE = "dominant-key"
ISOLATION_FLOOR = 0.5
"""A key that dominates its topic is isolated once its segment is at this share of a split threshold."""


def isolating_wishes(view: View) -> Iterator[tuple[int, Wish]]:
    """Give the segments in which one part has most of the load, each with the split that isolates it.

    A part counts that has the policy's share of a hot segment, or of the whole topic.
    """
    if not view.policy.isolate_dominant_key:
        return
    for segment in view.known:
        score, heat = view.scores[segment.segment_id], _heat(view, segment)
        if segment.hash_range.size == 1 or score <= ISOLATION_FLOOR or sum(heat) <= 0:
            continue
        part, rate = hottest_part(segment.hash_range, heat)
        share = max(rate / sum(heat) if score > 1 else 0.0, rate / view.whole_heat)
        if share >= view.policy.dominant_key_share and part != segment.hash_range:
            split = Split(segment.segment_id, isolating_cuts(segment.hash_range, part))
            limit, ids = view.policy.dominant_key_share, (segment.segment_id,)
            margin = Margin(DOMINANT_KEY_RULE, metric_name(0), ids, share, limit, f"in {part.hex}")
            yield segment.segment_id, Wish(DOMINANT_KEY_RULE, split, margin)


def would_be_isolated(view: View, run: Sequence[Segment], at_ms: int | None = None) -> bool:
    """Tell whether neighbours would make a segment out of which the topic's dominant key is cut again.

    Now, or at an instant at which some peaks have passed.
    """
    share = view.policy.dominant_key_share
    whole = view.whole_heat if view.policy.isolate_dominant_key else 0.0
    if whole <= 0 or sum(view.heat[segment.segment_id] for segment in run) < share * whole:
        return False
    of = view.with_peak if at_ms is None else partial(view.with_peak_at, at_ms=at_ms)
    together = added(of(segment.segment_id) for segment in run)
    if ratio(together, view.split_limits) <= ISOLATION_FLOOR:
        return False
    union = HashRange(run[0].hash_range.start, run[-1].hash_range.end)
    parts = union.parts(min(max(len(_heat(view, segment)) for segment in run), union.size))
    return max(sum(_load_in(view, segment, part) for segment in run) for part in parts) >= share * whole


def _heat(view: View, segment: Segment) -> Sequence[float]:
    return view.snapshot.heat.get(segment.segment_id, ())


def _load_in(view: View, segment: Segment, part: HashRange) -> float:
    heat = _heat(view, segment)
    return sum(heat) * share_of(part, segment.hash_range, heat)
