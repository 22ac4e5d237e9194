"""Settles a subscription: marks segments that it has drained, then gives every open segment its owner.

Drained is evaluated after the commits that may complete it, by the last acknowledgement, the layout's commit
and a sweep, never inside them: a last acknowledgement and a seal in flight at the same time do not see each
other, and the children would stay shut.
"""

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import SegmentStoreMissing, SubscriptionNotFound
from scalable.domain.layout import Layout
from scalable.domain.ownership import Ownership, rebalance
from scalable.domain.subscriptions import SubscriptionType, assignable, parents_owners
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.store import subscriptions as store
from scalable.store.clock import database_now, milliseconds
from scalable.store.subscriptions import Ownerships, SubscriptionView

OVERDUE_LIMIT = 100
UNDRAINED_LIMIT = 50
GENERATIONS_PER_SUBSCRIPTION = 2**20
"""A subscription made again under its name counts from elsewhere: acks of its former life never fit."""


def settle_topic(*, topic_id: int) -> None:
    """Settle every STREAM subscription of a topic, after its layout changed; a deleted topic is fine."""
    for subscription in store.of_topic(topic_id):
        if subscription.type is SubscriptionType.STREAM:
            settle_subscription(subscription_id=subscription.subscription_id)


def settle_subscription(*, subscription_id: int) -> bool:
    """Settle one subscription and tell whether anything changed; one that is gone is fine."""
    try:
        with transaction.atomic():
            return settle_locked(store.lock(subscription_id))
    except SubscriptionNotFound:
        return False


def settle_drained(*, subscription_id: int, incarnation: int, segment_id: int, position: int) -> bool:
    """After an acknowledgement up to `position` committed: settle, if that was a sealed segment's end."""
    known = store.find_segment(incarnation, segment_id)
    if known is None or known.segment.is_active:
        return False
    try:
        stats = segment_port().stats(SegmentKey(incarnation, segment_id))
    except SegmentStoreMissing:
        return False
    return position >= stats.end_offset and settle_subscription(subscription_id=subscription_id)


def force_releases() -> None:
    """Pass on the segments whose owner was asked to release them and did not in time."""
    for subscription_id in store.with_overdue_release(limit=OVERDUE_LIMIT):
        settle_subscription(subscription_id=subscription_id)


def sweep(*, above: int = 0) -> int:
    """Settle some of the subscriptions that wait for a sealed segment to be drained.

    Heals what was lost with a process between a commit and its evaluation. Returns the id to go on above,
    0 at the end.
    """
    undrained = store.with_undrained_end(above=above, limit=UNDRAINED_LIMIT)
    for subscription_id in undrained:
        settle_subscription(subscription_id=subscription_id)
    return undrained[-1] if len(undrained) == UNDRAINED_LIMIT else 0


def settle_locked(subscription: SubscriptionView) -> bool:
    """Settle a subscription whose lock is held and tell whether anything changed."""
    layout = store.read_layout(subscription.incarnation)
    known = _known(subscription, layout)
    drained = _with_newly_drained(subscription, layout, known.drained)
    open_ids = assignable(layout, drained)
    owners = {key: owned.owner for key, owned in known.owned.items() if owned.owner is not None}
    after = rebalance(
        known.owned,
        open_ids,
        store.consumers(subscription.subscription_id),
        preferred=parents_owners(layout, open_ids, owners),
        now_ms=milliseconds(database_now()),
        hand_over_ms=round(settings.SCALABLE_HANDOVER_SECONDS * 1000),
    )
    return write_changes(subscription, known, after, drained)


def _known(subscription: SubscriptionView, layout: Layout) -> Ownerships:
    """Read the owners of all segments; those without one begin at the subscription's own generations."""
    rows = store.ownerships(subscription.subscription_id)
    unowned = Ownership(generation=subscription.subscription_id * GENERATIONS_PER_SUBSCRIPTION)
    return Ownerships(dict.fromkeys(layout.segments, unowned) | dict(rows.owned), rows.drained)


def write_changes(
    subscription: SubscriptionView, known: Ownerships, after: dict[int, Ownership], drained: frozenset[int]
) -> bool:
    """Write the owners that changed, fence the former ones, announce it; the subscription is locked."""
    newly_drained = drained - known.drained
    changed = {key: owned for key, owned in after.items() if owned != known.owned.get(key, Ownership())}
    changed |= {key: after.get(key, Ownership()) for key in newly_drained}
    if not changed:
        return False
    for key, owned in changed.items():
        if owned.generation > known.owned.get(key, Ownership()).generation:
            _fence(subscription, key, owned.generation)
    store.write_ownerships(subscription.subscription_id, changed, drained)
    store.raise_generation(subscription.subscription_id)
    announce.publish(announce.AssignmentChanged(subscription.subscription_id, subscription.incarnation))
    return True


def _fence(subscription: SubscriptionView, segment_id: int, generation: int) -> None:
    key = SegmentKey(subscription.incarnation, segment_id)
    segment_port().own(key, subscription=subscription.name, generation=generation)


def _with_newly_drained(
    subscription: SubscriptionView, layout: Layout, drained: frozenset[int]
) -> frozenset[int]:
    """Add the sealed segments that are open and fully acknowledged, and then those that this opened."""
    while True:
        found = {
            segment_id
            for segment_id in assignable(layout, drained)
            if not layout.segments[segment_id].is_active and _is_acknowledged(subscription, segment_id)
        }
        if not found:
            return drained
        drained |= found


def _is_acknowledged(subscription: SubscriptionView, segment_id: int) -> bool:
    port, key = segment_port(), SegmentKey(subscription.incarnation, segment_id)
    try:
        cursor, stats = port.cursor(key, subscription=subscription.name), port.stats(key)
    except SegmentStoreMissing:
        return False
    return cursor is not None and stats.terminated and cursor.position >= stats.end_offset
