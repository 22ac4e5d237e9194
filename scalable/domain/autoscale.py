"""The autoscaler's decision: a pure, total function of a topic's snapshot and the time (PIP-483).

Two passes. Splits come first: more stream consumers than segments, else segments above a split threshold.
Merges follow when no split fired, also when one was only held back: neighbours that stayed below every merge
threshold for the merge window. Ties go to the lowest segment id, among pairs to the lowest range start. A
policy's options let a pass take several actions at once, on disjoint segments; PIP-483 has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from scalable.domain.autoscale_buckets import bucket_wishes, is_for_splits
from scalable.domain.autoscale_merges import cold_margin, coldest_pair, merge_wishes
from scalable.domain.autoscale_room import room_wishes
from scalable.domain.autoscale_splits import consumer_margin, consumer_wishes, load_margin, load_wishes
from scalable.domain.autoscale_view import Snapshot, View, ids_of
from scalable.domain.decision import (
    ALL_RULES,
    KINDS,
    LOAD_RULES,
    STEADY,
    Action,
    Decision,
    Guard,
    GuardCode,
    Margin,
    Merge,
    Rebucket,
    Split,
    Wish,
)
from scalable.domain.policy import AutoScalePolicy, violations

__all__ = ["Decision", "Merge", "Rebucket", "Snapshot", "Split", "decide"]


def decide(snapshot: Snapshot, now_ms: int) -> Decision:
    """Decide what to split, merge or rebucket, and say why, or what held it back and until when."""
    broken = _violations(snapshot.policy)
    view = View(snapshot, now_ms)
    if broken:
        return _held(view, Guard(GuardCode.POLICY_INVALID, ALL_RULES, detail="; ".join(broken)))
    topic_guards = tuple(_topic_guards(view))
    held: list[Wish] = []
    for wanted in _passes(view):
        wishes = [_held_back(view, wish) for wish in wanted]
        firing = [wish for wish in wishes if wish.action and not topic_guards and not wish.guards]
        if firing:
            return _fired(view, _within_bounds(view, firing), held)
        held += wishes[:1]
    return _unfired(view, topic_guards, held)


@lru_cache(maxsize=256)
def _violations(policy: AutoScalePolicy) -> tuple[str, ...]:
    return tuple(violations(policy))


def _passes(view: View) -> Iterator[list[Wish]]:
    """Give the wishes of one pass after the other, each only when the one before it came to nothing."""
    for_consumers = consumer_wishes(view) if is_for_splits(view) else []
    yield for_consumers
    yield bucket_wishes(view)
    if not for_consumers:
        for_load = load_wishes(view)
        yield for_load
        if view.policy.merge_makes_room and _want_room_alone(for_load):
            yield room_wishes(view, for_load)
    yield merge_wishes(view)


def _want_room_alone(wishes: list[Wish]) -> bool:
    """Tell whether splits are wanted that nothing but the cap of segments holds back."""
    codes = {guard.code for guard in _guards(wishes)}
    return codes == {GuardCode.MAX_SEGMENTS} and all(wish.action for wish in wishes)


def _held_back(view: View, wish: Wish) -> Wish:
    """Hold a wish back that came to nothing lately, so that the next one has its turn."""
    if wish.action is None:
        return wish
    told = {guard.code for guard in wish.guards}
    kind, ids = KINDS[type(wish.action)], wish.action.segment_ids
    more = [guard for guard in view.setback_guards(wish.rule, kind, ids) if guard.code not in told]
    return replace(wish, guards=(*wish.guards, *more)) if more else wish


def _guards(wishes: list[Wish]) -> Iterator[Guard]:
    return (guard for wish in wishes for guard in wish.guards)


def _within_bounds(view: View, wishes: list[Wish]) -> list[Wish]:
    """Keep what the policy allows in one tick, and no more splits than the topic has room for."""
    room = view.policy.max_segments - len(view.active)
    kept: list[Wish] = []
    for wish in wishes[: view.policy.max_actions_per_tick]:
        more = _growth(wish.action)
        if more > max(room, 0):
            continue
        room -= more
        kept.append(wish)
    return kept or [_narrowed(wishes[0])]


def _growth(action: Action | None) -> int:
    return max(1, len(action.cuts)) if isinstance(action, Split) else 0


def _narrowed(wish: Wish) -> Wish:
    """Cut in two where there is no room for more."""
    if not isinstance(wish.action, Split):
        return wish
    middle = wish.action.cuts[len(wish.action.cuts) // 2]
    return Wish(wish.rule, Split(wish.action.segment_id, (middle,)), wish.margin)


def _held(view: View, guard: Guard) -> Decision:
    return Decision(
        rule=guard.code.value, at_ms=view.now_ms, epoch=view.snapshot.layout.epoch, held_by=(guard,)
    )


def _fired(view: View, wishes: list[Wish], held: list[Wish]) -> Decision:
    """Give what is done, with what holds back the rules that come before it."""
    return Decision(
        actions=tuple(wish.action for wish in wishes if wish.action),
        rule=wishes[0].rule,
        at_ms=view.now_ms,
        epoch=view.snapshot.layout.epoch,
        fired_by=tuple(wish.margin for wish in wishes),
        held_by=tuple(_guards(held)),
        margins=tuple(_margins(view)),
    )


def _unfired(view: View, topic_guards: tuple[Guard, ...], wishes: list[Wish]) -> Decision:
    held_by = (*topic_guards, *_guards(wishes), *_load_guards(view))
    instants = () if topic_guards else (wish.next_eligible_at_ms for wish in wishes)
    return Decision(
        rule=held_by[0].code.value if held_by else STEADY,
        at_ms=view.now_ms,
        epoch=view.snapshot.layout.epoch,
        held_by=held_by,
        margins=tuple(_margins(view)),
        next_eligible_at_ms=min((instant for instant in instants if instant is not None), default=None),
    )


def _topic_guards(view: View) -> Iterator[Guard]:
    if not view.policy.enabled:
        yield Guard(GuardCode.DISABLED, ALL_RULES)
    running = view.snapshot.operations_in_flight
    if running:
        yield Guard(GuardCode.OPERATION_IN_FLIGHT, ALL_RULES, current=running, threshold=0)


def _load_guards(view: View) -> Iterator[Guard]:
    if not view.snapshot.load_known:
        yield Guard(GuardCode.LOAD_UNKNOWN, LOAD_RULES, detail=_since(view.snapshot.load_unknown_since_ms))
        return
    unknown = tuple(sorted(set(ids_of(view.active)) - set(ids_of(view.known))))
    if unknown:
        yield Guard(GuardCode.SEGMENT_LOAD_UNKNOWN, LOAD_RULES, unknown)
    if view.policy.look_ahead_seconds:
        trendless = tuple(sorted(set(ids_of(view.known)) - set(view.snapshot.trends)))
        if trendless:
            yield Guard(GuardCode.TREND_UNKNOWN, LOAD_RULES, trendless)


def _since(instant_ms: int | None) -> str:
    if instant_ms is None:
        return "no load pipeline has reported yet"
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    return f"since {instant.isoformat(timespec='seconds')}"


def _margins(view: View) -> Iterator[Margin]:
    """Tell how near each rule is: the most consumers, the hottest segment, the coldest pair."""
    consumers = consumer_margin(view)
    if consumers:
        yield consumers
    if view.known:
        hottest = min(view.known, key=lambda each: (-view.scores[each.segment_id], each.segment_id))
        yield load_margin(view, hottest)
    coldest = coldest_pair(view)
    if coldest:
        yield cold_margin(view, coldest)
