"""What REST reads and answers about a topic's layout: keys, lineage, and changes on paper."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from scalable.api.serializers import Body, HashRangeBody, Identifier, PageSize, Query, TimeMs
from scalable.domain.forecast import Passing
from scalable.domain.keyspace import HashRange, bucket_hash, segment_hash
from scalable.domain.layout import Segment
from scalable.services.locating import Known, Lineage, Located, Reading
from scalable.services.previewing import Child, Preview
from scalable.store.history import PastSegment

MAX_KEY_CHARACTERS = 4_096
MAX_HASH = 0xFFFF_FFFF
LineageSize = Annotated[int, Meta(ge=0, le=10_000)]


class LocateQuery(Query):
    """A key, or the hash of one (Murmur3_32 of its UTF-8 form); `atTime` in milliseconds asks about then."""

    key: Annotated[str, Meta(max_length=MAX_KEY_CHARACTERS)] | UnsetType = UNSET
    hash: Annotated[int, Meta(ge=0, le=MAX_HASH)] | UnsetType = UNSET
    at_time: TimeMs | UnsetType = UNSET


class LineageQuery(Query):
    """How many pruned segments are told, those pruned last first, behind an offset."""

    pruned: LineageSize = 1_000
    pruned_offset: Identifier = 0


class HistoryQuery(Query):
    """A page, those pruned last first."""

    limit: PageSize = 100
    offset: Identifier = 0


class SegmentNodeBody(Body):
    """A segment that is or was: `sealedAtMs` -1 while ACTIVE; `prunedAtMs` and `endOffset` once PRUNED."""

    segment_id: Identifier
    hash_range: HashRangeBody
    state: Literal["ACTIVE", "SEALED", "PRUNED"]
    created_at_epoch: int
    sealed_at_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    pruned_at_ms: int | None
    end_offset: int | None


class EdgeBody(Body):
    """A segment that was replaced, and one that replaced it."""

    parent_id: Identifier
    child_id: Identifier


class LineageBody(Body):
    """Nodes by id; edges between those that are told; `prunedTotal` are remembered."""

    epoch: int
    nodes: list[SegmentNodeBody]
    edges: list[EdgeBody]
    pruned_total: int


class HistoryBody(Body):
    """A page of pruned segments, those pruned last first, and how many are remembered."""

    segments: list[SegmentNodeBody]
    total: int


class ReadingBody(Body):
    """A subscription in a segment of the key's line; `position` and `owner` are of the key's entry bucket."""

    segment_id: Identifier
    position: int
    end_offset: int
    msg_backlog: int
    owner: str | None


class LocatedBody(Body):
    """Where a key is, or was at `atTimeMs`: null before the topic was.

    `lineage` has all segments that held the key, the oldest first; what is pruned no subscription reads.
    """

    epoch: int
    hash: int
    segment_hash: int
    entry_bucket_hash: int
    at_time_ms: int | None
    segment: SegmentNodeBody | None
    entry_bucket: int | None
    lineage: list[SegmentNodeBody]
    subscriptions: dict[str, list[ReadingBody]]


class RatesBody(Body):
    """Rates in messages and bytes per second."""

    msg_rate_in: float
    bytes_rate_in: float
    msg_rate_out: float
    bytes_rate_out: float


class ChildBody(Body):
    """A segment that would be made, under this id unless another change comes first."""

    segment_id: Identifier
    hash_range: HashRangeBody
    entry_bucket_splits: list[int]
    estimated_rates: RatesBody | None


class PassingBody(Body):
    """A segment or entry bucket that would pass from one consumer (null: none) to another."""

    segment_id: Identifier
    bucket: int
    from_consumer: str | None
    to_consumer: str


class PreviewBody(Body):
    """What a change would do. Rates are estimated by `tiles` of the map, by `width`, or `unknown`.

    `moves` has, for the first 100 subscriptions that are assigned, what would pass to another consumer once
    the parents are drained.
    """

    epoch: int
    kind: Literal["SPLIT", "MERGE", "REBUCKET"]
    parent_ids: list[Identifier]
    children: list[ChildBody]
    rates_by: Literal["tiles", "width", "unknown"]
    moves: dict[str, list[PassingBody]]
    subscriptions_total: int


def located_body(located: Located, at_time_ms: int | None) -> dict[str, Any]:
    """Write where a key is."""
    return {
        "epoch": located.epoch,
        "hash": located.hash32,
        "segmentHash": segment_hash(located.hash32),
        "entryBucketHash": bucket_hash(located.hash32),
        "atTimeMs": at_time_ms,
        "segment": None if located.segment is None else node_body(located.segment),
        "entryBucket": located.bucket,
        "lineage": [node_body(segment) for segment in located.line],
        "subscriptions": {
            subscription.name: [_reading(each) for each in readings]
            for subscription, readings in located.readings
        },
    }


def lineage_body(lineage: Lineage) -> dict[str, Any]:
    """Write a DAG."""
    return {
        "epoch": lineage.epoch,
        "nodes": [node_body(segment) for segment in lineage.segments],
        "edges": [{"parentId": parent, "childId": child} for parent, child in lineage.edges],
        "prunedTotal": lineage.pruned_total,
    }


def node_body(segment: Known) -> dict[str, Any]:
    """Write a segment, kept or pruned."""
    body: dict[str, Any] = {
        "segmentId": segment.segment_id,
        "hashRange": _range(segment.hash_range),
        "createdAtEpoch": segment.created_epoch,
        "sealedAtEpoch": segment.sealed_epoch,
        "createdAtMs": segment.created_at_ms,
        "sealedAtMs": segment.sealed_at_ms,
    }
    if isinstance(segment, PastSegment):
        return body | {
            "state": "PRUNED",
            "prunedAtMs": segment.pruned_at_ms,
            "endOffset": segment.end_offset,
        }
    return body | _kept(segment)


def preview_body(preview: Preview) -> dict[str, Any]:
    """Write a change on paper."""
    return {
        "epoch": preview.epoch,
        "kind": preview.plan.kind.value,
        "parentIds": list(preview.plan.parent_ids),
        "children": [_child(child) for child in preview.children],
        "ratesBy": preview.basis,
        "moves": {
            subscription.name: [_passing(each) for each in moved] for subscription, moved in preview.moves
        },
        "subscriptionsTotal": preview.subscriptions_total,
    }


def _kept(segment: Segment) -> dict[str, Any]:
    return {"state": segment.state.value, "prunedAtMs": None, "endOffset": None}


def _range(hash_range: HashRange) -> dict[str, int]:
    return {"start": hash_range.start, "end": hash_range.end}


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "segmentId": reading.segment_id,
        "position": reading.position,
        "endOffset": reading.end_offset,
        "msgBacklog": reading.messages,
        "owner": reading.owner,
    }


def _child(child: Child) -> dict[str, Any]:
    rates = child.rates
    return {
        "segmentId": child.planned.segment_id,
        "hashRange": _range(child.planned.hash_range),
        "entryBucketSplits": list(child.planned.entry_bucket_splits),
        "estimatedRates": None
        if rates is None
        else {name: round(rate, 3) for name, rate in rates.by_metric().items()},
    }


def _passing(passing: Passing) -> dict[str, Any]:
    return {
        "segmentId": passing.key.segment_id,
        "bucket": passing.key.bucket,
        "fromConsumer": passing.before,
        "toConsumer": passing.after,
    }
