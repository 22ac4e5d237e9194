"""What splits: more consumers than segments, and segments above a split threshold (PIP-483, Pass 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import ceil

from scalable.domain.autoscale_cuts import balanced_cuts, even_cuts
from scalable.domain.autoscale_isolation import isolating_wishes
from scalable.domain.autoscale_view import View, ids_of, metric_name, ratio
from scalable.domain.decision import CONSUMER_RULE, KINDS, Guard, GuardCode, Margin, Split, Wish
from scalable.domain.layout import Segment


def consumer_wishes(view: View) -> list[Wish]:
    """Give the splits that the consumer rule wants: the busiest segments, until each consumer has one."""
    margin = consumer_margin(view)
    if margin is None or margin.current <= margin.threshold:
        return []

    def busiest_first(segment: Segment) -> tuple[bool, float, int]:
        record, key = view.records.get(segment.segment_id), segment.segment_id
        in_vain = any(view.setback_guards(CONSUMER_RULE, KINDS[Split], (key,)))
        return in_vain, -record.rates.msg_rate_in if record else 0.0, key

    missing = int(margin.current - margin.threshold)
    wanted: list[tuple[Segment, int, Margin]] = []
    for segment in sorted(_wide(view.active), key=busiest_first):
        if missing <= 0:
            break
        children = min(missing + 1, view.policy.max_split_children, segment.hash_range.size)
        wanted.append((segment, children, margin))
        missing -= children - 1
    return _guarded(view, CONSUMER_RULE, _splits(view, wanted) or [_too_narrow(margin, view.active)])


def load_wishes(view: View) -> list[Wish]:
    """Give the splits that the load rule wants, the most overloaded segment first."""
    dominated = dict(isolating_wishes(view))
    hot = [each for each in view.known if view.scores[each.segment_id] > 1 or each.segment_id in dominated]
    if not hot:
        return []
    counted = set(ids_of(hot))
    hot += [each for each in view.known if each.segment_id not in counted and _will_be_hot(view, each)]
    hot.sort(key=lambda segment: (-view.scores[segment.segment_id], segment.segment_id))
    wide = list(_wide(hot))
    margin = load_margin(view, (wide or hot)[0])
    if not wide:
        return _guarded(view, margin.rule, [_too_narrow(margin, hot)])
    isolating = [dominated[each.segment_id] for each in wide if each.segment_id in dominated]
    shared = _allotted(view, [each for each in wide if each.segment_id not in dominated])
    others = [(each, children, load_margin(view, each)) for each, children in shared]
    return _guarded(view, margin.rule, [*isolating, *_splits(view, others)])


def _will_be_hot(view: View, segment: Segment) -> bool:
    """Tell whether a segment is above a threshold before the cooldown of a split that is made now is over."""
    demand = view.demand_ahead(segment.segment_id, view.policy.split_cooldown_seconds)
    return ratio(demand, view.split_limits) > 1


def _wide(segments: Iterable[Segment]) -> Iterator[Segment]:
    return (segment for segment in segments if segment.hash_range.size > 1)


def _children(view: View, segment: Segment) -> int:
    """Give into how many a hot segment is cut, so that none carries more than the target share.

    With a look-ahead it is the load at the end of the cooldown that counts: until then nothing is split.
    It is a power of two: segments that are equal stay so, and none is left twice as full as the others when
    the topic comes to its cap.
    """
    demand = view.demand_ahead(segment.segment_id, view.policy.split_cooldown_seconds)
    wanted = ceil(
        min(ratio(demand, view.split_limits) / view.policy.split_target_share, segment.hash_range.size)
    )
    return max(2, min(1 << (wanted - 1).bit_length(), view.policy.max_split_children))


def _allotted(view: View, hot: Sequence[Segment]) -> list[tuple[Segment, int]]:
    """Give hot segments their numbers of children; where there is no room for all, as fairly as may be.

    Whichever has most load for each child is doubled, as long as that fits, so that none is left much fuller
    than the others when the topic comes to its cap. Those for which there is no room come last.
    """
    room = view.policy.max_segments - len(view.active)
    wanted = {each.segment_id: _children(view, each) for each in hot}
    if len(hot) == 1 or sum(wanted.values()) - len(hot) <= room:
        return [(each, wanted[each.segment_id]) for each in hot]
    found = dict.fromkeys(wanted, 1)
    fullest = [(-view.scores[segment_id], segment_id) for segment_id in wanted]
    heapify(fullest)
    while fullest:
        _, segment_id = heappop(fullest)
        more = min(2 * found[segment_id], wanted[segment_id]) - found[segment_id]
        if 0 < more <= room:
            room -= more
            found[segment_id] += more
            heappush(fullest, (view.scores[segment_id] / -found[segment_id], segment_id))
    given = [(each, found[each.segment_id]) for each in hot]
    return sorted(given, key=lambda each: each[1] == 1)


def _splits(view: View, wanted: Iterable[tuple[Segment, int, Margin]]) -> list[Wish]:
    """Cut each segment into so many children, fewer where the topic may not have more segments."""
    room = view.policy.max_segments - len(view.active)
    wishes = []
    for segment, children, margin in wanted:
        children = min(max(children, 2), max(room, 1) + 1)
        room -= children - 1
        cuts, detail = _cuts(view, segment, children)
        fitted = replace(margin, segment_ids=(segment.segment_id,), detail=margin.detail or detail)
        wishes.append(Wish(margin.rule, Split(segment.segment_id, cuts), fitted))
    return wishes


def _cuts(view: View, segment: Segment, children: int) -> tuple[tuple[int, ...], str]:
    """Give the cuts, and a word on them where the option of balanced ones had nothing to go by."""
    if not view.policy.load_balanced_split:
        return even_cuts(segment.hash_range, children), ""
    heat = view.snapshot.heat.get(segment.segment_id, ())
    if sum(heat) <= 0:
        return even_cuts(segment.hash_range, children), "cut evenly: where the load lies is not known"
    return balanced_cuts(segment.hash_range, heat, children), ""


def _too_narrow(margin: Margin, candidates: Sequence[Segment]) -> Wish:
    narrow = Guard(GuardCode.SEGMENT_TOO_NARROW, margin.rule, ids_of(candidates))
    return Wish(margin.rule, None, margin, (narrow,))


def _guarded(view: View, rule: str, wishes: Iterable[Wish]) -> list[Wish]:
    """Add to each split what holds all of them back."""
    guards = tuple(_split_guards(view, rule))
    return [replace(wish, guards=(*guards, *wish.guards)) for wish in wishes]


def _split_guards(view: View, rule: str) -> Iterator[Guard]:
    policy, active = view.policy, len(view.active)
    if active >= policy.max_segments:
        yield Guard(GuardCode.MAX_SEGMENTS, rule, current=active, threshold=policy.max_segments)
    last_ms, seconds = view.snapshot.last_split_at_ms, policy.split_cooldown_seconds
    yield from view.cooldown(GuardCode.SPLIT_COOLDOWN, rule, last_ms, seconds)


def consumer_margin(view: View) -> Margin | None:
    """Compare the largest STREAM subscription with the number of active segments."""
    name, count = view.largest_subscription
    return Margin(CONSUMER_RULE, "consumers", (), count, len(view.active), name) if name else None


def load_margin(view: View, segment: Segment) -> Margin:
    """Compare the metric in which a segment is hottest with its split threshold."""
    index = view.hottest_metric(segment.segment_id)
    rate, limit = view.demand[segment.segment_id][index], view.split_limits[index]
    return Margin(metric_name(index), metric_name(index), (segment.segment_id,), rate, limit)
