"""CHECKPOINT groups: ends that members report, commits that let go, restores in either direction.

Such a group acknowledges nothing. Its cursors are what its last commit needs kept; what it has read to the
end is what its members reported (PIP-468, Consumer Registration).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from django.db import transaction

from scalable import announce
from scalable.domain.checkpoint import Checkpoint, Resumption, SegmentExtent, Skipped, resume
from scalable.domain.errors import (
    CheckpointSuperseded,
    GenerationSuperseded,
    InvalidParameter,
    PositionInvalid,
    SegmentNotOwned,
    SubscriptionTypeMismatch,
)
from scalable.domain.layout import Layout
from scalable.domain.ownership import Ownership
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.controller import Leader, find_or_create, register_consumer, require
from scalable.services.cursors import Cursor, Move, moving_cursors
from scalable.services.positions import require_reached
from scalable.services.settling import settle_locked, sought
from scalable.store import checkpoints as store
from scalable.store import subscriptions, topics
from scalable.store.subscriptions import SubscriptionView


@dataclass(frozen=True, slots=True)
class Held:
    """The positions that a group holds now, and what its checkpoint pointed at and is gone.

    An assignment of this `generation` or a later one knows of it.
    """

    checkpoint: Checkpoint
    skipped: tuple[Skipped, ...]
    generation: int


def report_end(
    *,
    leader: Leader,
    subscription_id: int,
    consumer: str,
    segment_id: int,
    generation: int,
    position: int,
) -> None:
    """Note that the owner has read a segment to its end, which opens its successors; again is fine.

    Raises TermSuperseded, SubscriptionNotFound, SubscriptionTypeMismatch, SegmentNotOwned,
    GenerationSuperseded, PositionInvalid, SegmentStoreMissing.
    """
    with transaction.atomic():
        require(leader)
        locked = _checked(subscriptions.lock(subscription_id))
        known = subscriptions.ownerships(subscription_id)
        owned = known.owned.get(BucketKey(segment_id), Ownership())
        if segment_id in known.drained and owned.generation == generation:
            return
        _require_owner(owned, consumer=consumer, segment_id=segment_id, generation=generation)
        stats = require_reached(SegmentKey(locked.incarnation, segment_id), position)
        if not stats.terminated or position < stats.end_offset:
            problem = f"the segment is not read to its end, {stats.end_offset}, or not sealed"
            raise PositionInvalid(segment_id=segment_id, position=position, problem=problem)
        store.write_position(subscription_id, segment_id, stats.end_offset)
        settle_locked(locked, ended={segment_id})


def commit(*, leader: Leader, subscription_id: int, checkpoint: Checkpoint, preview: bool = False) -> Held:
    """Let go of what lies before a checkpoint; floors never move back, and unnamed segments keep theirs.

    A preview only tells what is skipped. Raises TopicNotFound, TermSuperseded, SubscriptionNotFound,
    SubscriptionTypeMismatch, InvalidParameter, CheckpointSuperseded.
    """
    with transaction.atomic():
        locked, resumption = _lock_and_resume(leader, subscription_id, checkpoint)
        if checkpoint.restored < locked.restored_generation:
            raise CheckpointSuperseded(
                restored=locked.restored_generation, checkpoint_restored=checkpoint.restored
            )
        floors = _floors(locked)
        moves = {
            key: position
            for key, position in resumption.positions.items()
            if not preview and key in floors and position > floors[key]
        }
        with moving_cursors(_moves(locked, moves), check=partial(require, leader)):
            pass
        held = Checkpoint(locked.incarnation, floors | moves, locked.restored_generation)
        # Segments without an entry are another member's here, and not unread.
        skipped = tuple(one for one in resumption.skipped if one.segment_id in checkpoint.positions)
        return Held(held, skipped, locked.generation)


def restore(*, leader: Leader, subscription_id: int, checkpoint: Checkpoint) -> Held:
    """Let the whole group go on from a checkpoint, also backwards as far as messages are kept.

    Every owner goes on under a new generation. Raises TopicNotFound, TermSuperseded, SubscriptionNotFound,
    SubscriptionTypeMismatch, InvalidParameter.
    """
    with transaction.atomic():
        locked, resumption = _lock_and_resume(leader, subscription_id, checkpoint)
        with moving_cursors(_moves(locked, resumption.positions), check=partial(require, leader)):
            store.clear_positions(subscription_id)
            sought(locked, segment_ids=set(resumption.positions), ended=resumption.ended)
            generation = store.note_restore(subscription_id)
        announce.publish(announce.AssignmentChanged(subscription_id, locked.incarnation))
        held = Checkpoint(locked.incarnation, resumption.positions, generation)
        return Held(held, resumption.skipped, generation)


def join(
    *,
    leader: Leader,
    subscription: str,
    consumer: str,
    checkpoint: Checkpoint,
    subscription_id: int | None = None,
) -> tuple[SubscriptionView, Held | None]:
    """Register with a group, made if need be, and restore it to the checkpoint if it has no other members.

    Its own registration, of before a crash, does not count. All or nothing. With a `subscription_id` it is
    that group and is never made. Raises TopicNotFound, TermSuperseded, InvalidName, SubscriptionNotFound,
    SubscriptionTypeMismatch, InvalidParameter.
    """
    with transaction.atomic():
        topics.lock(leader.topic)
        require(leader)
        group = find_or_create(
            name=leader.topic,
            subscription=subscription,
            kind=SubscriptionType.CHECKPOINT,
            subscription_id=subscription_id,
        )
        locked = subscriptions.lock(group.subscription_id)
        alone = not set(subscriptions.consumers(locked.subscription_id)) - {consumer}
        held = None
        if alone:
            held = restore(leader=leader, subscription_id=locked.subscription_id, checkpoint=checkpoint)
        register_consumer(leader=leader, subscription_id=locked.subscription_id, consumer=consumer)
        return group, held


def _lock_and_resume(
    leader: Leader, subscription_id: int, checkpoint: Checkpoint
) -> tuple[SubscriptionView, Resumption]:
    """Lock the topic, so that nothing is pruned meanwhile, then the leadership and the group."""
    _require_life(checkpoint, leader.incarnation)
    topic = topics.lock_incarnation(leader.incarnation)
    require(leader)
    locked = _checked(subscriptions.lock(subscription_id))
    extents = _extents(locked.incarnation, topic.layout)
    pruned = store.pruned_extents(locked.incarnation)
    return locked, resume(checkpoint, extents, pruned, next_segment_id=topic.layout.next_segment_id)


def _require_life(checkpoint: Checkpoint, incarnation: int) -> None:
    if checkpoint.incarnation != incarnation:
        problem = f"it is of another topic or life of its name than {incarnation}"
        raise InvalidParameter(parameter="checkpoint", value=checkpoint.incarnation, problem=problem)


def _checked(subscription: SubscriptionView) -> SubscriptionView:
    if subscription.type is not SubscriptionType.CHECKPOINT:
        raise SubscriptionTypeMismatch(
            subscription=subscription.name,
            current_type=subscription.type.value,
            requested_type=SubscriptionType.CHECKPOINT.value,
        )
    return subscription


def _require_owner(owned: Ownership, *, consumer: str, segment_id: int, generation: int) -> None:
    if generation < owned.generation:
        raise GenerationSuperseded(
            segment_id=segment_id, generation=generation, current_generation=owned.generation
        )
    if owned.owner != consumer or generation != owned.generation:
        raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)


def _extents(incarnation: int, layout: Layout) -> dict[int, SegmentExtent]:
    found = {}
    for segment_id, segment in layout.segments.items():
        stats = segment_port().stats(SegmentKey(incarnation, segment_id))
        found[segment_id] = SegmentExtent(
            stats.start_offset, stats.end_offset, stats.terminated, segment.parent_ids
        )
    return found


def _floors(group: SubscriptionView) -> dict[int, int]:
    rows = segment_port().backlogs(incarnation=group.incarnation, subscription=group.name)
    return {row.segment_id: row.position for row in rows}


def _moves(group: SubscriptionView, positions: Mapping[int, int]) -> dict[Cursor, Move]:
    return {
        Cursor(SegmentKey(group.incarnation, segment_id), group.name): Move(position)
        for segment_id, position in positions.items()
    }
