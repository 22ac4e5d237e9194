"""Settles a subscription: marks segments that it has drained, then gives every open segment its owner.

Drained is evaluated after the commits that may complete it, by the last acknowledgement, the layout's commit
and a sweep, never inside them: a last acknowledgement and a seal in flight at the same time do not see each
other, and the children would stay shut.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.cursors import bucket_ranges, cursor_name, cursor_names
from scalable.domain.errors import SegmentNotOwned, SegmentStoreMissing
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
from scalable.store import moves
from scalable.store import subscriptions as store
from scalable.store.clock import database_now, milliseconds
from scalable.store.subscriptions import Ownerships, SubscriptionView

SETTLED_TOGETHER = 200
"""So many subscriptions of a topic are settled in one transaction, which makes their members wait."""
OVERDUE_LIMIT = 100
UNDRAINED_LIMIT = 50
PLACES_MAX = 4_096
_HAD_MORE: dict[tuple[int, int], str] = {}
"""By subscription and segment an entry bucket that was not at its end; a hint, which any of them may be."""
GENERATIONS_PER_SUBSCRIPTION = 2**20
"""A subscription made again under its name counts from elsewhere: acks of its former life never fit."""


def settle_topic(*, topic_id: int) -> None:
    """Settle every subscription of a topic that is assigned, after its layout changed; no topic is fine."""
    keys = store.assigned_of_topic(topic_id)
    for start in range(0, len(keys), SETTLED_TOGETHER):
        with transaction.atomic():
            _settle_all(store.lock_many(keys[start : start + SETTLED_TOGETHER]))


def settle_subscription(*, subscription_id: int) -> bool:
    """Settle one subscription and tell whether anything changed; one that is gone is fine."""
    with transaction.atomic():
        return _settle_all(store.lock_many([subscription_id]))


def settle_drained(*, subscription: SubscriptionView, segment_id: int, position: int) -> bool:
    """After an acknowledgement up to `position` committed: settle, if that drained a sealed segment."""
    known = store.find_segment(subscription.incarnation, segment_id)
    if known is None or known.segment.is_active:
        return False
    try:
        end_offset = segment_port().stats(SegmentKey(subscription.incarnation, segment_id)).end_offset
        if position < end_offset or _has_more(subscription, segment_id, end_offset):
            return False
    except SegmentStoreMissing:  # somebody else settled, and it was pruned
        return False
    return settle_subscription(subscription_id=subscription.subscription_id)


def _has_more(subscription: SubscriptionView, segment_id: int, end_offset: int) -> bool:
    """Tell whether some entry bucket of a segment is not read to its end.

    To settle costs as much as all buckets together, and each of them comes to its end. So the one that had
    more is asked first; in whatever order they end, that is seldom one that ended before the others.
    """
    if not subscription.key_shared:
        return False
    port, key = segment_port(), SegmentKey(subscription.incarnation, segment_id)
    place = (subscription.subscription_id, segment_id)
    known = _HAD_MORE.get(place)
    state = port.cursor(key, subscription=known) if known else None
    if state is not None and state.position < end_offset:
        return True
    own = f"{subscription.name}/"
    last = max(
        (
            each
            for each in port.cursors(key)
            if each.subscription.startswith(own) and each.position < end_offset
        ),
        key=lambda each: each.subscription,
        default=None,
    )
    if last is None:
        _HAD_MORE.pop(place, None)
        return False
    if len(_HAD_MORE) >= PLACES_MAX:
        _HAD_MORE.clear()
    _HAD_MORE[place] = last.subscription
    return True


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
    scene = Scene([subscription])
    known = scene.known(subscription)
    return write_all([_settled(scene, subscription, known, known.owned, known.drained.union(ended))])


def sought(
    subscription: SubscriptionView,
    *,
    segment_ids: Collection[int],
    ended: Collection[int] = (),
    fences: Mapping[BucketKey, int] = MappingProxyType({}),
) -> None:
    """Follow the cursors of these segments, which the caller moved in its present transaction.

    The caller holds the topic's and the subscription's lock. Owners stay and go on under a new generation:
    acknowledgements of what was delivered before are refused. Segments that are no longer drained open again,
    and what came after them is withdrawn. `ended`: of these segments, those whose end a CHECKPOINT group's
    checkpoint has reached; for other subscriptions the cursors tell. `fences`: generations of which the data
    plane alone may know; owners get none below them.
    """
    scene = Scene([subscription])
    known = scene.known(subscription)
    moved = set(segment_ids)
    owned = {
        key: one.sought(fence=fences.get(key, 0)) if key.segment_id in moved else one
        for key, one in known.owned.items()
    }
    write_all([_settled(scene, subscription, known, owned, (known.drained - moved).union(ended))])


def unowned(subscription: SubscriptionView) -> Ownership:
    """Give the ownership of what never had an owner: it begins at the subscription's own generations."""
    return Ownership(generation=subscription.subscription_id * GENERATIONS_PER_SUBSCRIPTION)


