"""Consumers beyond the segments share these by entry buckets (Pulsar 5.0, PIP-486), in its profile only.

A topic that is busy enough, and has room, is split for them as by PIP-483; one that is cold or at its cap
gets more entry buckets in every segment instead, in one decision. Their number is never lowered.
"""

from __future__ import annotations

from scalable.domain.autoscale_view import View
from scalable.domain.buckets import MAX_PER_TOPIC
from scalable.domain.decision import KINDS, Guard, GuardCode, Margin, Rebucket, Wish

AT_MAX_SEGMENTS = "at-max-segments"
BELOW_SPLIT_RATE_FLOOR = "below-split-rate-floor"


def is_for_splits(view: View) -> bool:
    """Tell whether consumers beyond the segments are a reason to split, not to add entry buckets."""
    return _reason(view) is None


def _reason(view: View) -> str | None:
    if not view.policy.entry_bucket_lane:
        return None
    if len(view.active) >= view.policy.max_segments:
        return AT_MAX_SEGMENTS
    busiest = max((record.rates.msg_rate_in for record in view.records.values()), default=0.0)
    floor = view.policy.split_vs_rebucket_min_msg_rate_in_threshold
    return None if busiest >= floor else BELOW_SPLIT_RATE_FLOOR


def bucket_wishes(view: View) -> list[Wish]:
    """Give the one change of entry buckets that is wanted, if any."""
    reason, consumers, segments = _reason(view), view.bucket_consumer_count, len(view.active)
    capacity = sum(segment.bucket_count for segment in view.active)
    if reason is None or consumers <= max(segments, capacity):
        return []
    target = min(_next_power_of_two(-(-consumers // segments)), view.snapshot.max_buckets)
    while target > 1 and sum(max(segment.bucket_count, target) for segment in view.active) > MAX_PER_TOPIC:
        target //= 2  # more would be refused
    wanting = sorted(segment.segment_id for segment in view.active if segment.bucket_count < target)
    if not wanting:
        return []
    ids = _without_setbacks(view, reason, wanting) or wanting
    margin = Margin(reason, "consumers", tuple(ids), consumers, capacity)
    last_ms, seconds = view.snapshot.last_rebucket_at_ms, view.policy.rebucket_cooldown_seconds
    guards: tuple[Guard, ...] = tuple(view.cooldown(GuardCode.REBUCKET_COOLDOWN, reason, last_ms, seconds))
    return [Wish(reason, Rebucket(tuple(ids), target), margin, guards)]


def _without_setbacks(view: View, rule: str, ids: list[int]) -> list[int]:
    """Leave out the segments where that came to nothing lately: the others need not wait for them."""
    return [key for key in ids if not any(view.setback_guards(rule, KINDS[Rebucket], (key,)))]


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
