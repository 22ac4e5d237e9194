"""What REST answers about one segment (names as in Pulsar's SegmentTopicStats)."""

from typing import Any, Literal

from scalable.api.serializers import Body, HashRangeBody, Identifier
from scalable.api.subscription_bodies import SubscriptionKind
from scalable.domain.load import LoadRecord
from scalable.domain.names import SegmentName
from scalable.services.segment_stats import InSegment, SegmentFigures


class InSegmentBody(Body):
    """A subscription in the segment; `consumers` own it or one of its entry buckets."""

    type: SubscriptionKind
    msg_backlog: int
    backlog_exact: bool
    backlog_size: int
    position: int
    end_offset: int
    consumers: list[str]


class SegmentStatsBody(Body):
    """A segment's place, offsets, size in bytes, load and subscriptions.

    Rates are those last reported; `loadKnown` is false when that is too long ago.
    """

    name: str
    segment_id: Identifier
    hash_range: HashRangeBody
    state: Literal["ACTIVE", "SEALED"]
    terminated: bool
    start_offset: int
    end_offset: int
    topic_creation_time_ms: int
    storage_size: int
    backlog_size: int
    msg_rate_in: float
    byte_rate_in: float
    msg_rate_out: float
    byte_rate_out: float
    average_msg_size: float
    load_known: bool
    load_modified_at_ms: int
    subscriptions: dict[str, InSegmentBody]


def segment_stats_body(figures: SegmentFigures) -> dict[str, Any]:
    """Write a segment in numbers."""
    segment, store = figures.segment, figures.store
    inside = {each.subscription.name: _in_segment(each) for each in figures.subscriptions}
    return {
        "name": str(SegmentName(figures.topic, segment.hash_range, segment.segment_id)),
        "segmentId": segment.segment_id,
        "hashRange": {"start": segment.hash_range.start, "end": segment.hash_range.end},
        "state": segment.state.value,
        "terminated": store.terminated,
        "startOffset": store.start_offset,
        "endOffset": store.end_offset,
        "topicCreationTimeMs": store.created_at_ms,
        "storageSize": store.bytes_stored,
        "backlogSize": max((each["backlogSize"] for each in inside.values()), default=0),
        **load_body(figures.load),
        "loadKnown": figures.load_known,
        "loadModifiedAtMs": figures.load.modified_at_ms,
        "subscriptions": inside,
    }


def load_body(load: LoadRecord) -> dict[str, float]:
    """Write rates by the names of Pulsar's stats."""
    rates = load.rates
    average = rates.bytes_rate_in / rates.msg_rate_in if rates.msg_rate_in else 0.0
    return {
        "msgRateIn": round(rates.msg_rate_in, 3),
        "byteRateIn": round(rates.bytes_rate_in, 3),
        "msgRateOut": round(rates.msg_rate_out, 3),
        "byteRateOut": round(rates.bytes_rate_out, 3),
        "averageMsgSize": round(average, 3),
    }


def _in_segment(each: InSegment) -> dict[str, Any]:
    return {
        "type": each.subscription.type.value,
        "msgBacklog": each.backlog.messages,
        "backlogExact": each.backlog.exact,
        "backlogSize": each.backlog_bytes,
        "position": each.backlog.position,
        "endOffset": each.backlog.end_offset,
        "consumers": list(each.consumers),
    }
