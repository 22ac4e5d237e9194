"""What is told of subscriptions: backlog by segment, what waits for what, and who reads which part."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalable.domain.cursors import bucket_ranges
from scalable.domain.errors import SubscriptionNotFound
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.layout import Layout
from scalable.domain.names import TopicName, validate_part
from scalable.services.backlogs import Backlog, SegmentBacklog, backlog_of, backlogs_of, positions_of
from scalable.services.loads import topic_loads
from scalable.store import attendance, topics
from scalable.store import subscriptions as store
from scalable.store.attendance import LeaderView, Unit
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView


@dataclass(frozen=True, slots=True)
class UnitView:
    """A segment, or an entry bucket of it, that a consumer owns, and who it is asked to hand it to."""

    segment_id: int
    bucket: int
    bucket_range: HashRange
    generation: int
    position: int
    next_owner: str | None


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A registered consumer with what it owns; without anything it stands by."""

    name: str
    registered_at_ms: int
    units: tuple[UnitView, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A subscription with its backlog and its consumers."""

    subscription: SubscriptionView
    backlog: Backlog
    consumers: tuple[ConsumerView, ...]


@dataclass(frozen=True, slots=True)
class AssignmentsView:
    """Who reads what, under which leadership; `epoch` is the layout's."""

    topic: TopicView
    leader: LeaderView
    stats: SubscriptionStats


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic with its rates by segment and all its subscriptions."""

    topic: TopicView
    leader: LeaderView
    rates: Mapping[int, Mapping[str, float]]
    subscriptions: tuple[SubscriptionStats, ...]


def topic_stats(*, name: TopicName) -> TopicStats:
    """Tell all of a topic; the number of statements does not depend on its size. Raises TopicNotFound."""
    topic = topics.read(name)
    found = store.of_topic(topic.incarnation)
    present = attendance.attendance(topic.incarnation)
    return TopicStats(
        topic=topic,
        leader=attendance.leader_of(topic.incarnation),
        rates={key: record.rates.by_metric() for key, record in topic_loads(name=name).loads.items()},
        subscriptions=tuple(
            _stats(subscription, topic.layout, backlog, present)
            for subscription, backlog in zip(found, backlogs_of(topic, found), strict=True)
        ),
    )


def assignments(*, name: TopicName, subscription: str) -> AssignmentsView:
    """Tell who reads what of a subscription; raises TopicNotFound, InvalidName, SubscriptionNotFound."""
    validate_part(subscription, "subscription")
    topic = topics.read(name)
    found = store.find(topic.incarnation, subscription)
    if found is None:
        raise SubscriptionNotFound(subscription=subscription)
    backlog = backlog_of(found, topic.layout)
    present = attendance.attendance(topic.incarnation)
    return AssignmentsView(
        topic, attendance.leader_of(topic.incarnation), _stats(found, topic.layout, backlog, present)
    )


def _stats(
    subscription: SubscriptionView, layout: Layout, backlog: Backlog, present: attendance.Attendance
) -> SubscriptionStats:
    key = subscription.subscription_id
    owned: dict[str, list[UnitView]] = {}
    for unit in present.units.get(key, ()):
        one = backlog.segments.get(unit.segment_id)
        if unit.owner is not None and one is not None:
            owned.setdefault(unit.owner, []).append(_unit(subscription, one, unit))
    consumers = tuple(
        ConsumerView(name, since_ms, tuple(owned.get(name, ())))
        for name, since_ms in present.consumers.get(key, {}).items()
    )
    return SubscriptionStats(subscription, backlog, consumers)


def _unit(subscription: SubscriptionView, one: SegmentBacklog, unit: Unit) -> UnitView:
    ranges = bucket_ranges(one.segment.entry_bucket_splits) if subscription.key_shared else (FULL_RANGE,)
    position = positions_of(one.cursors)[unit.bucket] if unit.position is None else unit.position
    return UnitView(
        segment_id=unit.segment_id,
        bucket=unit.bucket,
        bucket_range=ranges[unit.bucket],
        generation=unit.generation,
        position=position,
        next_owner=unit.next_owner,
    )
