"""Moves of a subscription: seek, clear backlog, skip; all segments or none, and a preview of each.

A move takes the locks in the order of all: topic, subscription, then the cursors by segment. Owners keep
their segments under a new generation, so that what was delivered before can no longer be acknowledged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from django.db import transaction

from scalable.domain.backlogs import next_messages, position_behind
from scalable.domain.errors import SegmentStoreMissing, SubscriptionNotFound, SubscriptionTypeMismatch
from scalable.domain.names import TopicName, validate_part
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import auditing
from scalable.services.backlogs import Backlog, Look, SegmentBacklog, backlog_of, pending_in
from scalable.services.cursors import Cursor, Move, cursors_in, moving_cursors
from scalable.services.moves import fence_off, follow_cursors, noted
from scalable.services.positions import AtTime, Extent, Start, positions_of_start
from scalable.store import subscriptions as store
from scalable.store import topics
from scalable.store.clock import database_now, milliseconds
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

SKIP_BYTES = 64 * 1024 * 1024
"""How much is read to find the place behind the skipped messages of entry buckets that stand apart."""


@dataclass(frozen=True, slots=True)
class SegmentMove:
    """Where a subscription stands in one segment and will stand, and how many messages are left each time."""

    segment_id: int
    state: str
    from_position: int
    to_position: int
    backlog_before: int
    backlog_after: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move does, or did when it was `applied`; segments that stay as they are are told too."""

    applied: bool
    epoch: int
    segments: tuple[SegmentMove, ...]

    @property
    def backlog_before(self) -> int:
        """Count what was left."""
        return sum(each.backlog_before for each in self.segments)

    @property
    def backlog_after(self) -> int:
        """Count what is left."""
        return sum(each.backlog_after for each in self.segments)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The moves of cursors, and what is left of the segments that they touch."""

    moves: Mapping[Cursor, Move]
    left: Mapping[int, int]


_Planner = Callable[[TopicView, SubscriptionView, Backlog], _Plan]


def seek(*, name: TopicName, subscription: str, start: Start, preview: bool = False) -> Moved:
    """Go on from a time, from positions, from the beginning or the end; a preview changes nothing.

    Sealed ancestors are moved too, and what came after one that is no longer drained waits again. Raises
    TopicNotFound, SubscriptionNotFound, SubscriptionTypeMismatch (a CHECKPOINT group restores checkpoints),
    SegmentNotFound, PositionInvalid, InvalidParameter.
    """

    def plan(topic: TopicView, found: SubscriptionView, backlog: Backlog) -> _Plan:
        extents = {key: Extent(one.start_offset, one.end_offset) for key, one in backlog.segments.items()}
        return _plan_seek(found, backlog, positions_of_start(topic, start, extents), skips=_is_end(start))

    return _move(name, subscription, plan, preview=preview)


def clear_backlog(*, name: TopicName, subscription: str, preview: bool = False) -> Moved:
    """Skip all that is there now; raises as `seek`."""

    def plan(topic: TopicView, found: SubscriptionView, backlog: Backlog) -> _Plan:
        ends = {key: one.end_offset for key, one in backlog.segments.items()}
        return _plan_seek(found, backlog, ends, skips=True)

    return _move(name, subscription, plan, preview=preview)


def skip(*, name: TopicName, subscription: str, count: int, preview: bool = False) -> Moved:
    """Skip the next `count` messages, or what there is: ancestors first, open segments evenly.

    Within a key-shared segment the oldest go first, whichever entry bucket they belong to. Raises as `seek`.
    """

    def plan(topic: TopicView, found: SubscriptionView, backlog: Backlog) -> _Plan:
        return _plan_skip(found, backlog, next_messages(topic.layout, backlog.pending, count))

    return _move(name, subscription, plan, preview=preview)


def move_segment(*, name: TopicName, subscription: str, segment_id: int, start: Start) -> Moved:
    """Move a subscription in one segment alone; raises as `seek`, and SegmentStoreMissing."""

    def plan(topic: TopicView, found: SubscriptionView, backlog: Backlog) -> _Plan:
        one = backlog.segments.get(segment_id)
        if one is None:
            raise SegmentStoreMissing(segment_id=segment_id)
        extents = {segment_id: Extent(one.start_offset, one.end_offset)}
        alone = replace(backlog, segments={segment_id: one})
        moved = _plan_seek(found, alone, positions_of_start(topic, start, extents), skips=_is_end(start))
        return _Plan(moved.moves, {**backlog.pending, **moved.left})

    return _move(name, subscription, plan, preview=False)


def _is_end(start: Start) -> bool:
    """Tell whether no message is behind: at the latest, and at a time to come."""
    if isinstance(start, AtTime):
        return start.time_ms > milliseconds(database_now())
    return start == "latest"


def _move(name: TopicName, subscription: str, planner: _Planner, *, preview: bool) -> Moved:
    validate_part(subscription, "subscription")
    if preview:
        topic = topics.read(name)
        found = _movable(store.find(topic.incarnation, subscription), subscription)
        backlog = backlog_of(found, topic.layout)
        return _moved(topic, backlog, planner(topic, found, backlog), applied=False)
    with noted(name, subscription) as note, transaction.atomic():
        topic = topics.lock(name)
        found = _movable(store.find(topic.incarnation, subscription), subscription)
        locked = store.lock(found.subscription_id)
        backlog = backlog_of(locked, topic.layout)
        plan = planner(topic, locked, backlog)
        segment_ids = {cursor.key.segment_id for cursor in plan.moves}
        note.begin(locked.subscription_id)
        fences = fence_off(locked, segment_ids)
        with moving_cursors(plan.moves, check=note.check):
            follow_cursors(locked, segment_ids, fences)
            auditing.record(
                "subscription.seek",
                f"{name}/subscriptions/{subscription}",
                before={str(key): one.position for key, one in backlog.segments.items()},
            )
            note.done()
        return _moved(topic, backlog, plan, applied=True)


def _movable(found: SubscriptionView | None, name: str) -> SubscriptionView:
    if found is None:
        raise SubscriptionNotFound(subscription=name)
    if found.type is SubscriptionType.CHECKPOINT:
        raise SubscriptionTypeMismatch(
            subscription=name, current_type=found.type.value, requested_type="STREAM or QUEUE"
        )
    return found


def _plan_seek(
    subscription: SubscriptionView, backlog: Backlog, positions: Mapping[int, int], *, skips: bool
) -> _Plan:
    """Plan for each segment a position; `skips` where these are ends, from which no cursor goes back."""
    moves: dict[Cursor, Move] = {}
    left = {}
    for segment_id, one in backlog.segments.items():
        # The end by a time is read after the backlog: what came in between is not skipped, nor counted.
        position = min(max(positions[segment_id], one.start_offset), one.end_offset)
        left[segment_id] = one.end_offset - position
        if (
            one.messages or left[segment_id] or one.segment.is_active
        ):  # else it is done with, before and after
            moves |= dict.fromkeys(cursors_in(subscription, one.segment), Move(position, skips))
    return _Plan(moves, left)


def _plan_skip(subscription: SubscriptionView, backlog: Backlog, counts: Mapping[int, int]) -> _Plan:
    moves: dict[Cursor, Move] = {}
    for segment_id, count in counts.items():
        one = backlog.segments[segment_id]
        cursors = cursors_in(subscription, one.segment)
        if count >= one.messages:
            moves |= dict.fromkeys(cursors, Move(one.end_offset, skips=True))
        elif len(cursors) == 1:
            moves[cursors[0]] = Move(_position_behind(cursors[0], one, count), skipped=count)
        else:
            moves |= _skip_in_buckets(cursors, one, count)
    left = {key: one.messages - counts.get(key, 0) for key, one in backlog.segments.items()}
    return _Plan(moves, left)


def _position_behind(cursor: Cursor, one: SegmentBacklog, count: int) -> int:
    if not one.cursors[0].acknowledged:
        return one.position + count
    state = segment_port().cursor(cursor.key, subscription=cursor.name)
    return position_behind(one.position, () if state is None else state.acknowledged, count)


def _skip_in_buckets(cursors: list[Cursor], one: SegmentBacklog, count: int) -> dict[Cursor, Move]:
    """Move each entry bucket behind the oldest `count` messages of the segment that are not acknowledged."""
    frontier = _offset_behind(cursors[0].key, one, count)
    return {
        cursor: Move(frontier, skips=True)
        for cursor, standing in zip(cursors, one.standings, strict=True)
        if standing.position < frontier
    }


def _offset_behind(key: SegmentKey, one: SegmentBacklog, count: int) -> int:
    at = min(each.position for each in one.standings)
    high = max(each.frontier for each in one.standings)
    for batch in Look(SKIP_BYTES).batches(key, at, before=high):
        for offset, _ in pending_in(batch, one.segment, one.standings):
            if offset >= high:
                break
            count -= 1
            if not count:
                return offset + 1
        at = batch.base_offset + batch.count
    return min(high + count, one.end_offset) if at >= high else at


def _moved(topic: TopicView, backlog: Backlog, plan: _Plan, *, applied: bool) -> Moved:
    targets: dict[int, int] = {}
    for cursor, move in plan.moves.items():
        key = cursor.key.segment_id
        targets[key] = min(move.position, targets.get(key, move.position))
    return Moved(
        applied,
        topic.epoch,
        tuple(
            SegmentMove(
                segment_id=key,
                state=one.segment.state.value,
                from_position=one.position,
                to_position=targets.get(key, one.position),
                backlog_before=one.messages,
                backlog_after=plan.left[key],
            )
            for key, one in backlog.segments.items()
        ),
    )
