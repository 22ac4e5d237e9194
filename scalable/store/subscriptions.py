"""Rows of subscriptions, their consumers, and who owns which segment.

Everything that decides about owners reads and writes under the subscription's lock.
"""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import Exists, F, OuterRef

from scalable.domain.errors import SubscriptionNotFound, SubscriptionTypeMismatch, TopicNotFound
from scalable.domain.layout import Layout
from scalable.domain.names import TopicName
from scalable.domain.ownership import Ownership
from scalable.domain.segment import Segment as SegmentValue
from scalable.domain.segment import SegmentState
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.models import Assignment, ConsumerRegistration, Segment, Subscription, Topic
from scalable.store import evaluations
from scalable.store.clock import ClockTimestamp, milliseconds, moment, optional_milliseconds
from scalable.store.segment_rows import read_segments

# By arrays: rows of the ORM, hundreds after a wide split, would cost more than all the rest of it.
_WRITE_OWNERSHIPS = """
INSERT INTO scalable_assignment (
    subscription_id, segment_id, bucket, owner, next_owner, generation, release_deadline, drained
)
SELECT * FROM unnest(
    %s::bigint[], %s::bigint[], %s::integer[], %s::text[], %s::text[], %s::bigint[], %s::timestamptz[],
    %s::boolean[]
)
ON CONFLICT (subscription_id, segment_id, bucket) DO UPDATE SET
    owner = excluded.owner, next_owner = excluded.next_owner, generation = excluded.generation,
    release_deadline = excluded.release_deadline, drained = excluded.drained
"""
_KEY_COLUMNS = ("subscription_id", "segment_id", "bucket", "drained")
_OWNER_COLUMNS = ("owner", "next_owner", "generation", "release_deadline")


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription; `generation` rises with any change of its owners."""

    subscription_id: int
    incarnation: int
    name: str
    type: SubscriptionType
    generation: int
    created_at_ms: int
    key_shared: bool = False
    holds_pruning: bool = True
    restored_generation: int = 0


@dataclass(frozen=True, slots=True)
class Ownerships:
    """The owners of a subscription's segments or entry buckets, and which segments it has drained."""

    owned: Mapping[BucketKey, Ownership]
    drained: frozenset[int]


class ConsumerView(NamedTuple):
    """A registered consumer, there or in its grace period."""

    name: str
    registered_at_ms: int


class AssignmentVersion(NamedTuple):
    """Who leads the topic, under which term, and what the assignments of a subscription are ordered by."""

    term: int
    node_id: uuid.UUID | None
    generation: int
    epoch: int


class SegmentInTopic(NamedTuple):
    """A segment and the epoch at which its topic is now."""

    segment: SegmentValue
    topic_epoch: int


# Topics, as far as subscriptions need them.


def incarnation_of(name: TopicName) -> int:
    """The incarnation of a topic; raises TopicNotFound."""
    rows = Topic.objects.filter(namespace__tenant=name.tenant, namespace__name=name.namespace, name=name.name)
    incarnation = rows.values_list("pk", flat=True).first()
    if incarnation is None:
        raise TopicNotFound(topic=str(name))
    return incarnation


def session_graces(incarnations: Collection[int]) -> list[tuple[int, float | None, float | None]]:
    """The grace periods in seconds that topics and their namespaces set, as (topic, own, namespace's)."""
    rows = Topic.objects.filter(pk__in=incarnations)
    return list(rows.values_list("pk", "session_grace_seconds", "namespace__session_grace_seconds"))


def read_layout(incarnation: int) -> Layout:
    """The layout of a topic, without a lock; raises TopicNotFound."""
    rows = read_segments(
        Segment.objects.filter(topic_id=incarnation), "topic__epoch", "topic__next_segment_id"
    )
    if not rows:
        raise TopicNotFound(topic=f"#{incarnation}")
    epoch, next_segment_id = rows[0][1]
    return Layout(epoch, next_segment_id, {segment.segment_id: segment for segment, _ in rows})


def find_segment(incarnation: int, segment_id: int) -> SegmentInTopic | None:
    """A segment with the epoch of its topic, or None."""
    rows = Segment.objects.filter(topic_id=incarnation, segment_id=segment_id)
    for segment, (topic_epoch,) in read_segments(rows, "topic__epoch"):
        return SegmentInTopic(segment, topic_epoch)
    return None


# Subscriptions.


def find(incarnation: int, name: str) -> SubscriptionView | None:
    """A subscription by name, or None."""
    row = Subscription.objects.filter(topic_id=incarnation, name=name).first()
    return None if row is None else _view(row)


