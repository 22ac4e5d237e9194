"""What decisions are made from, read for many topics at once: the number of statements is that of one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from scalable.domain.autoscale import Snapshot
from scalable.domain.load import stale_after_seconds
from scalable.domain.policy import AutoScalePolicy, bounded_seconds
from scalable.domain.recent import Recent
from scalable.domain.setbacks import Setbacks
from scalable.services.loads import load_known
from scalable.services.past_merges import lives_of_merges
from scalable.services.policies import UNREADABLE, resolve
from scalable.services.recent_loads import recent_loads, wants_recent
from scalable.store import decisions as store
from scalable.store import loads, operations
from scalable.store.decisions import Consumers
from scalable.store.topics import TopicView

Complaint = Callable[[TopicView, Exception], None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A topic with what is known of it; the loads are trusted until the watermark is older than this."""

    topic: TopicView
    snapshot: Snapshot
    stale_after_seconds: float
    wants_tiles: bool


def read_inputs(topics: Sequence[TopicView], *, now_ms: int, complain: Complaint) -> list[Inputs]:
    """Read what is known of topics; one whose policy cannot be read is told to `complain` and left out."""
    policies = _policies(topics, complain)
    ruled = [topic for topic in topics if topic.incarnation in policies]
    facts = _read_facts(ruled, policies, now_ms)
    return [_inputs(topic, policies[topic.incarnation], facts, now_ms) for topic in ruled]


def inputs_under(topic: TopicView, policy: AutoScalePolicy, *, now_ms: int) -> Inputs:
    """Read what is known of one topic, judged under a policy that need not be its own."""
    return _inputs(topic, policy, _read_facts([topic], {topic.incarnation: policy}, now_ms), now_ms)


@dataclass(frozen=True, slots=True)
class _Facts:
    watermark_ms: int | None
    loads: Mapping[int, Mapping[int, Any]]
    consumers: Mapping[int, Consumers]
    in_flight: Mapping[int, int]
    recent: Mapping[int, Recent]
    setbacks: Mapping[int, Setbacks]
    merged_for_ms: Mapping[int, Mapping[int, int]]


def _policies(topics: Collection[TopicView], complain: Complaint) -> dict[int, AutoScalePolicy]:
    policies = {}
    for topic in topics:
        try:
            resolved = resolve(topic=topic.auto_scale_policy, namespace=topic.namespace_policy)
            policies[topic.incarnation] = resolved.policy
        except UNREADABLE as error:
            complain(topic, error)
    return policies


def _read_facts(topics: Sequence[TopicView], policies: Mapping[int, AutoScalePolicy], now_ms: int) -> _Facts:
    keys = [topic.incarnation for topic in topics]
    by_topic: dict[int, dict[int, Any]] = {key: {} for key in keys}
    for (incarnation, segment_id), record in loads.load_records(keys).items():
        by_topic[incarnation][segment_id] = record
    return _Facts(
        watermark_ms=loads.newest_watermark_ms(),
        loads=by_topic,
        consumers=store.consumers(keys),
        in_flight=store.operations_in_flight(keys),
        recent=recent_loads(topics, policies, by_topic, now_ms=now_ms),
        setbacks=operations.setbacks(keys, actor=store.AUTOSCALER),
        merged_for_ms=lives_of_merges(topics, policies, now_ms=now_ms),
    )


def _inputs(topic: TopicView, policy: AutoScalePolicy, facts: _Facts, now_ms: int) -> Inputs:
    key = topic.incarnation
    stale_after = stale_after_seconds(bounded_seconds(policy.rate_window_seconds))
    recent = facts.recent.get(key, Recent())
    active = {segment.segment_id for segment in topic.layout.active}
    known = load_known(
        watermark_ms=facts.watermark_ms, now_ms=now_ms, rate_window_seconds=policy.rate_window_seconds
    )
    snapshot = Snapshot(
        layout=topic.layout,
        policy=policy,
        loads={key: record for key, record in facts.loads[key].items() if key in active},
        load_known=known,
        load_unknown_since_ms=_unknown_since(facts.watermark_ms, stale_after, known),
        stream_consumers=facts.consumers.get(key, Consumers()).assigned,
        bucket_consumers=facts.consumers.get(key, Consumers()).sharing,
        last_split_at_ms=topic.last_split_at_ms,
        last_merge_at_ms=topic.last_merge_at_ms,
        last_rebucket_at_ms=topic.last_rebucket_at_ms,
        operations_in_flight=facts.in_flight.get(key, 0),
        heat=recent.heat,
        trends=recent.trends,
        peaks=recent.peaks,
        max_buckets=settings.SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT,
        setbacks=facts.setbacks.get(key, {}),
        merged_for_ms=facts.merged_for_ms.get(key, {}),
    )
    return Inputs(topic, snapshot, stale_after, wants_recent(policy))


def _unknown_since(watermark_ms: int | None, stale_after_seconds: float, known: bool) -> int | None:
    if known or watermark_ms is None:
        return None
    return watermark_ms + round(stale_after_seconds * 1000)
