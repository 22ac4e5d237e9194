"""What merges: neighbours that stay below every merge threshold, or fit into one (PIP-483, Pass 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise

from scalable.domain.autoscale_isolation import would_be_isolated
from scalable.domain.autoscale_limits import (
    Run,
    adjacent,
    depth_guards,
    fewest,
    isolation_guards,
    lifted_at,
    lost_buckets,
    spare_buckets,
)
from scalable.domain.autoscale_view import Rates, View, added, ids_of, metric_name, milliseconds, ratio
from scalable.domain.decision import COLD_RULE, KINDS, Guard, GuardCode, Margin, Merge, Wish
from scalable.domain.layout import Segment


def merge_wishes(view: View) -> list[Wish]:
    """Give the merges that may happen now, the best first; else the one that may soonest, with its guards."""
    held = tuple(_topic_guards(view))
    guards = {
        segment.segment_id: tuple(_guards(view, segment)) for segment in view.known if _is_cold(view, segment)
    }
    cold = [segment for segment in view.active if segment.segment_id in guards]
    if not held:
        runs = _chosen(view, _runs(view, [each for each in cold if not guards[each.segment_id]]))
        if runs:
            return [Wish(COLD_RULE, Merge(ids_of(run)), cold_margin(view, run)) for run in runs]
    return _held_wishes(view, cold, guards, held)


def _held_wishes(
    view: View, cold: Sequence[Segment], guards: dict[int, tuple[Guard, ...]], held: tuple[Guard, ...]
) -> list[Wish]:
    """Give the run that may merge soonest with what holds it back.

    It is as long as the policy asks for, so that time has lifted all that holds it once it has lifted its
    guards. Where no run is that long, a pair is told to be too short.
    """
    runs = list(_possible(cold, view, _shortest(view))) or list(_possible(cold, view, 2))
    if not runs:
        return []
    by_run = {run: tuple(_of_run(view, run, guards)) for run in runs}
    best = min(runs, key=lambda run: _soonest_first(view, run, by_run[run]))
    return [Wish(COLD_RULE, Merge(ids_of(best)), cold_margin(view, best), (*held, *by_run[best]))]


def _soonest_first(view: View, run: Run, guards: Sequence[Guard]) -> tuple[bool, float, float]:
    for_good = any(guard.next_eligible_at_ms is None for guard in guards)
    instants = (guard.next_eligible_at_ms or 0 for guard in guards)
    return for_good, max(instants, default=0), _combined(view, run)


# Runs of neighbours.


def _longest(view: View) -> int:
    return min(view.policy.max_merge_segments, len(view.active) - fewest(view) + 1)


def _shortest(view: View) -> int:
    return max(2, min(view.policy.min_merge_segments, _longest(view)))


def _runs(view: View, ready: Sequence[Segment]) -> Iterator[Run]:
    """Give, from each segment that may merge, the longest run of neighbours that fits into one segment."""
    longest, shortest, spare = _longest(view), _shortest(view), spare_buckets(view)
    for first in range(len(ready) - 1):
        run: Run = (ready[first],)
        for segment in ready[first + 1 : first + longest]:
            wider = (*run, segment)
            if not adjacent(wider[-2:]) or not _fits(view, wider) or would_be_isolated(view, wider):
                break
            if lost_buckets(view, wider) > spare:
                break
            run = wider
        if len(run) >= shortest:
            yield run


def _possible(cold: Sequence[Segment], view: View, length: int) -> Iterator[Run]:
    """Give the runs of so many neighbours that fit into one segment, had there been no peaks."""
    for first in range(len(cold) - length + 1):
        run = tuple(cold[first : first + length])
        if all(map(adjacent, pairwise(run))) and _fits(view, run, view.demand.__getitem__):
            yield run


def _chosen(view: View, runs: Iterator[Run]) -> list[Run]:
    """Choose disjoint runs, those first that save most segments, of these the coldest."""
    room, spare = len(view.active) - fewest(view), spare_buckets(view)
    chosen: list[Run] = []
    taken: set[int] = set()
    for run in sorted(runs, key=lambda run: (-len(run), _combined(view, run))):
        if len(chosen) == view.policy.max_actions_per_tick:
            break
        lost = lost_buckets(view, run)
        if len(run) - 1 <= room and lost <= spare and taken.isdisjoint(ids_of(run)):
            chosen.append(run)
            taken.update(ids_of(run))
            room, spare = room - len(run) + 1, spare - lost
    return chosen


def _is_cold(view: View, segment: Segment) -> bool:
    """Tell whether a segment may merge by its own load: below every merge threshold.

    With a target share it is what the merged segment would carry that counts, so that any load may do.
    """
    if view.policy.merge_target_share:
        return view.scores[segment.segment_id] <= view.policy.merge_target_share
    return _is_below(view, view.demand[segment.segment_id])


def _is_below(view: View, rates: Rates) -> bool:
    return all(rate < limit for rate, limit in zip(rates, view.merge_limits, strict=True))


def _fits(view: View, run: Run, of: Callable[[int], Rates] | None = None) -> bool:
    """Tell whether the merged segment would carry no more than the target share of a split threshold.

    Without a target share, whether each segment is below every merge threshold. Peaks count, unless told of
    what else the segments are taken to carry.
    """
    rates = [(of or view.with_peak)(segment.segment_id) for segment in run]
    share = view.policy.merge_target_share
    if not share:
        return all(_is_below(view, each) for each in rates)
    return ratio(added(rates), view.split_limits) <= share


def _combined(view: View, run: Run) -> float:
    return sum(view.records[segment.segment_id].rates.combined for segment in run)


def coldest_pair(view: View) -> Run | None:
    """Give the neighbours of known load that are nearest to merging, of equal ones the first."""
    known = view.records
    pairs = (
        pair for pair in pairwise(view.active) if pair[0].segment_id in known and pair[1].segment_id in known
    )
    return min(pairs, key=lambda pair: _warmth(view, pair), default=None)


def _warmth(view: View, pair: Run) -> float:
    first, second = pair[0].segment_id, pair[1].segment_id
    if view.policy.merge_target_share:
        return ratio(added((view.with_peak(first), view.with_peak(second))), view.split_limits)
    return max(
        ratio(view.with_peak(first), view.merge_limits), ratio(view.with_peak(second), view.merge_limits)
    )


def cold_margin(view: View, run: Run) -> Margin:
    """Compare the warmest rate of a run with its threshold: of a segment, or of all where those must fit."""
    share, ids = view.policy.merge_target_share, ids_of(run)
    columns = [view.with_peak(segment_id) for segment_id in ids]
    if share:
        rates, limits = added(columns), [share * limit for limit in view.split_limits]
    else:
        rates, limits = tuple(map(max, zip(*columns, strict=True))), list(view.merge_limits)
    ratios = [ratio((rate,), (limit,)) for rate, limit in zip(rates, limits, strict=True)]
    index = ratios.index(max(ratios))
    return Margin(COLD_RULE, metric_name(index), ids, rates[index], limits[index])


# Guards.


def _topic_guards(view: View) -> Iterator[Guard]:
    policy, active = view.policy, len(view.active)
    if active <= policy.min_segments:
        yield Guard(GuardCode.MIN_SEGMENTS, COLD_RULE, current=active, threshold=policy.min_segments)
    elif active <= fewest(view):
        yield Guard(GuardCode.CONSUMERS_NEED_SEGMENTS, COLD_RULE, current=active, threshold=fewest(view))
    last_ms, seconds = view.snapshot.last_merge_at_ms, policy.merge_cooldown_seconds
    yield from view.cooldown(GuardCode.MERGE_COOLDOWN, COLD_RULE, last_ms, seconds)


def _guards(view: View, segment: Segment) -> Iterator[Guard]:
    """Give what holds a segment's own merges back."""
    policy, ids = view.policy, (segment.segment_id,)
    yield from view.setback_guards(COLD_RULE, KINDS[Merge], ids)
    modified_ms = view.records[segment.segment_id].modified_at_ms
    yield from _since(view, GuardCode.MERGE_WINDOW, ids, modified_ms, policy.merge_window_seconds)
    created_ms = segment.created_at_ms
    yield from _since(view, GuardCode.SEGMENT_TOO_YOUNG, ids, created_ms, policy.merge_min_age_seconds)
    if _was_merged_in_vain(view, segment):
        yield from _since(view, GuardCode.MERGED_IN_VAIN, ids, created_ms, policy.merge_repeat_seconds)
    if policy.merge_peak_seconds and segment.segment_id not in view.snapshot.peaks:
        yield Guard(GuardCode.PEAK_UNKNOWN, COLD_RULE, ids)
    yield from depth_guards(view, segment, COLD_RULE)


