"""What each consumer of a subscription owns, and how it gives up what goes to another (PIP-468)."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction

from scalable.domain.cursors import bucket_ranges
from scalable.domain.errors import SegmentNotOwned, TermSuperseded
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.names import SegmentName
from scalable.domain.ownership import Ownership
from scalable.domain.segment import Segment, SegmentState
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.registry import segment_port
from scalable.services.controller import Leader, require
from scalable.services.settling import cursor_of, write_changes
from scalable.store import checkpoints
from scalable.store import subscriptions as store
from scalable.store.subscriptions import AssignmentVersion, SubscriptionView


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment that a consumer owns, or an entry bucket of it.

    `position` is the first offset that is not acknowledged.
    """

    name: SegmentName
    state: SegmentState
    generation: int
    position: int
    bucket: int = 0
    bucket_range: HashRange = FULL_RANGE


@dataclass(frozen=True, slots=True)
class AssignmentView:
    """All that one consumer owns as of (`generation`, `epoch`); `releasing` is what it is to give up.

    `shared` gives all entry buckets of the owned segments that have other owners too. `registered` is False
    when the subscription does not know the consumer, which then owns nothing. `restored` is the generation
    that a CHECKPOINT group's last restore made.
    """

    generation: int
    epoch: int
    segments: tuple[OwnedSegment, ...]
    releasing: tuple[BucketKey, ...]
    shared: Mapping[int, tuple[HashRange, ...]]
    registered: bool
    restored: int = 0


def release_segment(
    *,
    subscription_id: int,
    consumer: str,
    segment_id: int,
    generation: int,
    bucket: int = 0,
    position: int | None = None,
) -> None:
    """Pass a segment or entry bucket on when its owner has acknowledged what it was given.

    A member of a CHECKPOINT group names the `position` at which the next owner goes on.

    Raises SegmentNotOwned, GenerationSuperseded, SubscriptionNotFound.
    """
    key = BucketKey(segment_id, bucket)
    with transaction.atomic():
        subscription = store.lock(subscription_id)
        known = store.ownerships(subscription_id)
        layout = store.read_layout(subscription.incarnation)
        owned = known.owned.get(key)
        if owned is None or segment_id not in layout.segments:
            raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
        after = owned.released(segment_id=segment_id, consumer=consumer, generation=generation)
        if position is not None and subscription.type is SubscriptionType.CHECKPOINT:
            checkpoints.write_position(subscription_id, segment_id, position)
        write_changes(subscription, layout, known, {key: after}, known.drained)


def assignment_version(*, leader: Leader, subscription_id: int) -> AssignmentVersion:
    """What the assignment's order is made of; raises TermSuperseded, SubscriptionNotFound."""
    version = store.assignment_version(subscription_id)
    if (version.term, version.node_id) != (leader.term, leader.node_id):
        raise TermSuperseded(topic=str(leader.topic), term=leader.term, current_term=version.term)
    return version


def assignment(*, leader: Leader, subscription_id: int, consumer: str) -> AssignmentView:
    """All that a consumer owns, as of one moment; raises TermSuperseded, SubscriptionNotFound."""
    with transaction.atomic():
        require(leader)
        subscription = store.lock(subscription_id)
        owned = store.owned_by(subscription_id, consumer)
        epoch, segments = store.read_segments(subscription.incarnation, {key.segment_id for key in owned})
        positions = _positions(subscription) if owned else {}
        return AssignmentView(
            generation=subscription.generation,
            epoch=epoch,
            segments=tuple(
                _owned_segment(leader, subscription, segments[key.segment_id], key, owned[key], positions)
                for key in sorted(owned)
                if key.segment_id in segments
            ),
            releasing=tuple(sorted(key for key, one in owned.items() if one.in_hand_over)),
            shared=_shared(subscription, consumer, segments),
            registered=store.is_consumer(subscription_id, consumer),
            restored=subscription.restored_generation,
        )


def _shared(
    subscription: SubscriptionView, consumer: str, segments: Mapping[int, Segment]
) -> dict[int, tuple[HashRange, ...]]:
    if not subscription.key_shared:
        return {}
    shared = store.with_other_owners(subscription.subscription_id, consumer, segments.keys())
    return {segment_id: bucket_ranges(segments[segment_id].entry_bucket_splits) for segment_id in shared}


def _positions(subscription: SubscriptionView) -> dict[tuple[int, str], int]:
    """Give by segment and cursor where a new owner begins, in one look at the data plane.

    In a CHECKPOINT group that is where the last owner stopped, which is never below the cursor.
    """
    found = segment_port().backlogs(incarnation=subscription.incarnation, subscription=subscription.name)
    stopped: Mapping[int, int] = {}
    if subscription.type is SubscriptionType.CHECKPOINT:
        stopped = checkpoints.positions(subscription.subscription_id)
    return {(one.segment_id, one.cursor): max(one.position, stopped.get(one.segment_id, 0)) for one in found}


def _owned_segment(
    leader: Leader,
    subscription: SubscriptionView,
    segment: Segment,
    key: BucketKey,
    owned: Ownership,
    positions: Mapping[tuple[int, str], int],
) -> OwnedSegment:
    ranges = bucket_ranges(segment.entry_bucket_splits) if subscription.key_shared else (FULL_RANGE,)
    cursor = cursor_of(subscription, segment, key.bucket)
    return OwnedSegment(
        name=SegmentName(leader.topic, segment.hash_range, segment.segment_id),
        state=segment.state,
        generation=owned.generation,
        position=positions.get((segment.segment_id, cursor), 0),
        bucket=key.bucket,
        bucket_range=ranges[key.bucket],
    )
