"""Lets messages go that are old enough and that nobody needs: sealed segments whole, others from the front.

What holds something back is read twice: at a first look without a lock, and again under the topic's lock, in
the transaction that lets it go. Whoever makes a subscription or moves one back takes that lock first, so that
none can come between the second look and the deletion.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import SegmentStoreMissing, TopicNotFound
from scalable.domain.layout import Layout, Segment
from scalable.domain.lifetimes import is_past_retention
from scalable.domain.pruning import Pruning, prune_oldest
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.cursors import cursors_in
from scalable.services.lifetimes import retention_of
from scalable.services.settling import settle_topic
from scalable.store import operations, subscriptions, topics
from scalable.store import retention as store
from scalable.store.clock import database_now, milliseconds
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

logger = logging.getLogger(__name__)

TOPICS_PER_TICK = 200
PRUNED_PER_SWEEP = 100
CHUNKS_PER_SWEEP = 200
BATCHES_PER_CHUNK = 500


def _no_probe() -> None:
    """Look at nothing."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What holds messages of a topic back: their age, the subscriptions that count, segments at work."""

    incarnation: int
    retention_seconds: int
    now_ms: int
    holders: list[SubscriptionView]
    claimed: frozenset[int]

    def lets_go(self, segment: Segment) -> bool:
        """Tell whether a sealed segment is old enough, drained by all, and no longer an operation's."""
        old = is_past_retention(self.retention_seconds, since_ms=segment.sealed_at_ms, now_ms=self.now_ms)
        return old and segment.segment_id not in self.claimed and self._is_drained(segment)

    def _is_drained(self, segment: Segment) -> bool:
        end_offset = segment_port().stats(SegmentKey(self.incarnation, segment.segment_id)).end_offset
        return all(position >= end_offset for position in self._positions(segment))

    def trim_point(self, segment: Segment) -> int:
        """Give the offset below which messages may go; 0 for none.

        Without a retention in seconds it takes a subscription to be done with messages: what nobody has
        subscribed to yet, the first that comes will find.
        """
        points = self._positions(segment)
        if self.retention_seconds > 0:
            oldest_ms = self.now_ms - self.retention_seconds * 1000
            key = SegmentKey(self.incarnation, segment.segment_id)
            points.append(segment_port().offset_at(key, time_ms=oldest_ms))
        return min(points, default=0)

    def _positions(self, segment: Segment) -> list[int]:
        """Give where each cursor that counts stands; one that is missing holds everything."""
        cursors = [cursor for holder in self.holders for cursor in cursors_in(holder, segment)]
        if not cursors:
            return []
        known = {state.subscription: state.position for state in segment_port().cursors(cursors[0].key)}
        return [known.get(cursor.name, 0) for cursor in cursors]


def sweep_due_topics() -> list[int]:
    """Prune and trim the topics whose time has come, and give their incarnations.

    The failure of one stops no other: the next time is committed first, so that it waits like all.
    """
    due = store.take_due(limit=TOPICS_PER_TICK, interval_seconds=settings.SCALABLE_RETENTION_SWEEP_SECONDS)
    for incarnation in due:
        try:
            sweep_topic(incarnation=incarnation)
        except TopicNotFound:
            logger.info("Topic %s was deleted before its sweep", incarnation)
        except Exception:
            logger.exception("The sweep of topic %s failed", incarnation)
    return due


def sweep_topic(*, incarnation: int) -> None:
    """Prune and trim one topic, a bounded part of it; what is left is due at once. Raises TopicNotFound."""
    trimmed = trim_topic(incarnation=incarnation)
    pruned = prune_topic(incarnation=incarnation)
    store.forget_operations(incarnation)
    if trimmed >= CHUNKS_PER_SWEEP or len(pruned) >= PRUNED_PER_SWEEP:
        store.sweep_soon(incarnation)


# Whole segments


