"""What is told of subscriptions: backlog by segment, what waits for what, and who reads which part."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from scalable.domain.errors import SubscriptionNotFound
from scalable.domain.names import TopicName, validate_part
from scalable.segments.registry import segment_port
from scalable.services.backlogs import Backlog, backlog_of, backlogs_of
from scalable.services.loads import topic_loads
from scalable.services.membership import Membership, membership
from scalable.services.usage import SegmentUsage, by_cursor, usage_of
from scalable.store import attendance, leases, topics
from scalable.store import subscriptions as store
from scalable.store.attendance import Attendant
from scalable.store.leases import ControllerLeaseView
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

PRODUCERS_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A subscription with its backlog and its consumers; the leader knows which of them are connected."""

    subscription: SubscriptionView
    backlog: Backlog
    usage: Mapping[int, SegmentUsage]
    consumers: tuple[Attendant, ...]
    leader_url: str | None


@dataclass(frozen=True, slots=True)
class Assignments:
    """Who reads what of a subscription."""

    subscription: SubscriptionView
    membership: Membership


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic with its leadership, its rates and sizes by segment, and all its subscriptions.

    `last_sequences` names its producers, the first 1,000 by name.
    """

    topic: TopicView
    term: int
    leader_url: str | None
    rates: Mapping[int, Mapping[str, float]]
    sizes: Mapping[int, int]
    last_sequences: Mapping[str, int]
    subscriptions: tuple[SubscriptionStats, ...]


def topic_stats(*, name: TopicName) -> TopicStats:
    """Tell all of a topic; the number of statements does not depend on its size. Raises TopicNotFound."""
    topic = topics.read(name)
    found = store.of_topic(topic.incarnation)
    present = attendance.attendants(topic.incarnation)
    lease = _lease(topic)
    port = segment_port()
    usages = by_cursor(port.usage(incarnation=topic.incarnation))
    return TopicStats(
        topic=topic,
        term=lease.term,
        leader_url=_url(lease),
        rates={key: record.rates.by_metric() for key, record in topic_loads(name=name).loads.items()},
        sizes=port.sizes(incarnation=topic.incarnation),
        last_sequences=port.last_sequences(incarnation=topic.incarnation, limit=PRODUCERS_LIMIT),
        subscriptions=tuple(
            SubscriptionStats(
                subscription,
                backlog,
                usage_of(subscription, backlog, usages),
                present.get(subscription.subscription_id, ()),
                _url(lease),
            )
            for subscription, backlog in zip(found, backlogs_of(topic, found), strict=True)
        ),
    )


def subscription_stats(*, name: TopicName, subscription: str) -> SubscriptionStats:
    """Tell all of one subscription; raises TopicNotFound, InvalidName, SubscriptionNotFound."""
    topic, found = _find(name, subscription)
    present = attendance.attendants(topic.incarnation)
    backlog = backlog_of(found, topic.layout)
    usages = segment_port().usage(incarnation=topic.incarnation, subscription=found.name)
    return SubscriptionStats(
        found,
        backlog,
        usage_of(found, backlog, by_cursor(usages)),
        present.get(found.subscription_id, ()),
        _url(_lease(topic)),
    )


def assignments(*, name: TopicName, subscription: str) -> Assignments:
    """Tell who reads what of a subscription; raises TopicNotFound, InvalidName, SubscriptionNotFound."""
    _, found = _find(name, subscription)
    return Assignments(found, membership(subscription_id=found.subscription_id))


def _find(name: TopicName, subscription: str) -> tuple[TopicView, SubscriptionView]:
    validate_part(subscription, "subscription")
    topic = topics.read(name)
    found = store.find(topic.incarnation, subscription)
    if found is None:
        raise SubscriptionNotFound(subscription=subscription)
    return topic, found


def _lease(topic: TopicView) -> ControllerLeaseView:
    return leases.read(topic.incarnation, timeout_seconds=settings.SCALABLE_NODE_TIMEOUT_SECONDS)


def _url(lease: ControllerLeaseView) -> str | None:
    return lease.url if lease.alive else None
