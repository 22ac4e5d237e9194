"""What a node asks and tells as it samples load: intervals, ranges, new segments, and the samples."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalable.domain.keyspace import HashRange
from scalable.domain.names import SAMPLES_TOPIC, TopicName
from scalable.domain.policy import AutoScalePolicy
from scalable.services import messages
from scalable.services.policies import UNREADABLE, resolve
from scalable.store import sampling as store
from scalable.store import subscriptions
from scalable.store.sampling import UNSAMPLED_TENANT, SampledTopic

__all__ = [
    "SAMPLES_TOPIC",
    "UNSAMPLED_TENANT",
    "NewSegment",
    "TopicSampling",
    "new_segments",
    "publish_samples",
    "topic_sampling",
]

logger = logging.getLogger(__name__)

SAMPLES_SEGMENT = 0
NEW_SEGMENTS_LIMIT = 1_000
SHORTEST_INTERVAL_MS = 100
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TopicSampling:
    """How a topic wants to be sampled, and the ranges of its segments."""

    name: TopicName
    incarnation: int
    interval_ms: int
    window_ms: int
    ranges: Mapping[int, HashRange]


@dataclass(frozen=True, slots=True)
class NewSegment:
    """An active segment; `row_id` is what `new_segments` goes on above."""

    row_id: int
    segment_id: int
    topic: TopicSampling


def topic_sampling(*, incarnation: int) -> TopicSampling | None:
    """How a topic wants to be sampled, or None once it is deleted."""
    topic = store.read_topic(incarnation)
    return None if topic is None else _sampling(topic)


def new_segments(*, above: int) -> Sequence[NewSegment]:
    """The next active segments in the order of their making, some; topics of the system have none."""
    found = store.active_segments(above=above, limit=NEW_SEGMENTS_LIMIT)
    return [NewSegment(new.row_id, new.segment_id, _sampling(new.topic)) for new in found]


def publish_samples(*, node_id: str, batch: bytes) -> None:
    """Append one message of samples, numbered by its sequence; again is fine. Raises TopicNotFound."""
    messages.append(
        name=SAMPLES_TOPIC,
        incarnation=subscriptions.incarnation_of(SAMPLES_TOPIC),
        segment_id=SAMPLES_SEGMENT,
        batches=[batch],
        producer=f"node-{node_id}",
    )


def _sampling(topic: SampledTopic) -> TopicSampling:
    policy = _policy(topic)
    return TopicSampling(
        name=topic.name,
        incarnation=topic.incarnation,
        interval_ms=_milliseconds(policy.load_report_interval_seconds, SHORTEST_INTERVAL_MS, HOUR_MS),
        window_ms=_milliseconds(policy.rate_window_seconds, SHORTEST_INTERVAL_MS, 24 * HOUR_MS),
        ranges=topic.ranges,
    )


def _policy(topic: SampledTopic) -> AutoScalePolicy:
    """One policy that cannot be read must not keep a node from all topics behind it."""
    try:
        return resolve(topic=topic.topic_policy, namespace=topic.namespace_policy).policy
    except UNREADABLE as error:
        logger.error("Topic %s is sampled as if it had no policy: %s", topic.name, error)
        return resolve().policy


def _milliseconds(seconds: float, shortest: int, longest: int) -> int:
    """A policy may be contradictory; whatever it says, samples stay within what the pipeline reads."""
    return round(min(longest / 1000, max(shortest / 1000, seconds)) * 1000)
