"""Subscriptions: made with a cursor in every segment or not at all, listed, deleted, read."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from django.db import transaction

from scalable import announce
from scalable.domain.errors import (
    GenerationSuperseded,
    InvalidParameter,
    SegmentNotOwned,
    SubscriptionNotFound,
    TopicDeleted,
)
from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName, validate_part
from scalable.domain.ownership import Ownership
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import auditing
from scalable.services.cursors import create_cursors, delete_cursors
from scalable.services.positions import Start, extents_of, positions_of_start, require_reached
from scalable.services.settling import find_bucket, find_cursor_of
from scalable.store import checkpoints, topics
from scalable.store import subscriptions as store
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

logger = logging.getLogger(__name__)

InitialPosition = Literal["earliest", "latest"]
Owned = Mapping[BucketKey, Ownership]
"""Owners by segment and entry bucket."""


@dataclass(frozen=True, slots=True)
class ReadingRight:
    """A consumer's right to read a segment, and from where: the first offset that is not acknowledged.

    Where keys are shared it is the right to one entry bucket, with what is acknowledged above the position.
    """

    segment_id: int
    generation: int
    position: int
    bucket_range: HashRange | None = None
    acknowledged: tuple[tuple[int, int], ...] = ()


def create_subscription(
    *,
    name: TopicName,
    subscription: str,
    kind: SubscriptionType,
    start: Start = "earliest",
    key_shared: bool = False,
    holds_pruning: bool = True,
    incarnation: int | None = None,
) -> SubscriptionView:
    """Make a subscription with a cursor on every segment, or give the one that exists, which stays as it is.

    Raises TopicNotFound, InvalidName, InvalidParameter (only STREAM shares keys), SubscriptionTypeMismatch;
    TopicDeleted when the topic is not the `incarnation` that is meant; for positions that do not fit
    SegmentNotFound, PositionInvalid.
    """
    validate_part(subscription, "subscription")
    if key_shared and kind is not SubscriptionType.STREAM:
        raise InvalidParameter(
            parameter="keyShared", value=True, problem=f"a {kind.value} subscription shares no keys"
        )
    found = store.find(_living(name, incarnation), subscription)
    if found is None:
        with transaction.atomic():
            topic = topics.lock(name)
            _check_life(topic.incarnation, name, incarnation)
            found = _create(topic, subscription, kind, start, key_shared, holds_pruning)
    store.check_type(found, kind)
    return found


def _living(name: TopicName, incarnation: int | None) -> int:
    """Give the incarnation of a topic; raises TopicDeleted when another one is meant."""
    found = store.incarnation_of(name)
    _check_life(found, name, incarnation)
    return found


def _check_life(found: int, name: TopicName, incarnation: int | None) -> None:
    if incarnation not in {None, found}:
        raise TopicDeleted(topic=str(name))


def list_subscriptions(*, name: TopicName) -> list[SubscriptionView]:
    """The subscriptions of a topic by name; raises TopicNotFound."""
    return store.of_topic(store.incarnation_of(name))


def find_subscription(
    *,
    name: TopicName,
    subscription: str,
    kind: SubscriptionType,
    incarnation: int | None = None,
    subscription_id: int | None = None,
) -> SubscriptionView:
    """A subscription of this type.

    Raises TopicNotFound, InvalidName, SubscriptionNotFound (also for one of this name that is not the
    `subscription_id` that is meant), SubscriptionTypeMismatch; TopicDeleted when the topic is not the
    `incarnation` that is meant.
    """
    found = _find(name, subscription, incarnation, subscription_id)
    store.check_type(found, kind)
    return found


def find_assigned(
    *,
    name: TopicName,
    subscription: str,
    incarnation: int | None = None,
    subscription_id: int | None = None,
) -> SubscriptionView:
    """A subscription whose segments are assigned: STREAM or CHECKPOINT; raises as `find_subscription`."""
    found = _find(name, subscription, incarnation, subscription_id)
    if found.type is not SubscriptionType.CHECKPOINT:
        store.check_type(found, SubscriptionType.STREAM)
    return found


def _find(
    name: TopicName, subscription: str, incarnation: int | None, subscription_id: int | None
) -> SubscriptionView:
    validate_part(subscription, "subscription")
    found = store.find(_living(name, incarnation), subscription)
    if found is None or subscription_id not in {None, found.subscription_id}:
        _living(name, incarnation)  # it may have gone with its topic, just now
        raise SubscriptionNotFound(subscription=subscription)
    return found


def delete_subscription(*, name: TopicName, subscription: str) -> None:
    """Delete a subscription with its cursors, which ends its consumers.

    Raises TopicNotFound, InvalidName, SubscriptionNotFound. Where cursors lie outside the metadata database,
    they go after the commit: until then the subscription is whole.
    """
    validate_part(subscription, "subscription")
    transactional = segment_port().transactional
    with transaction.atomic():
        topic = topics.lock(name)
        found = store.find(topic.incarnation, subscription)
        if found is None:
            raise SubscriptionNotFound(subscription=subscription)
        store.delete(found.subscription_id)
        auditing.record(
            "subscription.delete",
            f"{name}/subscriptions/{subscription}",
            before={"type": found.type.value, "keyShared": found.key_shared},
        )
        if transactional:
            delete_cursors(found, topic.layout)
        announce.publish(announce.AssignmentChanged(found.subscription_id, topic.incarnation))
    if not transactional:
        _delete_orphans(found)


def _delete_orphans(deleted: SubscriptionView) -> None:
    """Remove the cursors of a deleted subscription, unless its name was taken again meanwhile."""
    try:
        with transaction.atomic():
            topic = topics.lock_incarnation(deleted.incarnation)
            if store.find(deleted.incarnation, deleted.name) is None:
                delete_cursors(deleted, topic.layout)
    except Exception:
        # The subscription is gone as asked; what is left is removed before its name is used again.
        logger.exception("Cursors of the deleted subscription %s were left behind", deleted.name)


def reading_right(
    *,
    subscription: SubscriptionView,
    consumer: str,
    segment_id: int,
    generation: int,
    bucket: int = 0,
    begin_at: int | None = None,
) -> ReadingRight:
    """Check that the consumer owns the segment or bucket under this generation, and tell where it goes on.

    It may want to `begin_at` another place. Raises SegmentNotOwned, GenerationSuperseded, PositionInvalid
    (that place lies behind the end), SegmentStoreMissing.
    """
    owned = store.ownership(subscription.subscription_id, BucketKey(segment_id, bucket))
    if owned is None or generation > owned.generation:
        raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
    if generation < owned.generation:
        raise GenerationSuperseded(
            segment_id=segment_id, generation=generation, current_generation=owned.generation
        )
    key = SegmentKey(subscription.incarnation, segment_id)
    cursor = segment_port().cursor(key, subscription=find_cursor_of(subscription, segment_id, bucket))
    if owned.owner != consumer or cursor is None:
        raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
    if begin_at is not None:
        require_reached(key, begin_at)
    bucket_range = find_bucket(subscription, segment_id, bucket)
    position = cursor.position
    if subscription.type is SubscriptionType.CHECKPOINT:  # the last owner may have stopped further on
        position = max(position, checkpoints.positions(subscription.subscription_id).get(segment_id, 0))
    return ReadingRight(segment_id, generation, position, bucket_range, cursor.acknowledged)


def owned(*, subscription: SubscriptionView) -> Owned:
    """Give the owners of a subscription's segments or buckets.

    Raises SubscriptionNotFound for one that was deleted; the end of its topic is told otherwise.
    """
    found = store.ownerships(subscription.subscription_id).owned
    if not found:
        _require_existing(subscription)
    return found


def lost_segments(
    owned: Owned, consumer: str, generations: Mapping[BucketKey, int]
) -> dict[BucketKey, GenerationSuperseded | SegmentNotOwned]:
    """Of the segments or buckets that a consumer reads, those no longer its own, each with the reason."""
    lost: dict[BucketKey, GenerationSuperseded | SegmentNotOwned] = {}
    for key, generation in generations.items():
        current, segment_id = owned.get(key), key.segment_id
        if current is None or (current.generation == generation and current.owner not in (consumer, None)):
            lost[key] = SegmentNotOwned(consumer=consumer, segment_id=segment_id)
        elif current.generation != generation:
            lost[key] = GenerationSuperseded(
                segment_id=segment_id, generation=generation, current_generation=current.generation
            )
    return lost


def _require_existing(subscription: SubscriptionView) -> None:
    found = store.find(subscription.incarnation, subscription.name)
    deleted = found is None or found.subscription_id != subscription.subscription_id
    if deleted and topics.find_name(subscription.incarnation) is not None:
        raise SubscriptionNotFound(subscription=subscription.name)


def _create(
    topic: TopicView,
    subscription: str,
    kind: SubscriptionType,
    start: Start,
    key_shared: bool,
    holds_pruning: bool,
) -> SubscriptionView:
    """Make it in the topic that is locked, unless another one did."""
    found = store.find(topic.incarnation, subscription)
    if found is None:
        found = store.insert(
            topic.incarnation, subscription, kind, key_shared=key_shared, holds_pruning=holds_pruning
        )
        create_cursors(found, topic.layout, _positions(topic, start))
        auditing.record(
            "subscription.create",
            f"{topic.name}/subscriptions/{subscription}",
            after={"type": kind.value, "keyShared": key_shared, "holdsPruning": holds_pruning},
        )
    return found


def _positions(topic: TopicView, start: Start) -> dict[int, int]:
    return {} if start == "earliest" else positions_of_start(topic, start, extents_of(topic))
