"""Settles a subscription: marks segments that it has drained, then gives every open segment its owner.

Drained is evaluated after the commits that may complete it, by the last acknowledgement, the layout's commit
and a sweep, never inside them: a last acknowledgement and a seal in flight at the same time do not see each
other, and the children would stay shut.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.cursors import bucket_ranges, cursor_name, cursor_names
from scalable.domain.errors import SegmentNotOwned, SegmentStoreMissing, SubscriptionNotFound
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout
from scalable.domain.ownership import Ownership, rebalance
from scalable.domain.segment import Segment
from scalable.domain.subscriptions import (
    BucketKey,
    SubscriptionType,
    assignable,
    parents_owners,
    units_of,
)
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
    """Settle every subscription of a topic that is assigned, after its layout changed; no topic is fine."""
    for subscription in store.of_topic(topic_id):
        if subscription.type is not SubscriptionType.QUEUE:
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


def settle_locked(subscription: SubscriptionView, *, ended: Collection[int] = ()) -> bool:
    """Settle a subscription whose lock is held and tell whether anything changed.

    `ended` names sealed segments that a CHECKPOINT group has read to their end, for it acknowledges nothing.
    """
    layout = store.read_layout(subscription.incarnation)
    known = _known(subscription, layout)
    return _settle(subscription, layout, known, known.owned, known.drained.union(ended))


def sought(
    subscription: SubscriptionView, *, segment_ids: Collection[int], ended: Collection[int] = ()
) -> None:
    """Follow the cursors of these segments, which the caller moved in its present transaction.

    The caller holds the topic's and the subscription's lock. Owners stay and go on under a new generation:
    acknowledgements of what was delivered before are refused. Segments that are no longer drained open again,
    and what came after them is withdrawn. `ended`: of these segments, those whose end a CHECKPOINT group's
    checkpoint has reached; for other subscriptions the cursors tell.
    """
    layout = store.read_layout(subscription.incarnation)
    known = _known(subscription, layout)
    moved = set(segment_ids)
    owned = {key: owned.sought() if key.segment_id in moved else owned for key, owned in known.owned.items()}
    _settle(subscription, layout, known, owned, (known.drained - moved).union(ended))


def _settle(
    subscription: SubscriptionView,
    layout: Layout,
    known: Ownerships,
    owned: Mapping[BucketKey, Ownership],
    drained: frozenset[int],
) -> bool:
    drained = _with_newly_drained(subscription, layout, drained)
    keys = units_of(layout, assignable(layout, drained), key_shared=subscription.key_shared)
    owners = {key: one.owner for key, one in known.owned.items() if one.owner is not None}
    after = rebalance(
        owned,
        keys,
        store.consumers(subscription.subscription_id),
        shut={key for key in owned if key.segment_id not in drained} - set(keys),
        preferred=parents_owners(layout, keys, owners, key_shared=subscription.key_shared),
        now_ms=milliseconds(database_now()),
        hand_over_ms=round(settings.SCALABLE_HANDOVER_SECONDS * 1000),
    )
    return write_changes(subscription, layout, known, after, drained)


def _known(subscription: SubscriptionView, layout: Layout) -> Ownerships:
    """Read the owners of all that is kept; what has none begins at the subscription's own generations."""
    rows = store.ownerships(subscription.subscription_id)
    unowned = Ownership(generation=subscription.subscription_id * GENERATIONS_PER_SUBSCRIPTION)
    keys = units_of(layout, layout.segments, key_shared=subscription.key_shared)
    owned = {key: rows.owned.get(key, unowned) for key in keys}
    return Ownerships(owned, rows.drained & layout.segments.keys())