def prune_topic(*, incarnation: int, probe: Callable[[], None] = _no_probe) -> tuple[int, ...]:
    """Prune the sealed segments that nothing holds back, and give their ids; raises TopicNotFound.

    `probe` is called between the first look and the second, which is the one that counts.
    """
    if not _prunable(incarnation, subscriptions.read_layout(incarnation)).segments:
        return ()
    probe()
    with transaction.atomic():
        topic = topics.lock_incarnation(incarnation)
        pruning = _prunable(incarnation, topic.layout)
        if pruning.segments:
            _forget(topic, pruning)
    pruned = tuple(segment.segment_id for segment in pruning.segments)
    _finish(incarnation, pruned)
    return pruned


def _prunable(incarnation: int, layout: Layout) -> Pruning:
    needs = _needs(incarnation)

    def may_go(segment: Segment) -> bool:
        try:
            return needs.lets_go(segment)
        except SegmentStoreMissing:  # nobody can say whether it was drained
            return False

    return prune_oldest(layout, may_go, limit=PRUNED_PER_SWEEP)


def _forget(topic: TopicView, pruning: Pruning) -> None:
    incarnation = topic.incarnation
    pruned = [segment.segment_id for segment in pruning.segments]
    ends = {key: segment_port().stats(SegmentKey(incarnation, key)).end_offset for key in pruned}
    for subscription_id in store.forget_segments(incarnation, pruned):
        subscriptions.raise_generation(subscription_id)
        announce.publish(announce.AssignmentChanged(subscription_id, incarnation))
    revision = topics.write_layout(topic, pruning.layout, end_offsets=ends)
    announce.publish(announce.TopicChanged(incarnation, str(topic.name), revision))


def _finish(incarnation: int, pruned: tuple[int, ...]) -> None:
    """Delete the stores, which are orphans by now, and open what waited for the segments to be drained."""
    for segment_id in pruned:
        segment_port().delete(SegmentKey(incarnation, segment_id))
    if pruned:
        settle_topic(topic_id=incarnation)


# The front of segments


def trim_topic(*, incarnation: int) -> int:
    """Delete the oldest messages of all segments as far as nothing holds them; raises TopicNotFound.

    Goes on in chunks, each under the topic's lock for a moment, and gives how many it took.
    """
    chunks = 0
    needs = _needs(incarnation)
    for segment in subscriptions.read_layout(incarnation).segments.values():
        while chunks < CHUNKS_PER_SWEEP and _has_more(needs, segment):
            if not _trim_chunk(incarnation, segment.segment_id):
                break
            chunks += 1
    return chunks


def _has_more(needs: Needs, segment: Segment) -> bool:
    if needs.retention_seconds < 0:
        return False
    try:
        start_offset = segment_port().stats(SegmentKey(needs.incarnation, segment.segment_id)).start_offset
        return needs.trim_point(segment) > start_offset
    except SegmentStoreMissing:
        return False


def _trim_chunk(incarnation: int, segment_id: int) -> bool:
    """Delete one chunk and tell whether anything went: a batch goes whole or not at all."""
    key = SegmentKey(incarnation, segment_id)
    with transaction.atomic():
        topics.hold(incarnation)
        found, needs = subscriptions.find_segment(incarnation, segment_id), _needs(incarnation)
        if found is None or needs.retention_seconds < 0:
            return False
        start_offset = segment_port().stats(key).start_offset
        before = needs.trim_point(found.segment)
        return segment_port().trim(key, before_offset=before, max_batches=BATCHES_PER_CHUNK) > start_offset


def _needs(incarnation: int) -> Needs:
    running = operations.unfinished([incarnation])
    return Needs(
        incarnation=incarnation,
        retention_seconds=retention_of(incarnation=incarnation).value,
        now_ms=milliseconds(database_now()),
        holders=[each for each in subscriptions.of_topic(incarnation) if each.holds_pruning],
        claimed=frozenset(key for operation in running for key in operation.plan.parent_ids),
    )
