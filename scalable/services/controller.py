"""A topic's controller: leadership and consumer sessions (PIP-468); `assignment` tells who reads what.

Registration and assignment are rows. Who is connected, and since when not, is the leader's memory and no
concern of this module; the term fences what the leader does on the ground of that memory.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import KeySharingMismatch, NoLeader
from scalable.domain.lifetimes import resolve
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import SubscriptionType
from scalable.services.positions import Start
from scalable.services.settling import settle_locked
from scalable.services.subscriptions import create_subscription, find_subscription
from scalable.store import evaluations, leases, nodes, topics
from scalable.store import subscriptions as store
from scalable.store.leases import ControllerLeaseView
from scalable.store.subscriptions import SubscriptionView

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
        if not lease.alive and not nodes.is_alive(node_id, timeout_seconds=timeout_seconds):
            # Given up for dead: with its next heartbeat it may lead again.
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


def session_graces(*, incarnations: Collection[int]) -> dict[int, float]:
    """How many seconds an absent consumer of each topic keeps what it owns; a deleted topic is left out.

    The topic's setting goes over its namespace's, that over the instance's.
    """
    default_seconds = float(settings.SCALABLE_SESSION_GRACE_SECONDS)
    return {
        incarnation: resolve(topic_seconds, namespace_seconds, default_seconds).value
        for incarnation, topic_seconds, namespace_seconds in store.session_graces(incarnations)
    }


def find_or_create(
    *,
    name: TopicName,
    subscription: str,
    initial_position: Start = "earliest",
    key_shared: bool = False,
    kind: SubscriptionType = SubscriptionType.STREAM,
    incarnation: int | None = None,
    subscription_id: int | None = None,
) -> SubscriptionView:
    """Give a subscription with assigned consumers, made if need be, that shares keys or does not.

    With a `subscription_id` it is that one and is never made. Raises TopicNotFound, InvalidName,
    SubscriptionTypeMismatch, KeySharingMismatch; TopicDeleted when the topic is not the `incarnation` that is
    meant; SubscriptionNotFound when that one is gone; InvalidParameter for a new one that cannot begin there.
    """
    if subscription_id is None:
        found = create_subscription(
            name=name,
            subscription=subscription,
            kind=kind,
            start=initial_position,
            key_shared=key_shared,
            incarnation=incarnation,
        )
    else:
        found = find_subscription(
            name=name,
            subscription=subscription,
            kind=kind,
            incarnation=incarnation,
            subscription_id=subscription_id,
        )
    if found.key_shared is not key_shared:
        raise KeySharingMismatch(subscription=subscription, key_shared=found.key_shared)
    return found


def register_consumer(*, leader: Leader, subscription_id: int, consumer: str) -> None:
    """Register a consumer; again is fine and moves nothing. Raises TermSuperseded, SubscriptionNotFound."""
    register_consumers(leader=leader, subscription_id=subscription_id, consumers=[consumer])


def register_consumers(*, leader: Leader, subscription_id: int, consumers: Collection[str]) -> None:
    """Register consumers and settle once for all of them; raises TermSuperseded, SubscriptionNotFound."""
    with transaction.atomic():
        require(leader)
        locked = store.lock(subscription_id)
        if store.add_consumers(subscription_id, consumers):
            settle_locked(locked)
            _have_evaluated(locked.incarnation)


def remove_consumers(*, leader: Leader, subscription_id: int, consumers: Collection[str]) -> None:
    """End consumers' sessions, by their own wish or after their grace period, and settle once for all.

    One that is not there is fine. Raises TermSuperseded, SubscriptionNotFound.
    """
    with transaction.atomic():
        require(leader)
        locked = store.lock(subscription_id)
        if store.remove_consumers(subscription_id, consumers):
            settle_locked(locked)
            _have_evaluated(locked.incarnation)


def _have_evaluated(incarnation: int) -> None:
    """Have the consumer rule look at a topic at once: by a nudge, and by the next tick where that is lost."""
    evaluations.mark(incarnation)
    announce.publish(announce.ConsumersChanged(incarnation))


def require(leader: Leader) -> None:
    """Hold the leadership until the transaction ends; raises TermSuperseded."""
    leases.require(leader.incarnation, node_id=leader.node_id, term=leader.term, topic=str(leader.topic))
