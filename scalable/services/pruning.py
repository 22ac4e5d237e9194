"""Lets messages go that are old enough and that nobody needs: sealed segments whole, others from the front.

What holds something back is read twice: at a first look without a lock, and again under the topic's lock, in
the transaction that lets it go. Whoever makes a subscription or moves one back takes that lock first, so that
none can come between the second look and the deletion.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import (
    SegmentClaimed,
    SegmentNotPrunable,
    SegmentStoreMissing,
    TopicNotFound,
)
from scalable.domain.layout import Layout, Segment
from scalable.domain.lifetimes import is_past_retention
from scalable.domain.names import SegmentName
from scalable.domain.pruning import LONGEST_PAUSE, Pruning, pause_seconds, prune_oldest
from scalable.segments.port import CursorBacklog, SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import auditing
from scalable.services.cursors import cursors_in
from scalable.services.lifetimes import retention_of
from scalable.services.settling import settle_topic
from scalable.services.stores import delete_stores
from scalable.store import operations, subscriptions, topics
from scalable.store import retention as store
from scalable.store.clock import database_now, milliseconds
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 50
PRUNED_PER_SWEEP = 100
ROUNDS_PER_SWEEP = 100
SEGMENTS_PER_ROUND = 10
BATCHES_PER_ROUND = 200


def _no_probe() -> None:
    """Look at nothing."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What holds messages of a topic back: their age, cursors that count, segments at work.

    `aged` has the offset by segment below which messages are old enough, where a time is set at all.
    """

    retention_seconds: int
    now_ms: int
    holders: list[SubscriptionView]
    cursors: Mapping[tuple[int, str], CursorBacklog]
    aged: Mapping[int, int]
    claimed: frozenset[int]

    def lets_go(self, segment: Segment) -> bool:
        """Tell whether a sealed segment is old enough, drained by all, and no longer an operation's."""
        old = is_past_retention(self.retention_seconds, since_ms=segment.sealed_at_ms, now_ms=self.now_ms)
        if not old or segment.segment_id in self.claimed:
            return False
        return all(cursor and cursor.position >= cursor.end_offset for cursor in self._cursors(segment))

    def trim_point(self, segment: Segment) -> int:
        """Give the offset below which messages may go; 0 for none.

        Without a time it takes a subscription to be done with messages: what nobody has subscribed to yet,
        the first that comes will find.
        """
        if self.retention_seconds < 0:
            return 0
        points = [cursor.position if cursor else 0 for cursor in self._cursors(segment)]
        if self.retention_seconds > 0:
            points.append(self.aged.get(segment.segment_id, 0))
        return min(points, default=0)

    def may_trim(self, segment: Segment) -> bool:
        """Tell whether messages may go that are still there, as far as cursors tell where it begins."""
        starts = [cursor.start_offset for cursor in self._cursors(segment) if cursor]
        return self.trim_point(segment) > max(starts, default=0)

    def _cursors(self, segment: Segment) -> list[CursorBacklog | None]:
        """Give the cursors that count; one that is missing (None) holds everything."""
        named = [cursor for holder in self.holders for cursor in cursors_in(holder, segment)]
        return [self.cursors.get((segment.segment_id, cursor.name)) for cursor in named]


@dataclass(frozen=True, slots=True)
class Look:
    """A topic's layout and what holds its messages back, at a first look without a lock."""

    incarnation: int
    layout: Layout
    needs: Needs


def sweep_due_topics(*, seconds: float = 0) -> list[int]:
    """Prune and trim the topics whose time has come, some and then more for so long; give their incarnations.

    The failure of one stops no other: the next time is committed first, so that it waits like all.
    """
    swept: list[int] = []
    until = time.monotonic() + seconds
    while due := store.take_due(limit=TOPICS_AT_ONCE, interval_seconds=_interval_seconds()):
        for incarnation, quiet_sweeps in due.items():
            _try_to_sweep(incarnation, quiet_sweeps)
        swept += due
        if time.monotonic() >= until:
            break
    return swept


def sweep_topic(*, incarnation: int, quiet_sweeps: int = 0) -> None:
    """Prune and trim one topic, a bounded part of it; what is left is due at once. Raises TopicNotFound.

    `quiet_sweeps` is how often in a row there was nothing to do for it.
    """
    look = _look(incarnation)
    trimmed = trim_topic(incarnation=incarnation, look=look)
    pruned = prune_topic(incarnation=incarnation, look=look)
    store.forget_operations(incarnation)
    if trimmed >= ROUNDS_PER_SWEEP or len(pruned) >= PRUNED_PER_SWEEP:
        store.sweep_soon(incarnation)
    else:
        has_sealed = len(look.layout.active) < len(look.layout.segments)
        _pause(look, 0 if trimmed or has_sealed else quiet_sweeps + 1, before=quiet_sweeps)


def _try_to_sweep(incarnation: int, quiet_sweeps: int) -> None:
    try:
        sweep_topic(incarnation=incarnation, quiet_sweeps=quiet_sweeps)
    except TopicNotFound:
        logger.info("Topic %s was deleted before its sweep", incarnation)
    except Exception:
        logger.exception("The sweep of topic %s failed", incarnation)


def _pause(look: Look, quiet_sweeps: int, *, before: int) -> None:
    if quiet_sweeps == before:
        return
    pause = pause_seconds(
        quiet_sweeps=quiet_sweeps,
        interval_seconds=_interval_seconds(),
        retention_seconds=look.needs.retention_seconds,
    )
    store.write_quiet_sweeps(look.incarnation, min(quiet_sweeps, LONGEST_PAUSE), pause_seconds=pause)


def _interval_seconds() -> float:
    seconds: float = settings.SCALABLE_RETENTION_SWEEP_SECONDS
    return seconds


