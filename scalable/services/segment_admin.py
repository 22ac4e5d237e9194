"""Single segments, for the system role: what Pulsar's brokers ask of one another (PIP-468, Segments API).

Here a segment's place is decided by the layout and its cursors by the topic's subscriptions, so that these
calls heal, look and move; they make nothing that the topic does not know. All take the topic's lock first.
"""

from collections.abc import Collection

from django.db import transaction

from scalable.domain.errors import (
    CursorNeeded,
    SegmentClaimed,
    SegmentNotFound,
    SegmentNotLoaded,
    SegmentsFixed,
    SegmentStoreMissing,
    SubscriptionNotFound,
    TopicNotFound,
)
from scalable.domain.layout import Segment
from scalable.domain.names import SAMPLES_TOPIC, SegmentName
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import auditing, pruning, seeking
from scalable.services.backlogs import backlog_of
from scalable.services.cursors import cursors_in
from scalable.services.positions import AtTime, Start
from scalable.services.stores import create_stores
from scalable.store import operations, subscriptions, topics
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView


def ensure_segment(*, name: SegmentName, subscribed: Collection[str] = ()) -> None:
    """Make the store of an active segment if it is missing, with the cursors of the topic's subscriptions.

    Raises TopicNotFound, SegmentNotFound, SubscriptionNotFound for one that the topic does not have, and
    SegmentStoreMissing for a sealed segment, whose messages would not come back.
    """
    with transaction.atomic():
        topic, segment = _lock(name)
        for each in subscribed:
            _subscription(topic, each)
        if not segment.is_active:
            segment_port().stats(_key(topic, segment))
        create_stores(topic, [segment])
        auditing.record("segment.create", _target(name))


def terminate_segment(*, name: SegmentName) -> None:
    """Refuse messages from now on; again is fine.

    Raises TopicNotFound, SegmentsFixed, SegmentNotFound, SegmentNotLoaded. A segment that is still active in
    the layout has no successor: who writes to it waits until a split or merge replaces it.
    """
    with transaction.atomic():
        topic, segment = _lock(name)
        if name.topic == SAMPLES_TOPIC:  # nothing replaces it, and the load pipeline has no other
            raise SegmentsFixed(topic=str(name.topic))
        try:
            segment_port().terminate(_key(topic, segment), fence=None)
        except SegmentStoreMissing as error:
            raise SegmentNotLoaded(segment_id=segment.segment_id) from error
        auditing.record("segment.terminate", _target(name))


def delete_segment(*, name: SegmentName, force: bool = False) -> None:
    """Prune a sealed segment that nothing holds back, or by force one that subscriptions have not drained.

    One that is gone already is fine, and what is left of its store goes. Raises SegmentNotPrunable (active,
    held back, or its parents are still kept), SegmentClaimed by an unfinished operation.
    """
    try:
        topic = topics.read(name.topic)
    except TopicNotFound:
        return
    if name.segment_id in topic.layout.segments:
        _check_range(topic.layout.segments[name.segment_id], name)
        pruning.prune_segment(incarnation=topic.incarnation, segment_id=name.segment_id, force=force)
    else:
        _delete_leftover(topic.incarnation, name)


def _delete_leftover(incarnation: int, name: SegmentName) -> None:
    segment_id = name.segment_id
    with transaction.atomic():
        topic = topics.lock_incarnation(incarnation)
        for operation in operations.unfinished([incarnation]):
            if segment_id in operation.plan.child_ids:
                raise SegmentClaimed(segment_id=segment_id, operation_id=operation.operation_id)
        if segment_id not in topic.layout.segments:
            segment_port().delete(SegmentKey(incarnation, segment_id))
            auditing.record("segment.delete", _target(name))


def ensure_cursor(*, name: SegmentName, subscription: str) -> None:
    """Make the cursors that a subscription of the topic lacks in a segment, at earliest.

    Raises TopicNotFound, SegmentNotFound, SubscriptionNotFound, SegmentNotLoaded.
    """
    with transaction.atomic():
        topic, segment = _lock(name)
        for cursor in cursors_in(_subscription(topic, subscription), segment):
            try:
                segment_port().create_cursor(cursor.key, subscription=cursor.name, position=None)
            except SegmentStoreMissing as error:
                raise SegmentNotLoaded(segment_id=segment.segment_id) from error
        auditing.record("segment.cursor.create", _target(name, subscription))


def delete_cursor(*, name: SegmentName, subscription: str) -> None:
    """Remove what is left of a deleted subscription in a segment; nothing left is fine.

    Raises CursorNeeded while the topic has the subscription: it reads all segments or none.
    """
    with transaction.atomic():
        try:
            topic, segment = _lock(name)
        except (TopicNotFound, SegmentNotFound):
            return
        if subscriptions.find(topic.incarnation, subscription) is not None:
            raise CursorNeeded(subscription=subscription, segment_id=segment.segment_id)
        key, port = _key(topic, segment), segment_port()
        for cursor in port.cursors(key):
            if cursor.subscription.partition("/")[0] == subscription:
                port.delete_cursor(key, subscription=cursor.subscription)
        auditing.record("segment.cursor.delete", _target(name, subscription))


def segment_backlog(*, name: SegmentName, subscription: str) -> int:
    """Count what a subscription has still to receive of a segment.

    Raises TopicNotFound, SegmentNotFound, SubscriptionNotFound, SegmentStoreMissing: none of them proves that
    the segment is drained.
    """
    topic = topics.read(name.topic)
    segment = _find(topic, name)
    found = backlog_of(_subscription(topic, subscription), topic.layout).segments.get(segment.segment_id)
    if found is None:
        raise SegmentStoreMissing(segment_id=segment.segment_id)
    return found.messages


def seek_segment(*, name: SegmentName, subscription: str, time_ms: int) -> None:
    """Go on from a time in one segment alone; raises as `skip_segment`."""
    _move(name, subscription, AtTime(time_ms))


def skip_segment(*, name: SegmentName, subscription: str) -> None:
    """Skip what one segment has.

    Raises TopicNotFound, SegmentNotFound, SubscriptionNotFound, SubscriptionTypeMismatch, SegmentNotLoaded.
    """
    _move(name, subscription, "latest")


def _move(name: SegmentName, subscription: str, start: Start) -> None:
    _find(topics.read(name.topic), name)
    try:
        seeking.move_segment(
            name=name.topic, subscription=subscription, segment_id=name.segment_id, start=start
        )
    except SegmentStoreMissing as error:
        raise SegmentNotLoaded(segment_id=name.segment_id) from error


def _target(name: SegmentName, subscription: str = "") -> str:
    """What the audit calls a segment, or a subscription in it: below its topic, where it is looked for."""
    segment = f"{name.topic}/segments/{name.descriptor}"
    return f"{segment}/subscriptions/{subscription}" if subscription else segment


def _lock(name: SegmentName) -> tuple[TopicView, Segment]:
    topic = topics.lock(name.topic)
    return topic, _find(topic, name)


def _find(topic: TopicView, name: SegmentName) -> Segment:
    segment = topic.layout.get(name.segment_id)
    _check_range(segment, name)
    return segment


def _check_range(segment: Segment, name: SegmentName) -> None:
    if segment.hash_range != name.hash_range:
        raise SegmentNotFound(segment_id=name.segment_id)


def _subscription(topic: TopicView, name: str) -> SubscriptionView:
    found = subscriptions.find(topic.incarnation, name)
    if found is None:
        raise SubscriptionNotFound(subscription=name)
    return found


def _key(topic: TopicView, segment: Segment) -> SegmentKey:
    return SegmentKey(topic.incarnation, segment.segment_id)