def check_type(subscription: SubscriptionView, expected: SubscriptionType) -> None:
    """Raise SubscriptionTypeMismatch when the subscription has another type, for a type never changes."""
    if subscription.type is not expected:
        raise SubscriptionTypeMismatch(
            subscription=subscription.name,
            current_type=subscription.type.value,
            requested_type=expected.value,
        )


def lock(subscription_id: int) -> SubscriptionView:
    """Lock a subscription until the transaction ends and read it; raises SubscriptionNotFound."""
    row = Subscription.objects.select_for_update(no_key=True).filter(pk=subscription_id).first()
    if row is None:
        raise SubscriptionNotFound(subscription=f"#{subscription_id}")
    return _view(row)


def lock_many(subscription_ids: Collection[int]) -> list[SubscriptionView]:
    """Lock those of the subscriptions that exist, in the order of their ids, and read them."""
    rows = Subscription.objects.select_for_update(no_key=True).filter(pk__in=subscription_ids)
    return [_view(row) for row in rows.order_by("pk")]


def assigned_of_topic(incarnation: int) -> list[int]:
    """The subscriptions of a topic whose segments have owners, by ascending id."""
    rows = Subscription.objects.filter(topic_id=incarnation).exclude(type=SubscriptionType.QUEUE)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def of_topic(incarnation: int) -> list[SubscriptionView]:
    """The subscriptions of a topic by name."""
    return [_view(row) for row in Subscription.objects.filter(topic_id=incarnation).order_by("name")]


def insert(
    incarnation: int,
    name: str,
    kind: SubscriptionType,
    *,
    key_shared: bool = False,
    holds_pruning: bool = True,
) -> SubscriptionView:
    """Add a subscription; the caller holds the topic's lock and found none of this name."""
    row = Subscription.objects.create(
        topic_id=incarnation,
        name=name,
        type=kind.value,
        key_shared=key_shared,
        holds_pruning=holds_pruning,
        created_at=ClockTimestamp(),
    )
    row.refresh_from_db()
    return _view(row)


def delete(subscription_id: int) -> None:
    """Delete a subscription with its consumers and assignments; the caller holds the topic's lock.

    Its own lock comes first: whoever holds it may be about to add an assignment or a consumer.
    """
    rows = Subscription.objects.filter(pk=subscription_id)
    row = rows.select_for_update().first()
    rows.delete()
    if row is not None:
        evaluations.mark(row.topic_id)  # its consumers count no more


def raise_generations(subscription_ids: Collection[int]) -> None:
    """Note that owners changed; the caller holds the subscriptions' locks."""
    Subscription.objects.filter(pk__in=subscription_ids).update(
        assignment_generation=F("assignment_generation") + 1
    )


# Consumers.


def consumers(subscription_id: int) -> list[str]:
    """The registered consumers by name, those in their grace period too."""
    rows = ConsumerRegistration.objects.filter(subscription_id=subscription_id).order_by("name")
    return list(rows.values_list("name", flat=True))


def consumers_of(subscription_ids: Collection[int]) -> dict[int, list[str]]:
    """The registered consumers of subscriptions; those without any are left out."""
    found: dict[int, list[str]] = {}
    rows = ConsumerRegistration.objects.filter(subscription_id__in=subscription_ids)
    for subscription_id, name in rows.values_list("subscription_id", "name"):
        found.setdefault(subscription_id, []).append(name)
    return found


def consumer_views(subscription_id: int) -> list[ConsumerView]:
    """The registered consumers by name, with the time of their registration."""
    rows = ConsumerRegistration.objects.filter(subscription_id=subscription_id).order_by("name")
    found = rows.values_list("name", "created_at")
    return [ConsumerView(name, milliseconds(created_at)) for name, created_at in found]


def registrations(incarnation: int) -> list[tuple[int, str]]:
    """All registered consumers of a topic as (subscription, name)."""
    rows = ConsumerRegistration.objects.filter(subscription__topic_id=incarnation)
    return list(rows.order_by("subscription_id", "name").values_list("subscription_id", "name"))


def add_consumers(subscription_id: int, names: Collection[str]) -> bool:
    """Register consumers and tell whether any is new; the caller holds the subscription's lock."""
    rows = ConsumerRegistration.objects.filter(subscription_id=subscription_id, name__in=names)
    added = sorted(set(names) - set(rows.values_list("name", flat=True)))
    ConsumerRegistration.objects.bulk_create(
        ConsumerRegistration(subscription_id=subscription_id, name=name, created_at=ClockTimestamp())
        for name in added
    )
    return bool(added)


def remove_consumers(subscription_id: int, names: Collection[str]) -> bool:
    """Unregister consumers and tell whether any was there; the caller holds the subscription's lock."""
    rows = ConsumerRegistration.objects.filter(subscription_id=subscription_id, name__in=names)
    deleted, _ = rows.delete()
    return bool(deleted)


