"""The autoscaler's decision: a pure, total function of a topic's snapshot and the time (PIP-483).

Two passes, at most one action. Splits come first: more stream consumers than segments, else a segment above
a split threshold. Merges follow when no split fired, also when one was only held back: neighbours that
stayed below every merge threshold for the merge window. Ties go to the lowest segment id, among pairs to
the lowest range start.
"""

from __future__ import annotations

from collections.abc import Iterator

from scalable.domain.autoscale_rules import Snapshot, margins, merge_wish, split_wish
from scalable.domain.decision import (
    ALL_RULES,
    LOAD_RULES,
    STEADY,
    Decision,
    Guard,
    GuardCode,
    Merge,
    Rebucket,
    Split,
    Wish,
)
from scalable.domain.policy import violations

__all__ = ["Decision", "Merge", "Rebucket", "Snapshot", "Split", "decide"]


def decide(snapshot: Snapshot, now_ms: int) -> Decision:
    """Decide on at most one split or merge, and say why, or what held it back and until when."""
    broken = violations(snapshot.policy)
    if broken:
        return _held(snapshot, now_ms, Guard(GuardCode.POLICY_INVALID, ALL_RULES, detail="; ".join(broken)))
    topic_guards = tuple(_topic_guards(snapshot))
    wishes = [wish for wish in (split_wish(snapshot, now_ms), merge_wish(snapshot, now_ms)) if wish]
    for wish in wishes:
        if wish.action and not topic_guards and not wish.guards:
            return _fired(snapshot, now_ms, wish)
    return _unfired(snapshot, now_ms, topic_guards, wishes)


def _held(snapshot: Snapshot, now_ms: int, guard: Guard) -> Decision:
    return Decision(rule=guard.code.value, at_ms=now_ms, epoch=snapshot.layout.epoch, held_by=(guard,))


def _fired(snapshot: Snapshot, now_ms: int, wish: Wish) -> Decision:
    return Decision(
        actions=(wish.action,) if wish.action else (),
        rule=wish.rule,
        at_ms=now_ms,
        epoch=snapshot.layout.epoch,
        fired_by=(wish.margin,) if wish.action else (),
        margins=tuple(margins(snapshot)),
    )


def _unfired(
    snapshot: Snapshot, now_ms: int, topic_guards: tuple[Guard, ...], wishes: list[Wish]
) -> Decision:
    of_wishes = (guard for wish in wishes for guard in wish.guards)
    held_by = (*topic_guards, *of_wishes, *_load_guards(snapshot))
    instants = (wish.next_eligible_at_ms for wish in wishes)
    return Decision(
        rule=held_by[0].code.value if held_by else STEADY,
        at_ms=now_ms,
        epoch=snapshot.layout.epoch,
        held_by=held_by,
        margins=tuple(margins(snapshot)),
        next_eligible_at_ms=min((instant for instant in instants if instant is not None), default=None),
    )


def _topic_guards(snapshot: Snapshot) -> Iterator[Guard]:
    if not snapshot.policy.enabled:
        yield Guard(GuardCode.DISABLED, ALL_RULES)
    if snapshot.operations_in_flight:
        running = snapshot.operations_in_flight
        yield Guard(GuardCode.OPERATION_IN_FLIGHT, ALL_RULES, current=running, threshold=0)


def _load_guards(snapshot: Snapshot) -> Iterator[Guard]:
    if not snapshot.load_known:
        yield Guard(GuardCode.LOAD_UNKNOWN, LOAD_RULES)
        return
    active_ids = sorted(segment.segment_id for segment in snapshot.layout.active)
    unknown = tuple(segment_id for segment_id in active_ids if segment_id not in snapshot.loads)
    if unknown:
        yield Guard(GuardCode.SEGMENT_LOAD_UNKNOWN, LOAD_RULES, unknown)
