"""A topic's controller: leadership, consumer sessions, and who reads which segment (PIP-468).

Registration and assignment are rows. Who is connected, and since when not, is the leader's memory and no
concern of this module; the term fences what the leader does on the ground of that memory.
"""

import uuid
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import NoLeader, SegmentNotOwned, TermSuperseded
from scalable.domain.names import SegmentName, TopicName
from scalable.domain.ownership import Ownership
from scalable.domain.segment import Segment, SegmentState
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services.settling import (
    force_releases,
    settle_drained,
    settle_locked,
    settle_subscription,
    settle_topic,
    sweep,
    write_changes,
)
from scalable.services.subscriptions import InitialPosition, create_subscription
from scalable.store import leases, nodes, topics
from scalable.store import subscriptions as store
from scalable.store.leases import ControllerLeaseView
from scalable.store.subscriptions import AssignmentVersion, SubscriptionView

__all__ = [
    "acquire_leadership",
    "assignment",
    "assignment_version",
    "begin_node",
    "find_or_create",
    "force_releases",
    "heartbeat_node",
    "orphaned_topics",
    "register_consumer",
    "registrations",
    "release_segment",
    "remove_consumer",
    "remove_node",
    "settle_drained",
    "settle_subscription",
    "settle_topic",
    "sweep",
]

DEAD_NODE_HEARTBEATS = 10
"""How many time-outs a dead node's row stays, so that its URL can still be shown."""
DEAD_NODES_LIMIT = 100
ORPHANED_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a topic, under which term; `mine` when the asking node does."""

    incarnation: int
    term: int
    url: str
    mine: bool


@dataclass(frozen=True, slots=True)
class Leader:
    """The fence of what a leader does: its node, the term, and the topic by name and incarnation."""

    node_id: uuid.UUID
    term: int
    topic: TopicName
    incarnation: int


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment that a consumer owns, with the first offset that is not acknowledged."""

    name: SegmentName
    state: SegmentState
    generation: int
    position: int


@dataclass(frozen=True, slots=True)
class AssignmentView:
    """All that one consumer owns as of (`generation`, `epoch`); `releasing` are the segments to give up.

    `registered` is False when the subscription does not know the consumer, which then owns nothing.
    """

    generation: int
    epoch: int
    segments: tuple[OwnedSegment, ...]
    releasing: tuple[int, ...]
    registered: bool


# Nodes and leadership.


def begin_node(*, node_id: uuid.UUID, url: str) -> None:
    """Note that this web process began; a former one at its address is dead, whatever its heartbeat says."""
    with transaction.atomic():
        nodes.delete_at(url)
        nodes.write_heartbeat(node_id, url)


def heartbeat_node(*, node_id: uuid.UUID, url: str) -> None:
    """Note that this web process is alive, and forget those that have been dead for long."""
    nodes.write_heartbeat(node_id, url)
    timeout_seconds = settings.SCALABLE_NODE_TIMEOUT_SECONDS * DEAD_NODE_HEARTBEATS
    nodes.delete_dead(timeout_seconds=timeout_seconds, limit=DEAD_NODES_LIMIT)


def remove_node(*, node_id: uuid.UUID) -> None:
    """Note that this web process ended; its leaderships are free at once."""
    nodes.delete(node_id)


def acquire_leadership(*, name: TopicName, node_id: uuid.UUID) -> Leadership:
    """Give the topic's leader, the asking node if no living one leads; raises TopicNotFound, NoLeader."""
    incarnation = store.incarnation_of(name)
    lease = leases.read(incarnation, timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS)
    if not lease.alive:
        lease = _take_over(name, node_id)
    return Leadership(incarnation, lease.term, lease.url or "", lease.node_id == node_id)


def orphaned_topics() -> list[TopicName]:
    """Topics with consumers whose leader is dead, some of them; somebody must keep their grace periods."""
    found = leases.orphaned(timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS, limit=ORPHANED_LIMIT)
    names = (topics.find_name(incarnation) for incarnation in found)
    return [name for name in names if name is not None]


def _take_over(name: TopicName, node_id: uuid.UUID) -> ControllerLeaseView:
    timeout_seconds = settings.SCALABLE_NODE_TIMEOUT_SECONDS
    with transaction.atomic():
        incarnation = topics.lock(name).incarnation
        lease = leases.lock(incarnation, timeout_seconds=timeout_seconds)
        if not lease.alive and not nodes.exists(
            node_id
        ):  # given up for dead: its next heartbeat is a new start
            raise NoLeader(topic=str(name))
        if not lease.alive:
            leases.take(incarnation, node_id=node_id, term=lease.term + 1)
            lease = leases.read(incarnation, timeout_seconds=timeout_seconds)
            revision = topics.raise_revision(incarnation)
            announce.publish(announce.TopicChanged(incarnation, str(name), revision))
        return lease


