"""What merges: neighbours that stay below every merge threshold, or fit into one (PIP-483, Pass 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from scalable.domain.autoscale_isolation import would_be_isolated
from scalable.domain.autoscale_view import View, added, ids_of, metric_name, milliseconds, ratio
from scalable.domain.decision import COLD_RULE, KINDS, Guard, GuardCode, Margin, Merge, Wish
from scalable.domain.layout import Segment

Run = tuple[Segment, ...]
ROOM_RULE = "makes-room"
ROOM_SHARE = 0.75


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
    pairs = [pair for pair in pairwise(cold) if _adjacent(pair) and _fits(view, pair, with_peaks=False)]
    if not pairs:
        return []
    by_pair = {pair: (*_of_pair(view, pair, guards), *_capacity_guards(view, pair)) for pair in pairs}
    best = min(pairs, key=lambda pair: _soonest_first(view, pair, by_pair[pair]))
    guards_of_best = (*held, *by_pair[best]) or (_too_short(view, best),)
    return [Wish(COLD_RULE, Merge(ids_of(best)), cold_margin(view, best), guards_of_best)]


def _too_short(view: View, pair: Run) -> Guard:
    least = view.policy.min_merge_segments
    return Guard(GuardCode.RUN_TOO_SHORT, COLD_RULE, ids_of(pair), threshold=least)


def _soonest_first(view: View, pair: Run, guards: Sequence[Guard]) -> tuple[bool, float, float]:
    for_good = any(guard.next_eligible_at_ms is None for guard in guards)
    instants = (guard.next_eligible_at_ms or 0 for guard in guards)
    return for_good, max(instants, default=0), _combined(view, pair)


def room_wishes(view: View, splits: Sequence[Wish]) -> list[Wish]:
    """Give merges that make room at the cap for the splits that are wanted: pairs well below what is split.

    What a pair would carry is at most three quarters of what the segment carries that is split in exchange:
    each exchange lowers the highest load, so that they come to an end. That the pair was busier lately, or is
    young, does not matter where a segment is overloaded now.
    """
    if len(view.active) <= _fewest(view):
        return []
    scores = (view.scores[key] for wish in splits if wish.action for key in wish.action.segment_ids)
    hot = sorted(scores, reverse=True)
    pairs = [
        (ratio(added(view.demand[segment_id] for segment_id in ids_of(pair)), view.split_limits), pair)
        for pair in pairwise(view.known)
        if _adjacent(pair)
    ]
    wishes: list[Wish] = []
    taken: set[int] = set()
    for warmth, pair in sorted(pairs, key=lambda each: each[0]):
        if len(wishes) == len(hot) or warmth > ROOM_SHARE * hot[len(wishes)]:
            break
        if taken.isdisjoint(ids_of(pair)) and not any(_capacity_guards(view, pair)):
            taken.update(ids_of(pair))
            wishes.append(_room_wish(view, pair, ROOM_SHARE * hot[len(wishes)]))
    return wishes


def _room_wish(view: View, pair: Run, share: float) -> Wish:
    index = view.hottest_metric(pair[0].segment_id)
    rate = sum(view.demand[segment_id][index] for segment_id in ids_of(pair))
    margin = Margin(ROOM_RULE, metric_name(index), ids_of(pair), rate, share * view.split_limits[index])
    return Wish(ROOM_RULE, Merge(ids_of(pair)), margin)


# Runs of neighbours.


def _runs(view: View, ready: Sequence[Segment]) -> Iterator[Run]:
    """Give, from each segment that may merge, the longest run of neighbours that fits into one segment."""
    longest = min(view.policy.max_merge_segments, len(view.active) - _fewest(view) + 1)
    shortest = min(view.policy.min_merge_segments, longest)
    for first in range(len(ready) - 1):
        run: Run = (ready[first],)
        for segment in ready[first + 1 : first + longest]:
            wider = (*run, segment)
            if not _adjacent(wider[-2:]) or not _fits(view, wider) or would_be_isolated(view, wider):
                break
            run = wider
        if len(run) >= shortest and not any(_capacity_guards(view, run)):
            yield run


def _chosen(view: View, runs: Iterator[Run]) -> list[Run]:
    """Choose disjoint runs, those first that save most segments, of these the coldest."""
    room = len(view.active) - _fewest(view)
    chosen: list[Run] = []
    taken: set[int] = set()
    for run in sorted(runs, key=lambda run: (-len(run), _combined(view, run))):
        if len(chosen) == view.policy.max_actions_per_tick:
            break
        if len(run) - 1 <= room and taken.isdisjoint(ids_of(run)):
            chosen.append(run)
            taken.update(ids_of(run))
            room -= len(run) - 1
    return chosen


def _adjacent(pair: Sequence[Segment]) -> bool:
    return pair[0].hash_range.end + 1 == pair[1].hash_range.start


def _is_cold(view: View, segment: Segment) -> bool:
    """Tell whether a segment may merge by its own load: below every merge threshold.

    With a target share it is what the merged segment would carry that counts, so that any load may do.
    """
    if view.policy.merge_target_share:
        return view.scores[segment.segment_id] <= view.policy.merge_target_share
    rates = view.demand[segment.segment_id]
    return all(rate < limit for rate, limit in zip(rates, view.merge_limits, strict=True))


def _fits(view: View, run: Run, *, with_peaks: bool = True) -> bool:
    """Tell whether the merged segment would carry no more than the target share of a split threshold."""
    share = view.policy.merge_target_share
    if not share:
        return True
    of = view.with_peak if with_peaks else view.demand.__getitem__
    return ratio(added(of(segment.segment_id) for segment in run), view.split_limits) <= share


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
    return max(ratio(view.demand[first], view.merge_limits), ratio(view.demand[second], view.merge_limits))


def cold_margin(view: View, run: Run) -> Margin:
    """Compare the warmest rate of a run with its threshold: of a segment, or of all where those must fit."""
    share, ids = view.policy.merge_target_share, ids_of(run)
    if share:
        rates = added(view.with_peak(segment_id) for segment_id in ids)
        limits = [share * limit for limit in view.split_limits]
    else:
        columns = zip(*(view.demand[segment_id] for segment_id in ids), strict=True)
        rates, limits = tuple(map(max, columns)), list(view.merge_limits)
    ratios = [ratio((rate,), (limit,)) for rate, limit in zip(rates, limits, strict=True)]
    index = ratios.index(max(ratios))
    return Margin(COLD_RULE, metric_name(index), ids, rates[index], limits[index])


# Guards.


def _fewest(view: View) -> int:
    """Give below how many segments a topic is not merged."""
    consumers = view.largest_subscription[1] if view.policy.merge_keeps_consumers else 0
    return max(view.policy.min_segments, consumers)


def _topic_guards(view: View) -> Iterator[Guard]:
    policy, active = view.policy, len(view.active)
    if active <= policy.min_segments:
        yield Guard(GuardCode.MIN_SEGMENTS, COLD_RULE, current=active, threshold=policy.min_segments)
    elif active <= _fewest(view):
        yield Guard(GuardCode.CONSUMERS_NEED_SEGMENTS, COLD_RULE, current=active, threshold=_fewest(view))
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
    if policy.merge_peak_seconds and segment.segment_id not in view.snapshot.peaks:
        yield Guard(GuardCode.PEAK_UNKNOWN, COLD_RULE, ids)
    depth = view.snapshot.layout.merge_depth(segment.segment_id, policy.max_dag_depth)
    if depth >= policy.max_dag_depth:
        yield Guard(GuardCode.MAX_DAG_DEPTH, COLD_RULE, ids, depth, policy.max_dag_depth)


def _since(
    view: View, code: GuardCode, ids: tuple[int, ...], since_ms: int, seconds: float
) -> Iterator[Guard]:
    until_ms = since_ms + milliseconds(seconds)
    if view.now_ms < until_ms:
        yield Guard(code, COLD_RULE, ids, (view.now_ms - since_ms) / 1000, seconds, until_ms)


def _of_pair(view: View, pair: Run, guards: dict[int, tuple[Guard, ...]]) -> Iterator[Guard]:
    """Give the guards of both segments, of each kind the one that holds longest, named for the pair."""
    found = sorted((guard for segment in pair for guard in guards[segment.segment_id]), key=_by_kind)
    for _, same in groupby(found, key=lambda guard: guard.code):
        last = max(same, key=lambda guard: (guard.next_eligible_at_ms or 0, guard.current or 0))
        yield Guard(
            last.code,
            last.rule,
            ids_of(pair),
            last.current,
            last.threshold,
            last.next_eligible_at_ms,
            last.detail,
        )
    if view.policy.merge_peak_seconds and not _fits(view, pair):
        seconds = view.policy.merge_peak_seconds
        margin = cold_margin(view, pair)
        passed_ms = view.now_ms + milliseconds(seconds)
        code = GuardCode.RECENT_PEAK
        yield Guard(code, COLD_RULE, ids_of(pair), margin.current, margin.threshold, passed_ms)
    if would_be_isolated(view, pair):
        yield Guard(GuardCode.DOMINANT_KEY, COLD_RULE, ids_of(pair), threshold=view.policy.dominant_key_share)


KIND_ORDER = {code: number for number, code in enumerate(GuardCode)}


def _by_kind(guard: Guard) -> int:
    return KIND_ORDER[guard.code]


def _capacity_guards(view: View, run: Run) -> Iterator[Guard]:
    """Hold a merge back that would leave consumers without an entry bucket (PIP-486)."""
    if not view.policy.entry_bucket_lane:
        return
    capacity = sum(segment.bucket_count for segment in view.active)
    of_run = sum(segment.bucket_count for segment in run)
    after = capacity - of_run + min(of_run, view.snapshot.max_buckets)
    needed = min(view.bucket_consumer_count, capacity)
    if after < needed:
        yield Guard(GuardCode.CONSUMERS_NEED_BUCKETS, COLD_RULE, ids_of(run), after, needed)
