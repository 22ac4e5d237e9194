"""One segment in numbers: where it stands, what passes through it, and how far each subscription is."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalable.domain.layout import Segment
from scalable.domain.load import LoadRecord, SegmentRates
from scalable.domain.names import TopicName
from scalable.segments.port import SegmentKey, SegmentStats
from scalable.segments.registry import segment_port
from scalable.services.backlogs import SegmentBacklog, backlogs_of
from scalable.services.loads import topic_loads
from scalable.store import attendance, subscriptions, topics
from scalable.store.subscriptions import SubscriptionView

_NO_LOAD = LoadRecord(SegmentRates(), 0)


@dataclass(frozen=True, slots=True)
class InSegment:
    """A subscription in one segment; `consumers` are those that own something of it.

    `backlog_bytes` takes messages to be of the mean size of those that are still there, as stored.
    """

    subscription: SubscriptionView
    backlog: SegmentBacklog
    backlog_bytes: int
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentFigures:
    """All that is told of one segment; `load` is what was last reported, and may be out of date."""

    topic: TopicName
    segment: Segment
    store: SegmentStats
    load: LoadRecord
    load_known: bool
    subscriptions: tuple[InSegment, ...]


def segment_figures(*, name: TopicName, segment_id: int) -> SegmentFigures:
    """Tell all of one segment; raises TopicNotFound, SegmentNotFound, SegmentStoreMissing."""
    topic, loads = topics.read(name), topic_loads(name=name)
    segment = topic.layout.get(segment_id)
    store = segment_port().stats(SegmentKey(topic.incarnation, segment_id))
    found = subscriptions.of_topic(topic.incarnation)
    present = attendance.attendants(topic.incarnation)
    inside = tuple(
        InSegment(
            subscription,
            backlog.segments[segment_id],
            _bytes_of(store, backlog.segments[segment_id].messages),
            _readers(present, subscription, segment_id),
        )
        for subscription, backlog in zip(found, backlogs_of(topic, found), strict=True)
        if segment_id in backlog.segments
    )
    return SegmentFigures(name, segment, store, loads.loads.get(segment_id, _NO_LOAD), loads.known, inside)


def _bytes_of(store: SegmentStats, messages: int) -> int:
    stored = max(1, store.end_offset - store.start_offset)
    return round(store.bytes_stored * min(1.0, messages / stored))


def _readers(
    present: Mapping[int, tuple[attendance.Attendant, ...]], subscription: SubscriptionView, segment_id: int
) -> tuple[str, ...]:
    attendants = present.get(subscription.subscription_id, ())
    return tuple(each.name for each in attendants if segment_id in each.segment_ids)
