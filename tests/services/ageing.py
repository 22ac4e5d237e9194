"""Topics whose segments are old, with subscriptions that are done with them or not."""

from datetime import timedelta

from django.db.models import F

from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import PrunedSegment, Segment
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import lifetimes, scaling, subscriptions
from scalable.services.lifetimes import Lifetimes
from scalable.services.topics import TopicView
from tests.topology import ACTOR, append, drive, layout_of, make_topic, request

FOR_EVER = -1


def split_topic(name: str = "aged", *, messages: int = 3) -> TopicView:
    """A topic whose first segment, with messages, was split: 0 is sealed, 1 and 2 are its children."""
    topic = make_topic(name, segments=1)
    for number in range(messages):
        append(topic, 0, f"message {number}")
    drive(request(OperationKind.SPLIT, topic))
    return topic


def split(topic: TopicView, segment_id: int) -> None:
    """Split one more segment."""
    drive(scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR))


def keep(topic: TopicView, seconds: int | None) -> None:
    """Set the topic's own retention."""
    lifetimes.set_topic_lifetimes(name=topic.name, lifetimes=Lifetimes(seconds), actor=ACTOR)


def age(topic: TopicView, *, seconds: float, segment_id: int = 0) -> None:
    """Let a segment have been sealed longer ago."""
    rows = Segment.objects.filter(topic_id=topic.incarnation, segment_id=segment_id)
    rows.update(sealed_at=F("sealed_at") - timedelta(seconds=seconds))


def subscribe(
    topic: TopicView,
    name: str = "s",
    *,
    kind: SubscriptionType = SubscriptionType.STREAM,
    key_shared: bool = False,
    holds_pruning: bool = True,
) -> None:
    """Make a subscription at earliest."""
    subscriptions.create_subscription(
        name=topic.name, subscription=name, kind=kind, key_shared=key_shared, holds_pruning=holds_pruning
    )


def acknowledge(topic: TopicView, position: int, *, cursor: str = "s", segment_id: int = 0) -> None:
    """Acknowledge everything below a position, as the owner does."""
    key = SegmentKey(topic.incarnation, segment_id)
    state = segment_port().cursor(key, subscription=cursor)
    assert state is not None
    segment_port().acknowledge(key, subscription=cursor, generation=state.generation, position=position)


def kept(topic: TopicView) -> set[int]:
    """Name the segments of the layout, which must be sound."""
    return set(layout_of(topic).segments)


def remembered(topic: TopicView) -> list[tuple[int, list[int], list[int]]]:
    """Give the pruned segments with their parents and children, in the order in which they went."""
    rows = PrunedSegment.objects.filter(topic_id=topic.incarnation).order_by("pk")
    return [(row.segment_id, row.parent_ids, row.child_ids) for row in rows]
