"""Who is in a subscription and who owns what, for statistics; who is connected the leader knows."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings
from django.db import transaction

from scalable.domain.cursors import bucket_ranges
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.layout import Layout
from scalable.domain.subscriptions import BucketKey, SubscriptionType, assignable, waits_for
from scalable.store import leases
from scalable.store import subscriptions as store
from scalable.store.subscriptions import ConsumerView, SubscriptionView


@dataclass(frozen=True, slots=True)
class Unit:
    """A segment or entry bucket that somebody owns; with a `next_owner` it is being handed over."""

    key: BucketKey
    bucket_range: HashRange
    owner: str
    next_owner: str | None
    generation: int
    release_deadline_ms: int | None


@dataclass(frozen=True)
class Membership:
    """A subscription's consumers and what they own, as of `generation` and `epoch`.

    `leader_url` is None while nobody leads the topic. `waits` names for each segment that is shut the
    ancestors that are not drained; to a queue every segment is open.
    """

    term: int
    leader_url: str | None
    generation: int
    epoch: int
    consumers: tuple[ConsumerView, ...]
    units: tuple[Unit, ...]
    waits: Mapping[int, tuple[int, ...]]

    def owned_by(self, consumer: str) -> Sequence[Unit]:
        """Give what a consumer owns."""
        return self._by_owner.get(consumer, ())

    def is_standby(self, consumer: str) -> bool:
        """Tell whether a consumer owns nothing and nothing is on its way to it."""
        return consumer not in self._by_owner and consumer not in self._next_owners

    @cached_property
    def _by_owner(self) -> Mapping[str, list[Unit]]:
        found: dict[str, list[Unit]] = {}
        for unit in self.units:
            found.setdefault(unit.owner, []).append(unit)
        return found

    @cached_property
    def _next_owners(self) -> frozenset[str | None]:
        return frozenset(unit.next_owner for unit in self.units)


def membership(*, subscription_id: int) -> Membership:
    """Who is in a subscription and owns what, as of one moment; raises SubscriptionNotFound."""
    with transaction.atomic():
        subscription = store.lock(subscription_id)
        layout = store.read_layout(subscription.incarnation)
        lease = leases.read(subscription.incarnation, timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS)
        known = store.ownerships(subscription_id)
        return Membership(
            term=lease.term,
            leader_url=lease.url if lease.alive else None,
            generation=subscription.generation,
            epoch=layout.epoch,
            consumers=tuple(store.consumer_views(subscription_id)),
            units=_units(subscription, layout, known),
            waits={} if subscription.type is SubscriptionType.QUEUE else _waits(layout, known.drained),
        )


def _waits(layout: Layout, drained: AbstractSet[int]) -> dict[int, tuple[int, ...]]:
    shut = layout.segments.keys() - drained - set(assignable(layout, drained))
    return {key: waits_for(layout, drained, key) for key in sorted(shut)}


def _units(subscription: SubscriptionView, layout: Layout, known: store.Ownerships) -> tuple[Unit, ...]:
    ranges = _ranges_by_segment(layout) if subscription.key_shared else {}
    return tuple(
        Unit(
            key=key,
            bucket_range=ranges[key.segment_id][key.bucket] if ranges else FULL_RANGE,
            owner=owned.owner,
            next_owner=owned.next_owner,
            generation=owned.generation,
            release_deadline_ms=owned.release_deadline_ms,
        )
        for key, owned in sorted(known.owned.items())
        if owned.owner is not None and key.segment_id in layout.segments
    )


def _ranges_by_segment(layout: Layout) -> dict[int, tuple[HashRange, ...]]:
    return {key: bucket_ranges(segment.entry_bucket_splits) for key, segment in layout.segments.items()}