# Consumer sessions, under the leader's term.


def registrations(*, incarnation: int) -> list[tuple[int, str]]:
    """All registered consumers of a topic as (subscription id, name)."""
    return store.registrations(incarnation)


def find_or_create(
    *, name: TopicName, subscription: str, initial_position: InitialPosition = "earliest"
) -> SubscriptionView:
    """Give a STREAM subscription, made if need be.

    Raises TopicNotFound, InvalidName, SubscriptionTypeMismatch.
    """
    return create_subscription(
        name=name,
        subscription=subscription,
        kind=SubscriptionType.STREAM,
        initial_position=initial_position,
    )


def register_consumer(*, leader: Leader, subscription_id: int, consumer: str) -> None:
    """Register a consumer; again is fine and moves nothing. Raises TermSuperseded, SubscriptionNotFound."""
    with transaction.atomic():
        _require(leader)
        locked = store.lock(subscription_id)
        if store.add_consumer(subscription_id, consumer):
            settle_locked(locked)
            announce.publish(announce.ConsumersChanged(locked.incarnation))


def remove_consumer(*, leader: Leader, subscription_id: int, consumer: str) -> None:
    """End a consumer's session, by its own wish or after its grace period; one that is not there is fine.

    Raises TermSuperseded, SubscriptionNotFound.
    """
    with transaction.atomic():
        _require(leader)
        locked = store.lock(subscription_id)
        if store.remove_consumer(subscription_id, consumer):
            settle_locked(locked)
            announce.publish(announce.ConsumersChanged(locked.incarnation))


def release_segment(*, subscription_id: int, consumer: str, segment_id: int, generation: int) -> None:
    """Pass a segment on when its owner has acknowledged what it was given.

    Raises SegmentNotOwned, GenerationSuperseded, SubscriptionNotFound.
    """
    with transaction.atomic():
        locked = store.lock(subscription_id)
        known = store.ownerships(subscription_id)
        owned = known.owned.get(segment_id)
        if owned is None:
            raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
        after = owned.released(segment_id=segment_id, consumer=consumer, generation=generation)
        write_changes(locked, known, {segment_id: after}, known.drained)


def assignment_version(*, leader: Leader, subscription_id: int) -> AssignmentVersion:
    """What the assignment's order is made of; raises TermSuperseded, SubscriptionNotFound."""
    version = store.assignment_version(subscription_id)
    if (version.term, version.node_id) != (leader.term, leader.node_id):
        raise TermSuperseded(topic=str(leader.topic), term=leader.term, current_term=version.term)
    return version


def assignment(*, leader: Leader, subscription_id: int, consumer: str) -> AssignmentView:
    """All that a consumer owns, as of one moment; raises TermSuperseded, SubscriptionNotFound."""
    with transaction.atomic():
        _require(leader)
        subscription = store.lock(subscription_id)
        owned = {
            segment_id: ownership
            for segment_id, ownership in store.ownerships(subscription_id).owned.items()
            if ownership.owner == consumer
        }
        layout = store.read_layout(subscription.incarnation)
        return AssignmentView(
            generation=subscription.generation,
            epoch=layout.epoch,
            segments=tuple(
                _owned_segment(leader.topic, subscription, layout.get(segment_id), owned[segment_id])
                for segment_id in sorted(owned)
            ),
            releasing=tuple(sorted(key for key, ownership in owned.items() if ownership.in_hand_over)),
            registered=consumer in store.consumers(subscription_id),
        )


def _owned_segment(
    topic: TopicName, subscription: SubscriptionView, segment: Segment, owned: Ownership
) -> OwnedSegment:
    key = SegmentKey(subscription.incarnation, segment.segment_id)
    cursor = segment_port().cursor(key, subscription=subscription.name)
    return OwnedSegment(
        name=SegmentName(topic, segment.hash_range, segment.segment_id),
        state=segment.state,
        generation=owned.generation,
        position=0 if cursor is None else cursor.position,
    )


def _require(leader: Leader) -> None:
    leases.require(leader.incarnation, node_id=leader.node_id, term=leader.term, topic=str(leader.topic))
