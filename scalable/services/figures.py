"""What Prometheus is told of the installation as a whole, the same by every node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from scalable.domain.subscriptions import SubscriptionType, assignable
from scalable.services.backlogs import backlogs_of
from scalable.store import figures as store
from scalable.store import subscriptions, topics
from scalable.store.figures import Counted, Totals
from scalable.store.subscriptions import SubscriptionView
from scalable.store.topics import TopicView

__all__ = ["Counted", "Figures", "SubscriptionFigures", "TopicFigures", "Totals", "figures"]

SUBSCRIPTIONS_PER_TOPIC = 20
MAX_LAYOUT_SEGMENTS = 4_096


@dataclass(frozen=True, slots=True)
class SubscriptionFigures:
    """A subscription's consumers, the segments that can be read now, and what waits for it."""

    name: str
    type: str
    consumers: int
    assignable_segments: int
    backlog_messages: int | None


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """One of the busiest topics."""

    name: str
    active_segments: int
    evaluated_seconds_ago: float | None
    counted: Mapping[str, int]
    is_split_capped: bool
    is_merge_capped: bool
    rates: Mapping[int, tuple[float, ...]]
    subscriptions: Sequence[SubscriptionFigures]


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it."""

    totals: Totals
    counted: Counted
    running_operations: Mapping[str, int]
    topics: Sequence[TopicFigures]


def figures() -> Figures:
    """Read the figures; those of single topics are of the busiest ones, as many as the settings allow."""
    chosen = store.topics(limit=settings.SCALABLE_METRICS_TOPICS)
    rates: dict[int, dict[int, tuple[float, ...]]] = {each.incarnation: {} for each in chosen}
    for incarnation, segment_id, of_segment in store.segment_rates(
        list(rates), limit=settings.SCALABLE_METRICS_SEGMENTS
    ):
        rates[incarnation][segment_id] = of_segment
    views = {view.incarnation: view for view in topics.read_many(list(rates))}
    return Figures(
        totals=store.totals(),
        counted=store.counted(),
        running_operations=store.running_operations(),
        topics=[
            TopicFigures(
                each.name,
                each.active_segments,
                each.evaluated_seconds_ago,
                each.counted,
                each.is_split_capped,
                each.is_merge_capped,
                rates[each.incarnation],
                tuple(_subscriptions(views[each.incarnation])) if each.incarnation in views else (),
            )
            for each in chosen
        ],
    )


def _subscriptions(topic: TopicView) -> Iterator[SubscriptionFigures]:
    if len(topic.layout.segments) > MAX_LAYOUT_SEGMENTS:
        return
    chosen = subscriptions.of_topic(topic.incarnation)[:SUBSCRIPTIONS_PER_TOPIC]
    # What shares keys may have to be counted message by message: not for a figure that is asked for all day.
    counted = [each for each in chosen if not each.key_shared]
    backlogs = dict(zip(counted, backlogs_of(topic, counted), strict=True))
    for each in chosen:
        yield SubscriptionFigures(
            each.name,
            each.type.value,
            len(subscriptions.consumers(each.subscription_id)),
            _assignable(topic, each),
            backlogs[each].messages if each in backlogs else None,
        )


def _assignable(topic: TopicView, subscription: SubscriptionView) -> int:
    """Count the segments that can be read now: those of a QUEUE wait for no other."""
    if subscription.type is SubscriptionType.QUEUE:
        return len(topic.layout.active)
    drained = subscriptions.ownerships(subscription.subscription_id).drained
    return len(assignable(topic.layout, drained))
