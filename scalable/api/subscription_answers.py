"""Subscriptions, their backlog, consumers, moves and next messages as REST answers them."""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scalable.api.leader import SessionState
from scalable.domain.cursors import bucket_ranges
from scalable.domain.keyspace import HashRange
from scalable.domain.names import SegmentName
from scalable.domain.subscriptions import SubscriptionType
from scalable.services.membership import Unit
from scalable.services.peeking import Peeked, PeekedMessage
from scalable.services.seeking import Moved
from scalable.services.subscription_stats import Assignments, SubscriptionStats, TopicStats
from scalable.store.attendance import Attendant
from scalable.store.subscriptions import SubscriptionView

Sessions = Callable[[str], SessionState]
"""What is known of the session of a subscription's consumer, by its name."""


def subscription_body(view: SubscriptionView) -> dict[str, Any]:
    """A subscription of a list."""
    return {
        "name": view.name,
        "type": view.type.value,
        "keyShared": view.key_shared,
        "holdsPruning": view.holds_pruning,
        "createdAtMs": view.created_at_ms,
    }


def stats_body(stats: SubscriptionStats, sessions: Sessions) -> dict[str, Any]:
    """A subscription with its backlog and consumers."""
    settings, ranges = subscription_body(stats.subscription), _bucket_ranges(stats)
    del settings["name"]
    return {
        **settings,
        "msgBacklog": stats.backlog.messages,
        "backlogExact": stats.backlog.exact,
        "backlogSize": sum(each.backlog_bytes for each in stats.usage.values()),
        "unackedMessages": _unacked(stats),
        "segments": _segments(stats),
        "consumers": [
            _consumer(each.name, sessions(each.name), each.registered_at_ms)
            | {
                "standby": each.standby,
                "segmentIds": list(each.segment_ids),
                "entryBuckets": _entry_buckets(stats, each, ranges),
            }
            for each in stats.consumers
        ],
    }


def _bucket_ranges(stats: SubscriptionStats) -> dict[int, tuple[HashRange, ...]]:
    """Give the entry buckets of all segments, once for all consumers."""
    if not stats.subscription.key_shared:
        return {}
    segments = stats.backlog.segments
    return {key: bucket_ranges(one.segment.entry_bucket_splits) for key, one in segments.items()}


def _entry_buckets(
    stats: SubscriptionStats, consumer: Attendant, ranges: Mapping[int, Sequence[HashRange]]
) -> dict[str, list[str]] | None:
    if not stats.subscription.key_shared:
        return None
    found: dict[str, list[str]] = {}
    for segment_id, bucket in consumer.units:
        if segment_id in ranges:
            found.setdefault(str(segment_id), []).append(ranges[segment_id][bucket].hex)
    return found


def _unacked(stats: SubscriptionStats) -> int | None:
    if stats.subscription.type is not SubscriptionType.QUEUE:
        return None
    return sum(each.claimed or 0 for each in stats.usage.values())


def _segments(stats: SubscriptionStats) -> dict[str, Any]:
    consumers = Counter(segment_id for each in stats.consumers for segment_id in each.segment_ids)
    return {
        str(key): {
            "msgBacklog": one.messages,
            "backlogSize": stats.usage[key].backlog_bytes,
            "unackedMessages": stats.usage[key].claimed,
            "position": one.position,
            "endOffset": one.end_offset,
            "consumerCount": consumers[key],
            "waitsFor": [
                {"segmentId": wait.segment_id, "unackedMessages": wait.unacknowledged}
                for wait in stats.backlog.waits.get(key, ())
            ],
        }
        for key, one in stats.backlog.segments.items()
    }


def _consumer(name: str, state: SessionState, registered_at_ms: int) -> dict[str, Any]:
    connected = None if state is SessionState.UNKNOWN else state is SessionState.CONNECTED
    return {
        "consumerName": name,
        "connected": connected,
        "session": state.name,
        "registeredAtMs": registered_at_ms,
    }


