"""Who owns what in a subscription, as of one moment and without a lock, for those who are told of it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection

from scalable.domain.errors import SubscriptionNotFound
from scalable.domain.keyspace import HashRange
from scalable.domain.segment import SegmentState
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.models import ConsumerRegistration

# One statement, so that all of it is of one moment; a subscription of which nothing is owned has one row.
# The splits of a segment come with its first unit alone: with each they would be the square of the buckets.
_ASSIGNED = """
SELECT coalesce(lease.term, 0), lease.node_id, topic.id, topic.epoch,
       subscription.name, subscription.type, subscription.key_shared, subscription.assignment_generation,
       subscription.restored_generation, owned.*
  FROM scalable_subscription AS subscription
  JOIN scalable_topic AS topic ON topic.id = subscription.topic_id
  LEFT JOIN scalable_controllerlease AS lease ON lease.topic_id = topic.id
  LEFT JOIN LATERAL (
       SELECT unit.segment_id, unit.bucket, unit.owner, unit.next_owner, unit.generation,
              segment.hash_start, segment.hash_end, segment.state,
              CASE WHEN subscription.key_shared
                    AND lag(unit.segment_id) OVER (ORDER BY unit.segment_id, unit.bucket)
                        IS DISTINCT FROM unit.segment_id
                   THEN segment.entry_bucket_splits END
         FROM scalable_assignment AS unit
         JOIN scalable_segment AS segment
           ON segment.topic_id = subscription.topic_id AND segment.segment_id = unit.segment_id
        WHERE unit.subscription_id = subscription.id AND unit.owner IS NOT NULL
  ) AS owned (segment_id, bucket) ON true
 WHERE subscription.id = %s
 ORDER BY owned.segment_id, owned.bucket
"""


@dataclass(frozen=True, slots=True)
class AssignedUnit:
    """A segment, or an entry bucket of it, that somebody owns; with a `next_owner` it is handed over."""

    key: BucketKey
    owner: str
    next_owner: str | None
    generation: int
    hash_range: HashRange
    state: SegmentState


@dataclass(frozen=True, slots=True)
class Assigned:
    """A subscription and all that is owned in it, by segment and bucket, and who leads the topic.

    `splits` gives the entry buckets of the segments, where keys are shared.
    """

    term: int
    node_id: uuid.UUID | None
    incarnation: int
    epoch: int
    name: str
    type: SubscriptionType
    key_shared: bool
    generation: int
    restored_generation: int
    units: tuple[AssignedUnit, ...]
    splits: Mapping[int, tuple[int, ...]]


def read(subscription_id: int) -> Assigned:
    """Read what is owned, by one statement; raises SubscriptionNotFound."""
    with connection.cursor() as cursor:
        cursor.execute(_ASSIGNED, [subscription_id])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    if not rows:
        raise SubscriptionNotFound(subscription=f"#{subscription_id}")
    term, node_id, incarnation, epoch, name, kind, key_shared, generation, restored = rows[0][:9]
    return Assigned(
        term=term,
        node_id=node_id,
        incarnation=incarnation,
        epoch=epoch,
        name=name,
        type=SubscriptionType(kind),
        key_shared=key_shared,
        generation=generation,
        restored_generation=restored,
        units=tuple(_unit(row[9:-1]) for row in rows if row[9] is not None),
        splits={row[9]: tuple(row[-1]) for row in rows if row[-1] is not None},
    )


def registered(subscription_id: int) -> frozenset[str]:
    """Name the registered consumers, those in their grace period too."""
    rows = ConsumerRegistration.objects.filter(subscription_id=subscription_id)
    return frozenset(rows.values_list("name", flat=True))


def _unit(row: tuple[Any, ...]) -> AssignedUnit:
    segment_id, bucket, owner, next_owner, generation, start, end, state = row
    return AssignedUnit(
        key=BucketKey(segment_id, bucket),
        owner=owner,
        next_owner=next_owner,
        generation=generation,
        hash_range=HashRange(start, end),
        state=SegmentState(state),
    )