FEW_SEGMENTS = 4
FEW_OF_MAX_SEGMENTS = 4
"""A topic has few segments with at most this part of `maxSegments`, or so many if that is less."""


def _was_merged_in_vain(view: View, segment: Segment) -> bool:
    """Tell whether a split made it of a merged one that had lived for less than `mergeRepeatSeconds`.

    Only of a topic of few segments: with many of them, those that wait would be missing where it is hot.
    """
    few = max(FEW_SEGMENTS, view.policy.max_segments // FEW_OF_MAX_SEGMENTS)
    lived_ms = view.snapshot.merged_for_ms.get(segment.segment_id, math.inf)
    return lived_ms < view.policy.merge_repeat_seconds * 1000 and len(view.active) <= few


def _since(
    view: View, code: GuardCode, ids: tuple[int, ...], since_ms: int, seconds: float
) -> Iterator[Guard]:
    until_ms = since_ms + milliseconds(seconds)
    if view.now_ms < until_ms:
        yield Guard(code, COLD_RULE, ids, (view.now_ms - since_ms) / 1000, seconds, until_ms)


def _of_run(view: View, run: Run, guards: dict[int, tuple[Guard, ...]]) -> Iterator[Guard]:
    """Give the guards of all segments, of each kind the one that holds longest, and those of the run."""
    found = sorted((guard for segment in run for guard in guards[segment.segment_id]), key=_by_kind)
    for _, same in groupby(found, key=lambda guard: guard.code):
        last = max(same, key=lambda guard: (guard.next_eligible_at_ms or 0, guard.current or 0))
        yield replace(last, segment_ids=ids_of(run))
    if not _fits(view, run):
        margin = cold_margin(view, run)
        passed_ms = lifted_at(
            view, run, lambda at_ms: _fits(view, run, partial(view.with_peak_at, at_ms=at_ms))
        )
        code = GuardCode.RECENT_PEAK
        yield Guard(code, COLD_RULE, ids_of(run), margin.current, margin.threshold, passed_ms)
    yield from isolation_guards(view, run, COLD_RULE)
    yield from _capacity_guards(view, run)
    least = _shortest(view)
    if len(run) < least:
        yield Guard(GuardCode.RUN_TOO_SHORT, COLD_RULE, ids_of(run), len(run), least)


KIND_ORDER = {code: number for number, code in enumerate(GuardCode)}


def _by_kind(guard: Guard) -> int:
    return KIND_ORDER[guard.code]


def _capacity_guards(view: View, run: Run) -> Iterator[Guard]:
    """Hold a merge back that would leave consumers without an entry bucket (PIP-486)."""
    lost, spare = lost_buckets(view, run), spare_buckets(view)
    if lost > spare:
        capacity = sum(segment.bucket_count for segment in view.active)
        code, ids = GuardCode.CONSUMERS_NEED_BUCKETS, ids_of(run)
        yield Guard(code, COLD_RULE, ids, capacity - lost, capacity - spare)