def topic_stats_body(stats: TopicStats, sessions: Callable[[SubscriptionView], Sessions]) -> dict[str, Any]:
    """A topic with all its subscriptions, by the names of PIP-483."""
    topic = stats.topic
    segments = {
        str(key): {
            "name": str(SegmentName(topic.name, segment.hash_range, key)),
            "state": segment.state.value,
            "parentIds": list(segment.parent_ids),
            "childIds": list(segment.child_ids),
            "entryBuckets": len(segment.entry_bucket_splits) + 1,
            "storageSize": stats.sizes.get(key, 0),
        }
        for key, segment in sorted(topic.layout.segments.items())
    }
    return {
        "layout": {"epoch": topic.epoch, "segments": segments},
        "leader": {"term": stats.term, "url": stats.leader_url},
        "msgRateIn": _sum(stats, "msgRateIn"),
        "byteRateIn": _sum(stats, "bytesRateIn"),
        "msgRateOut": _sum(stats, "msgRateOut"),
        "byteRateOut": _sum(stats, "bytesRateOut"),
        "averageMsgSize": _average_size(stats),
        "storageSize": sum(stats.sizes.values()),
        "backlogSize": _slowest(stats),
        "producers": [
            {"producerName": name, "lastSequence": last} for name, last in stats.last_sequences.items()
        ],
        "subscriptions": {
            each.subscription.name: stats_body(each, sessions(each.subscription))
            for each in stats.subscriptions
        },
    }


def _average_size(stats: TopicStats) -> float:
    messages = _sum(stats, "msgRateIn")
    return round(_sum(stats, "bytesRateIn") / messages, 3) if messages else 0.0


def _slowest(stats: TopicStats) -> int:
    """Sum up over the segments what the subscription that is furthest behind there has to receive."""
    most: dict[int, int] = {}
    for subscription in stats.subscriptions:
        for key, usage in subscription.usage.items():
            most[key] = max(most.get(key, 0), usage.backlog_bytes)
    return sum(most.values())


def _sum(stats: TopicStats, metric: str) -> float:
    return round(sum(rates[metric] for rates in stats.rates.values()), 3)


def assignments_body(view: Assignments, sessions: Sessions) -> dict[str, Any]:
    """Who reads what."""
    members = view.membership
    return {
        "epoch": members.epoch,
        "generation": members.generation,
        "leader": {"term": members.term, "url": members.leader_url},
        "consumers": [
            _consumer(each.name, sessions(each.name), each.registered_at_ms)
            | _owned(
                members.owned_by(each.name),
                standby=members.is_standby(each.name),
                key_shared=view.subscription.key_shared,
            )
            for each in members.consumers
        ],
        "waitsFor": {str(key): list(waited) for key, waited in members.waits.items()},
    }


def _owned(units: Sequence[Unit], *, standby: bool, key_shared: bool) -> dict[str, Any]:
    return {
        "standby": standby,
        "segmentIds": sorted({unit.key.segment_id for unit in units}),
        "entryBuckets": _ranges(units) if key_shared else None,
        "units": [
            {
                "segmentId": unit.key.segment_id,
                "bucket": unit.key.bucket,
                "bucketRange": unit.bucket_range.hex,
                "generation": unit.generation,
                "nextOwner": unit.next_owner,
                "releaseDeadlineMs": unit.release_deadline_ms,
            }
            for unit in units
        ],
    }


def _ranges(units: Sequence[Unit]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit in units:
        found.setdefault(str(unit.key.segment_id), []).append(unit.bucket_range.hex)
    return found


def moved_body(moved: Moved) -> dict[str, Any]:
    """What a move would do."""
    return {
        "epoch": moved.epoch,
        "backlogBefore": moved.backlog_before,
        "backlogAfter": moved.backlog_after,
        "segments": [
            {
                "segmentId": each.segment_id,
                "state": each.state,
                "fromPosition": each.from_position,
                "toPosition": each.to_position,
                "backlogBefore": each.backlog_before,
                "backlogAfter": each.backlog_after,
            }
            for each in moved.segments
        ],
    }


def peeked_body(peeked: Peeked) -> dict[str, Any]:
    """The next messages."""
    return {"messages": [_message(each) for each in peeked.messages], "complete": peeked.complete}


def _message(message: PeekedMessage) -> dict[str, Any]:
    record = message.record
    return {
        "segmentId": message.segment_id,
        "offset": message.offset,
        "key": record.key,
        "value": b64encode(message.value).decode(),
        "sizeBytes": message.size_bytes,
        "truncated": message.truncated,
        "properties": dict(record.properties),
        "eventTimeMs": record.event_time_ms,
        "publishedAtMs": message.published_at_ms,
        "deliverAtMs": message.deliver_at_ms,
    }