def write_changes(
    subscription: SubscriptionView,
    layout: Layout,
    known: Ownerships,
    after: Mapping[BucketKey, Ownership],
    drained: frozenset[int],
) -> bool:
    """Write the owners that changed, fence the former ones, announce it; the subscription is locked."""
    marked = drained ^ known.drained
    changed = {
        key: owned for key, owned in after.items() if owned != known.owned[key] or key.segment_id in marked
    }
    if not changed:
        return False
    raised = [key for key in sorted(changed) if changed[key].generation > known.owned[key].generation]
    _fence(subscription, layout, {key: changed[key].generation for key in raised})
    store.write_ownerships(subscription.subscription_id, changed, drained)
    store.raise_generation(subscription.subscription_id)
    announce.publish(announce.AssignmentChanged(subscription.subscription_id, subscription.incarnation))
    return True


def cursor_of(subscription: SubscriptionView, segment: Segment, bucket: int) -> str:
    """Name the cursor of a segment, or of one of its entry buckets where keys are shared."""
    if not subscription.key_shared:
        return subscription.name
    return cursor_name(subscription.name, bucket_ranges(segment.entry_bucket_splits)[bucket])


def find_cursor_of(subscription: SubscriptionView, segment_id: int, bucket: int) -> str:
    """Name the cursor of a segment or bucket by its numbers; raises SegmentNotOwned when there is none."""
    return cursor_name(subscription.name, find_bucket(subscription, segment_id, bucket))


def find_bucket(subscription: SubscriptionView, segment_id: int, bucket: int) -> HashRange | None:
    """Give the range of an entry bucket where keys are shared, else None; raises SegmentNotOwned."""
    if not subscription.key_shared:
        return None
    ranges = _bucket_ranges(subscription.incarnation, segment_id)
    if bucket >= len(ranges):
        raise SegmentNotOwned(consumer="", segment_id=segment_id)
    return ranges[bucket]


@lru_cache(maxsize=1_024)
def _bucket_ranges(incarnation: int, segment_id: int) -> tuple[HashRange, ...]:
    """Give the entry buckets of a segment, which never change; every acknowledgement asks."""
    found = store.find_segment(incarnation, segment_id)
    if found is None:
        raise SegmentNotOwned(consumer="", segment_id=segment_id)
    return bucket_ranges(found.segment.entry_bucket_splits)


def _fence(subscription: SubscriptionView, layout: Layout, generations: Mapping[BucketKey, int]) -> None:
    """Refuse acknowledgements of former owners; a cursor that is gone goes with its segment or topic."""
    cursors = [
        (key.segment_id, cursor_of(subscription, layout.get(key.segment_id), key.bucket), generation)
        for key, generation in generations.items()
    ]
    if cursors:
        segment_port().own_all(incarnation=subscription.incarnation, generations=cursors)


def _with_newly_drained(
    subscription: SubscriptionView, layout: Layout, drained: frozenset[int]
) -> frozenset[int]:
    """Add the sealed segments that are open and fully acknowledged, and then those that this opened.

    A CHECKPOINT group's cursors are a floor for pruning and tell nothing of what it has read.
    """
    acknowledged: frozenset[int] | None = None
    while subscription.type is SubscriptionType.STREAM:
        sealed = {key for key in assignable(layout, drained) if not layout.segments[key].is_active}
        if sealed and acknowledged is None:  # most often nothing is sealed, and nothing has to be read
            acknowledged = _acknowledged(subscription, layout)
        if not sealed or not acknowledged or not sealed & acknowledged:
            break
        drained |= sealed & acknowledged
    return drained


def _acknowledged(subscription: SubscriptionView, layout: Layout) -> frozenset[int]:
    """Give the sealed segments all of whose cursors stand at their end; one statement of the data plane."""
    port = segment_port()
    rows = port.backlogs(incarnation=subscription.incarnation, subscription=subscription.name)
    finished = {
        (each.segment_id, each.cursor)
        for each in rows
        if each.terminated and each.position >= each.end_offset
    }
    return frozenset(
        key
        for key, segment in layout.segments.items()
        if finished.issuperset(
            (key, name)
            for name in cursor_names(subscription.name, subscription.key_shared, segment.entry_bucket_splits)
        )
    )
