"""What the sampler has to know of topics and segments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scalable.domain.keyspace import HashRange
from scalable.domain.names import TopicName
from scalable.domain.segment import SegmentState
from scalable.models import Segment, Topic

UNSAMPLED_TENANT = "system"


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """A topic with its policy overrides and the ranges of its segments."""

    name: TopicName
    incarnation: int
    topic_policy: dict[str, Any] | None
    namespace_policy: dict[str, Any] | None
    ranges: dict[int, HashRange]


@dataclass(frozen=True, slots=True)
class SampledSegment:
    """An active segment; `row_id` rises with each new one, though not always in the order of commits."""

    row_id: int
    segment_id: int
    topic: SampledTopic


def read_topic(incarnation: int) -> SampledTopic | None:
    """A topic by its incarnation, or None once it is deleted."""
    topic = Topic.objects.select_related("namespace").filter(pk=incarnation).first()
    if topic is None:
        return None
    rows = Segment.objects.filter(topic_id=incarnation).values_list("segment_id", "hash_start", "hash_end")
    return _topic(topic, {segment_id: HashRange(start, end) for segment_id, start, end in rows})


def active_segments(*, above: int, limit: int) -> Iterator[SampledSegment]:
    """Active segments of sampled topics whose rows are newer, in the order of their rows."""
    rows = Segment.objects.filter(pk__gt=above, state=SegmentState.ACTIVE)
    rows = rows.exclude(topic__namespace__tenant=UNSAMPLED_TENANT).select_related("topic__namespace")
    for row in rows.order_by("pk")[:limit]:
        hash_range = HashRange(row.hash_start, row.hash_end)
        yield SampledSegment(row.pk, row.segment_id, _topic(row.topic, {row.segment_id: hash_range}))


def _topic(topic: Topic, ranges: dict[int, HashRange]) -> SampledTopic:
    namespace = topic.namespace
    return SampledTopic(
        name=TopicName(namespace.tenant, namespace.name, topic.name),
        incarnation=topic.pk,
        topic_policy=topic.auto_scale_policy,
        namespace_policy=namespace.auto_scale_policy,
        ranges=ranges,
    )