# Whole segments


def prune_topic(
    *, incarnation: int, look: Look | None = None, probe: Callable[[], object] = _no_probe
) -> tuple[int, ...]:
    """Prune the sealed segments that nothing holds back, and give their ids; raises TopicNotFound.

    `probe` is called between the first look and the second, which is the one that counts.
    """
    look = look or _look(incarnation)
    if not _prunable(look.layout, look.needs).segments:
        return ()
    probe()
    with transaction.atomic():
        topic = topics.lock_incarnation(incarnation)
        pruning = _prunable(topic.layout, _needs(incarnation))
        if pruning.segments:
            _forget(topic, pruning)
    pruned = tuple(segment.segment_id for segment in pruning.segments)
    _finish(incarnation, pruned)
    return pruned


def prune_segment(*, incarnation: int, segment_id: int, force: bool = False) -> None:
    """Prune one sealed segment that nothing holds back, by force one that is not drained.

    Raises TopicNotFound, SegmentNotFound, SegmentNotPrunable, SegmentClaimed.
    """
    with transaction.atomic():
        topic = topics.lock_incarnation(incarnation)
        segment, layout = topic.layout.get(segment_id), topic.layout.prune(segment_id)
        claimed = operations.claiming(incarnation, [segment_id])
        if claimed:
            raise SegmentClaimed(segment_id=segment_id, operation_id=claimed[segment_id].operation_id)
        if not force and not _needs(incarnation).lets_go(segment):
            raise SegmentNotPrunable(
                segment_id=segment_id, problem="a subscription or its retention holds it"
            )
        _forget(topic, Pruning(layout, (segment,)))
        name = SegmentName(topic.name, segment.hash_range, segment_id)
        auditing.record("segment.delete", f"{topic.name}/segments/{name.descriptor}")
    _finish(incarnation, (segment_id,))


def _prunable(layout: Layout, needs: Needs) -> Pruning:
    return prune_oldest(layout, needs.lets_go, limit=PRUNED_PER_SWEEP)


def _forget(topic: TopicView, pruning: Pruning) -> None:
    incarnation = topic.incarnation
    pruned = [segment.segment_id for segment in pruning.segments]
    ends = {key: _end_offset(SegmentKey(incarnation, key)) for key in pruned}
    for subscription_id in store.forget_segments(incarnation, pruned):
        subscriptions.raise_generations([subscription_id])
        announce.publish(announce.AssignmentChanged(subscription_id, incarnation))
    revision = topics.write_layout(topic, pruning.layout, end_offsets=ends)
    announce.publish(announce.TopicChanged(incarnation, str(topic.name), revision))


def _end_offset(key: SegmentKey) -> int:
    try:
        return segment_port().stats(key).end_offset
    except SegmentStoreMissing:  # nobody needs a segment that lost its store
        return 0


def _finish(incarnation: int, pruned: tuple[int, ...]) -> None:
    """Delete the stores, which are orphans by now, and open what waited for the segments to be drained."""
    delete_stores(incarnation, pruned)
    if pruned:
        settle_topic(topic_id=incarnation)


# The front of segments


def trim_topic(*, incarnation: int, look: Look | None = None) -> int:
    """Delete the oldest messages of all segments as far as nothing holds them; raises TopicNotFound.

    A first look takes no lock. Then it goes on in rounds, each under the topic's lock for a moment, and gives
    how many it took.
    """
    look = look or _look(incarnation)
    due = [key for key, segment in look.layout.segments.items() if look.needs.may_trim(segment)]
    rounds = 0
    for start in range(0, len(due), SEGMENTS_PER_ROUND):
        group = due[start : start + SEGMENTS_PER_ROUND]
        while group and rounds < ROUNDS_PER_SWEEP:
            group = _trim_round(incarnation, group)
            rounds += 1
    return rounds


def _trim_round(incarnation: int, segment_ids: Sequence[int]) -> list[int]:
    """Delete some batches of these segments, and give those that may have more to delete."""
    with transaction.atomic():
        topics.hold(incarnation)
        needs, layout = _needs(incarnation), subscriptions.read_layout(incarnation)
        kept = [layout.segments[key] for key in segment_ids if key in layout.segments]
        return [
            segment.segment_id
            for segment in kept
            if _trim(SegmentKey(incarnation, segment.segment_id), needs.trim_point(segment))
        ]


def _trim(key: SegmentKey, before_offset: int) -> bool:
    """Delete some batches below an offset and tell whether there may be more; a batch goes whole or not."""
    try:
        start_offset = segment_port().stats(key).start_offset
        if before_offset <= start_offset:
            return False
        trimmed_to = segment_port().trim(key, before_offset=before_offset, max_batches=BATCHES_PER_ROUND)
        return start_offset < trimmed_to < before_offset
    except SegmentStoreMissing:
        return False


def _look(incarnation: int) -> Look:
    return Look(incarnation, subscriptions.read_layout(incarnation), _needs(incarnation))


def _needs(incarnation: int) -> Needs:
    retention_seconds, now_ms = retention_of(incarnation=incarnation).value, milliseconds(database_now())
    port, running = segment_port(), operations.unfinished([incarnation])
    oldest_ms = now_ms - retention_seconds * 1000
    return Needs(
        retention_seconds=retention_seconds,
        now_ms=now_ms,
        holders=[each for each in subscriptions.of_topic(incarnation) if each.holds_pruning],
        cursors={(each.segment_id, each.cursor): each for each in port.backlogs(incarnation=incarnation)},
        aged=port.offsets_at(incarnation=incarnation, time_ms=oldest_ms) if retention_seconds > 0 else {},
        claimed=frozenset(key for operation in running for key in operation.plan.parent_ids),
    )
