"""Subscriptions, their backlog, consumers, moves and next messages as REST answers them."""

from base64 import b64encode
from collections.abc import Collection
from typing import Any

from scalable.domain.names import SegmentName
from scalable.services.peeking import Peeked, PeekedMessage
from scalable.services.seeking import Moved
from scalable.services.subscription_stats import AssignmentsView, ConsumerView, SubscriptionStats, TopicStats
from scalable.store.attendance import LeaderView
from scalable.store.subscriptions import SubscriptionView

Sessions = Collection[tuple[int, str]] | None
"""The consumers that are connected to the leader, as (subscription id, name); None when nobody told."""


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
    settings = subscription_body(stats.subscription)
    del settings["name"]
    return {
        **settings,
        "msgBacklog": stats.backlog.messages,
        "backlogExact": stats.backlog.exact,
        "segments": _segments(stats),
        "consumers": [consumer_body(stats, each, sessions) for each in stats.consumers],
    }


def _segments(stats: SubscriptionStats) -> dict[str, Any]:
    owners: dict[int, set[str]] = {}
    for consumer in stats.consumers:
        for unit in consumer.units:
            owners.setdefault(unit.segment_id, set()).add(consumer.name)
    return {
        str(key): {
            "msgBacklog": one.messages,
            "position": one.position,
            "endOffset": one.end_offset,
            "consumerCount": len(owners.get(key, ())),
            "waitsFor": [
                {"segmentId": wait.segment_id, "unackedMessages": wait.unacknowledged}
                for wait in stats.backlog.waits.get(key, ())
            ],
        }
        for key, one in stats.backlog.segments.items()
    }


def consumer_body(stats: SubscriptionStats, consumer: ConsumerView, sessions: Sessions) -> dict[str, Any]:
    """A consumer with what it owns."""
    connected = None if sessions is None else (stats.subscription.subscription_id, consumer.name) in sessions
    return {
        "consumerName": consumer.name,
        "connected": connected,
        "session": {None: "UNKNOWN", True: "CONNECTED", False: "GRACE"}[connected],
        "standby": not consumer.units,
        "registeredAtMs": consumer.registered_at_ms,
        "segmentIds": sorted({unit.segment_id for unit in consumer.units}),
        "units": [
            {
                "segmentId": unit.segment_id,
                "bucket": unit.bucket,
                "bucketRange": unit.bucket_range.hex,
                "generation": unit.generation,
                "position": unit.position,
                "nextOwner": unit.next_owner,
            }
            for unit in consumer.units
        ],
    }


def leader_body(leader: LeaderView) -> dict[str, Any]:
    """Who leads."""
    return {"term": leader.term, "url": leader.url, "sinceMs": leader.since_ms}


def topic_stats_body(stats: TopicStats, sessions: Sessions) -> dict[str, Any]:
    """A topic with all its subscriptions, by the names of PIP-483."""
    topic = stats.topic
    segments = {
        str(key): {
            "name": str(SegmentName(topic.name, segment.hash_range, key)),
            "state": segment.state.value,
            "parentIds": list(segment.parent_ids),
            "childIds": list(segment.child_ids),
            "entryBuckets": len(segment.entry_bucket_splits) + 1,
        }
        for key, segment in sorted(topic.layout.segments.items())
    }
    return {
        "layout": {"epoch": topic.epoch, "segments": segments},
        "leader": leader_body(stats.leader),
        "msgRateIn": _sum(stats, "msgRateIn"),
        "byteRateIn": _sum(stats, "bytesRateIn"),
        "msgRateOut": _sum(stats, "msgRateOut"),
        "byteRateOut": _sum(stats, "bytesRateOut"),
        "subscriptions": {each.subscription.name: stats_body(each, sessions) for each in stats.subscriptions},
    }


def _sum(stats: TopicStats, metric: str) -> float:
    return round(sum(rates[metric] for rates in stats.rates.values()), 3)


def assignments_body(view: AssignmentsView, sessions: Sessions) -> dict[str, Any]:
    """Who reads what."""
    return {
        "epoch": view.topic.epoch,
        "generation": view.stats.subscription.generation,
        "leader": leader_body(view.leader),
        "consumers": [consumer_body(view.stats, each, sessions) for each in view.stats.consumers],
    }


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