# Owners.


def ownerships(subscription_id: int) -> Ownerships:
    """Who owns what, and what is drained."""
    return ownerships_of([subscription_id])[subscription_id]


def ownerships_of(subscription_ids: Collection[int]) -> dict[int, Ownerships]:
    """Who owns what, and what is drained, by subscription."""
    owned: dict[int, dict[BucketKey, Ownership]] = {key: {} for key in subscription_ids}
    drained: dict[int, set[int]] = {key: set() for key in subscription_ids}
    rows = Assignment.objects.filter(subscription_id__in=subscription_ids)
    for key, segment_id, bucket, is_drained, *columns in rows.values_list(*_KEY_COLUMNS, *_OWNER_COLUMNS):
        owned[key][BucketKey(segment_id, bucket)] = _ownership(*columns)
        if is_drained:
            drained[key].add(segment_id)
    return {key: Ownerships(owned[key], frozenset(drained[key])) for key in owned}


def ownership(subscription_id: int, key: BucketKey) -> Ownership | None:
    """Who owns a segment or entry bucket, or None when it never had an owner."""
    rows = Assignment.objects.filter(
        subscription_id=subscription_id, segment_id=key.segment_id, bucket=key.bucket
    )
    row = rows.values_list(*_OWNER_COLUMNS).first()
    return None if row is None else _ownership(*row)


def write_ownerships(
    changes: Mapping[int, tuple[Mapping[BucketKey, Ownership], Collection[int]]],
) -> None:
    """Set owners of segments or buckets, by subscription, beside which segments are drained there.

    The caller holds the subscriptions' locks.
    """
    rows = [
        _row(subscription_id, key, owned[key], key.segment_id in drained)
        for subscription_id, (owned, drained) in sorted(changes.items())
        for key in sorted(owned)
    ]
    with connection.cursor() as cursor:
        cursor.execute(_WRITE_OWNERSHIPS, [list(column) for column in zip(*rows, strict=True)])


def with_overdue_release(*, limit: int) -> list[int]:
    """Subscriptions in which an owner was asked to release a segment and did not in time."""
    rows = Assignment.objects.filter(release_deadline__lte=ClockTimestamp())
    return list(rows.order_by("subscription_id").values_list("subscription_id", flat=True).distinct()[:limit])


def with_undrained_end(*, above: int, limit: int) -> list[int]:
    """STREAM subscriptions with consumers that have not drained some sealed segment, by ascending id."""
    drained = Assignment.objects.filter(
        subscription_id=OuterRef(OuterRef("pk")), segment_id=OuterRef("segment_id"), drained=True
    )
    sealed = Segment.objects.filter(topic_id=OuterRef("topic_id"), state=SegmentState.SEALED)
    rows = Subscription.objects.filter(
        Exists(sealed.exclude(Exists(drained))),
        Exists(ConsumerRegistration.objects.filter(subscription_id=OuterRef("pk"))),
        type=SubscriptionType.STREAM,
        pk__gt=above,
    )
    return list(rows.order_by("pk").values_list("pk", flat=True)[:limit])


def assignment_version(subscription_id: int) -> AssignmentVersion:
    """Leader, generation and epoch of a subscription, in one look; raises SubscriptionNotFound."""
    rows = Subscription.objects.filter(pk=subscription_id).values_list(
        "topic__lease__term", "topic__lease__node_id", "assignment_generation", "topic__epoch"
    )
    row = rows.first()
    if row is None:
        raise SubscriptionNotFound(subscription=f"#{subscription_id}")
    term, node_id, generation, epoch = row
    return AssignmentVersion(term or 0, node_id, generation, epoch)


# Rows and values.


def _view(row: Subscription) -> SubscriptionView:
    return SubscriptionView(
        subscription_id=row.pk,
        incarnation=row.topic_id,
        name=row.name,
        type=SubscriptionType(row.type),
        generation=row.assignment_generation,
        created_at_ms=milliseconds(row.created_at),
        key_shared=row.key_shared,
        holds_pruning=row.holds_pruning,
        restored_generation=row.restored_generation,
    )


def _ownership(
    owner: str | None, next_owner: str | None, generation: int, deadline: datetime | None
) -> Ownership:
    return Ownership(owner, next_owner, generation, optional_milliseconds(deadline))


def _row(subscription_id: int, key: BucketKey, owned: Ownership, drained: bool) -> tuple[object, ...]:
    deadline = None if owned.release_deadline_ms is None else moment(owned.release_deadline_ms)
    owners = owned.owner, owned.next_owner, owned.generation, deadline
    return (subscription_id, key.segment_id, key.bucket, *owners, drained)
