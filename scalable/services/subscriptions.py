"""Subscriptions: made with a cursor in every segment or not at all, listed, deleted, read."""

from dataclasses import dataclass
from typing import Literal

from django.db import transaction

from scalable import announce
from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned, SubscriptionNotFound
from scalable.domain.names import TopicName, validate_part
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.store import subscriptions as store
from scalable.store import topics
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

InitialPosition = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class ReadingRight:
    """A consumer's right to read a segment, and from where: the first offset that is not acknowledged."""

    segment_id: int
    generation: int
    position: int


def create_subscription(
    *,
    name: TopicName,
    subscription: str,
    kind: SubscriptionType,
    initial_position: InitialPosition = "earliest",
) -> SubscriptionView:
    """Make a subscription with its cursors, or give the one that exists.

    Raises TopicNotFound, InvalidName, SubscriptionTypeMismatch.
    """
    validate_part(subscription, "subscription")
    found = store.find(store.incarnation_of(name), subscription)
    if found is None:
        found = _create(name, subscription, kind, initial_position)
    store.check_type(found, kind)
    return found


def list_subscriptions(*, name: TopicName) -> list[SubscriptionView]:
    """The subscriptions of a topic by name; raises TopicNotFound."""
    return store.of_topic(store.incarnation_of(name))


def find_subscription(*, name: TopicName, subscription: str, kind: SubscriptionType) -> SubscriptionView:
    """A subscription of this type.

    Raises TopicNotFound, InvalidName, SubscriptionNotFound, SubscriptionTypeMismatch.
    """
    validate_part(subscription, "subscription")
    return store.get(store.incarnation_of(name), subscription, expected=kind)


def delete_subscription(*, name: TopicName, subscription: str) -> None:
    """Delete a subscription with its cursors; raises TopicNotFound, InvalidName, SubscriptionNotFound."""
    validate_part(subscription, "subscription")
    with transaction.atomic():
        topic = topics.lock(name)
        found = store.find(topic.incarnation, subscription)
        if found is None:
            raise SubscriptionNotFound(subscription=subscription)
        store.delete(found.subscription_id)
        for segment_id in topic.layout.segments:
            key = SegmentKey(topic.incarnation, segment_id)
            segment_port().delete_cursor(key, subscription=subscription)
        announce.publish(announce.AssignmentChanged(found.subscription_id, topic.incarnation))


def reading_right(
    *, subscription: SubscriptionView, consumer: str, segment_id: int, generation: int
) -> ReadingRight:
    """Check that the consumer owns the segment under this generation, and tell where it goes on.

    Raises SegmentNotOwned, GenerationSuperseded.
    """
    owned = store.ownership(subscription.subscription_id, segment_id)
    if owned is None or generation > owned.generation:
        raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
    if generation < owned.generation:
        raise GenerationSuperseded(
            segment_id=segment_id, generation=generation, current_generation=owned.generation
        )
    key = SegmentKey(subscription.incarnation, segment_id)
    cursor = segment_port().cursor(key, subscription=subscription.name)
    if owned.owner != consumer or cursor is None:
        raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
    return ReadingRight(segment_id, generation, cursor.position)


def lost_segments(
    *, subscription: SubscriptionView, consumer: str, generations: dict[int, int]
) -> dict[int, GenerationSuperseded | SegmentNotOwned]:
    """Of the segments that a consumer reads, those that are no longer its own, each with the reason."""
    owned = store.ownerships(subscription.subscription_id).owned
    lost: dict[int, GenerationSuperseded | SegmentNotOwned] = {}
    for segment_id, generation in generations.items():
        current = owned.get(segment_id)
        if current is None or (current.generation == generation and current.owner not in (consumer, None)):
            lost[segment_id] = SegmentNotOwned(consumer=consumer, segment_id=segment_id)
        elif current.generation != generation:
            lost[segment_id] = GenerationSuperseded(
                segment_id=segment_id, generation=generation, current_generation=current.generation
            )
    return lost


def _create(
    name: TopicName, subscription: str, kind: SubscriptionType, initial_position: InitialPosition
) -> SubscriptionView:
    with transaction.atomic():
        topic = topics.lock(name)
        found = store.find(topic.incarnation, subscription)
        if found is None:
            found = store.insert(topic.incarnation, subscription, kind)
            _create_cursors(topic, subscription, initial_position)
        return found


def _create_cursors(topic: TopicView, subscription: str, initial_position: InitialPosition) -> None:
    port = segment_port()
    for segment_id in sorted(topic.layout.segments):
        key = SegmentKey(topic.incarnation, segment_id)
        position = port.stats(key).end_offset if initial_position == "latest" else None
        port.create_cursor(key, subscription=subscription, position=position)