class Scene:
    """What settling looks at: of subscriptions of one topic, which are locked, all owners and consumers.

    All of them are read together, and the cursors only when that is called for.
    """

    def __init__(self, subscriptions: Sequence[SubscriptionView]) -> None:
        keys = [subscription.subscription_id for subscription in subscriptions]
        self.incarnation = subscriptions[0].incarnation
        self.layout = store.read_layout(self.incarnation)
        self.consumers = store.consumers_of(keys)
        self.now_ms = milliseconds(database_now())
        self._only = subscriptions[0].name if len(keys) == 1 else None
        self._rows = store.ownerships_of(keys)

    def known(self, subscription: SubscriptionView) -> Ownerships:
        """Give the owners of all that is kept; what has none begins at the subscription's own generations."""
        rows = self._rows[subscription.subscription_id]
        unheld = unowned(subscription)
        keys = units_of(self.layout, self.layout.segments, key_shared=subscription.key_shared)
        owned = {key: rows.owned.get(key, unheld) for key in keys}
        # With `&` it would be a set that `|=` changes in place, as if it were known already.
        return Ownerships(owned, rows.drained.intersection(self.layout.segments))

    def is_moving(self, subscription: SubscriptionView) -> bool:
        """Tell whether a move of its cursors may have come to its end in the middle."""
        of_cursors = subscription.type is SubscriptionType.STREAM and not segment_port().transactional
        return of_cursors and moves.is_noted(subscription.subscription_id)

    def acknowledged(self, subscription: SubscriptionView) -> frozenset[int]:
        """Give the sealed segments all of whose cursors stand at their end."""
        return frozenset(
            key
            for key, segment in self.layout.segments.items()
            if not segment.is_active
            and self._finished.issuperset(
                (key, name)
                for name in cursor_names(
                    subscription.name, subscription.key_shared, segment.entry_bucket_splits
                )
            )
        )

    @cached_property
    def _finished(self) -> frozenset[tuple[int, str]]:
        """The cursors that stand at the end of a sealed store; one statement of the data plane."""
        rows = segment_port().backlogs(incarnation=self.incarnation, subscription=self._only)
        return frozenset(
            (each.segment_id, each.cursor)
            for each in rows
            if each.terminated and each.position >= each.end_offset
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a locked subscription's owners and drained segments are to be, beside what is `known` of them."""

    subscription: SubscriptionView
    layout: Layout
    known: Ownerships
    after: Mapping[BucketKey, Ownership]
    drained: frozenset[int]

    @property
    def changed(self) -> dict[BucketKey, Ownership]:
        """Give what has to be written."""
        marked, known = self.drained ^ self.known.drained, self.known.owned
        return {
            key: owned for key, owned in self.after.items() if owned != known[key] or key.segment_id in marked
        }

    def fences(self, changed: Mapping[BucketKey, Ownership]) -> list[tuple[int, str, int]]:
        """Give (segment, cursor, generation) of what former owners may acknowledge no more."""
        known = self.known.owned
        raised = sorted(key for key in changed if changed[key].generation > known[key].generation)
        cursors = {
            segment_id: cursors_of(self.subscription, self.layout.get(segment_id))
            for segment_id in {key.segment_id for key in raised}
        }
        return [
            (key.segment_id, cursors[key.segment_id][key.bucket], changed[key].generation) for key in raised
        ]


def _settle_all(subscriptions: Sequence[SubscriptionView]) -> bool:
    if not subscriptions:
        return False
    scene = Scene(subscriptions)
    settled = []
    for subscription in subscriptions:
        known = scene.known(subscription)
        settled.append(_settled(scene, subscription, known, known.owned, known.drained))
    return write_all(settled)


def _settled(
    scene: Scene,
    subscription: SubscriptionView,
    known: Ownerships,
    owned: Mapping[BucketKey, Ownership],
    drained: frozenset[int],
) -> Outcome:
    layout = scene.layout
    if scene.is_moving(subscription):  # a crash may have left cursors in front of what was drained
        drained = frozenset()
    drained = _with_newly_drained(scene, subscription, drained)
    keys = units_of(layout, assignable(layout, drained), key_shared=subscription.key_shared)
    owners = {key: one.owner for key, one in known.owned.items() if one.owner is not None}
    after = rebalance(
        owned,
        keys,
        scene.consumers.get(subscription.subscription_id, []),
        shut={key for key in owned if key.segment_id not in drained} - set(keys),
        preferred=parents_owners(layout, keys, owners, key_shared=subscription.key_shared),
        now_ms=scene.now_ms,
        hand_over_ms=round(settings.SCALABLE_HANDOVER_SECONDS * 1000),
    )
    return Outcome(subscription, layout, known, after, drained)


def write_all(outcomes: Sequence[Outcome]) -> bool:
    """Write the owners that changed, fence the former ones, announce it; tells whether anything changed.

    The subscriptions are of one topic, and locked. A cursor that is gone goes with its segment or topic.
    """
    changes = [(outcome, changed) for outcome in outcomes if (changed := outcome.changed)]
    if not changes:
        return False
    incarnation = changes[0][0].subscription.incarnation
    fences = [fence for outcome, changed in changes for fence in outcome.fences(changed)]
    if fences:
        segment_port().own_all(incarnation=incarnation, generations=fences)
    store.write_ownerships(
        {outcome.subscription.subscription_id: (changed, outcome.drained) for outcome, changed in changes}
    )
    keys = [outcome.subscription.subscription_id for outcome, _ in changes]
    store.raise_generations(keys)
    for key in keys:
        announce.publish(announce.AssignmentChanged(key, incarnation))
    return True


def cursors_of(subscription: SubscriptionView, segment: Segment) -> list[str]:
    """Name the cursor of a segment, or those of its entry buckets where keys are shared, by bucket."""
    return cursor_names(subscription.name, subscription.key_shared, segment.entry_bucket_splits)


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


def _with_newly_drained(
    scene: Scene, subscription: SubscriptionView, drained: frozenset[int]
) -> frozenset[int]:
    """Add the sealed segments that are open and fully acknowledged, and then those that this opened.

    A CHECKPOINT group's cursors are a floor for pruning and tell nothing of what it has read.
    """
    acknowledged: frozenset[int] | None = None
    while subscription.type is SubscriptionType.STREAM:
        sealed = {
            key for key in assignable(scene.layout, drained) if not scene.layout.segments[key].is_active
        }
        if sealed and acknowledged is None:  # most often nothing is sealed, and nothing has to be read
            acknowledged = scene.acknowledged(subscription)
        if not sealed or not acknowledged or not sealed & acknowledged:
            break
        drained |= sealed & acknowledged
    return drained
