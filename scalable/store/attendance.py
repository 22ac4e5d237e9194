"""The consumers of all subscriptions of a topic, read at once for statistics."""

from collections.abc import Mapping
from typing import NamedTuple

from django.db.models import Q

from scalable.domain.subscriptions import BucketKey
from scalable.models import Assignment, ConsumerRegistration
from scalable.store.clock import milliseconds


class Attendant(NamedTuple):
    """A registered consumer, the segments or entry buckets that it owns, and whether it stands by."""

    name: str
    registered_at_ms: int
    units: tuple[BucketKey, ...]
    standby: bool

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Give the segments of which it owns something."""
        return tuple(sorted({unit.segment_id for unit in self.units}))


def attendants(incarnation: int) -> Mapping[int, tuple[Attendant, ...]]:
    """The consumers of each subscription by name, by subscription id; a constant number of statements."""
    owned: dict[tuple[int, str | None], set[BucketKey]] = {}
    awaited: set[tuple[int, str | None]] = set()
    rows = Assignment.objects.filter(
        Q(owner__isnull=False) | Q(next_owner__isnull=False), subscription__topic_id=incarnation
    )
    for key, segment_id, bucket, owner, next_owner in rows.values_list(
        "subscription_id", "segment_id", "bucket", "owner", "next_owner"
    ):
        owned.setdefault((key, owner), set()).add(BucketKey(segment_id, bucket))
        awaited.add((key, next_owner))
    found: dict[int, list[Attendant]] = {}
    registered = ConsumerRegistration.objects.filter(subscription__topic_id=incarnation).order_by("name")
    for row in registered:
        who = (row.subscription_id, row.name)
        attendant = Attendant(
            row.name,
            milliseconds(row.created_at),
            tuple(sorted(owned.get(who, ()))),
            standby=who not in owned and who not in awaited,
        )
        found.setdefault(row.subscription_id, []).append(attendant)
    return {key: tuple(each) for key, each in found.items()}
