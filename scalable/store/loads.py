"""Rows of segment loads, the pipeline's watermark and the tiles of the map."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Exists, Max, OuterRef, Q, Sum

from scalable.domain.load import LoadRecord, SegmentRates
from scalable.domain.names import TopicName
from scalable.domain.segment import SegmentState
from scalable.models import LoadTile, LoadWatermark, PrunedSegment, Segment, SegmentLoad, Topic
from scalable.store.clock import milliseconds, moment

SegmentRef = tuple[int, int]
"""A topic's incarnation and the id of one of its segments."""

_ROWS_AT_ONCE = 2_000
_RECENT = """
SELECT tile.topic_id, tile.segment_id, tile.minute, tile.observed_ms,
       CASE WHEN active.segment_id IS NULL OR tile.minute >= %(parts_since)s THEN tile.mean
            ELSE ARRAY[(SELECT sum(part) FROM unnest(tile.mean) AS part)] END
FROM unnest(%(topics)s::bigint[], %(since)s::timestamptz[]) AS wanted (topic_id, since)
JOIN scalable_loadtile AS tile
  ON tile.topic_id = wanted.topic_id AND tile.span_minutes = 1 AND tile.minute >= wanted.since
LEFT JOIN unnest(%(active_topics)s::bigint[], %(active_segments)s::bigint[]) AS active (topic_id, segment_id)
  ON active.topic_id = tile.topic_id AND active.segment_id = tile.segment_id
"""
_RATE_FIELDS = ["msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out"]


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """A topic's incarnation with the policy overrides that rule it, as stored."""

    incarnation: int
    topic: dict[str, Any] | None
    namespace: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tile:
    """Mean and largest incoming messages per second of a segment, per 1/32 of its range.

    Of `span_minutes` minutes from `minute_ms` on; the mean is over what was observed of them.
    """

    segment_id: int
    minute_ms: int
    mean: tuple[float, ...]
    peak: tuple[float, ...]
    span_minutes: int = 1
    observed_ms: int = 60_000


def find_topic(name: TopicName) -> TopicPolicies | None:
    """The topic of this name, or None."""
    row = (
        Topic.objects.filter(namespace__tenant=name.tenant, namespace__name=name.namespace, name=name.name)
        .select_related("namespace")
        .first()
    )
    if row is None:
        return None
    return TopicPolicies(row.pk, row.auto_scale_policy, row.namespace.auto_scale_policy)


def topic_names(incarnations: Collection[int]) -> dict[int, str]:
    """The full names of the topics that still exist, by incarnation."""
    rows = Topic.objects.filter(pk__in=incarnations).select_related("namespace").only("name", "namespace")
    return {row.pk: str(TopicName(row.namespace.tenant, row.namespace.name, row.name)) for row in rows}


def active_segments(incarnations: Collection[int]) -> set[SegmentRef]:
    """The segments of these topics that take writes."""
    rows = Segment.objects.filter(topic_id__in=incarnations, state=SegmentState.ACTIVE)
    return set(rows.values_list("topic_id", "segment_id"))


def existing_segments(refs: Collection[SegmentRef]) -> set[SegmentRef]:
    """Those of the segments that have a row, sealed ones too, or are remembered as pruned."""
    named = {
        "topic_id__in": {topic_id for topic_id, _ in refs},
        "segment_id__in": {segment_id for _, segment_id in refs},
    }
    rows = Segment.objects.filter(**named).values_list("topic_id", "segment_id")
    pruned = PrunedSegment.objects.filter(**named).values_list("topic_id", "segment_id")
    return {*rows, *pruned} & set(refs)


def load_records(incarnations: Collection[int]) -> dict[SegmentRef, LoadRecord]:
    """The loads of these topics as last reported."""
    rows = SegmentLoad.objects.filter(topic_id__in=incarnations)
    return {(row.topic_id, row.segment_id): _load_record(row) for row in rows}


def messages_in(incarnations: Collection[int]) -> dict[int, float]:
    """The messages per second that come into all active segments of each topic, as last reported."""
    active = Segment.objects.filter(
        topic_id=OuterRef("topic_id"), segment_id=OuterRef("segment_id"), state=SegmentState.ACTIVE
    )
    loads = SegmentLoad.objects.filter(Exists(active), topic_id__in=incarnations)
    return dict(loads.values_list("topic_id").annotate(total=Sum("msg_rate_in")))


def write_loads(rates: Mapping[SegmentRef, SegmentRates], *, modified_at: datetime) -> None:
    """Set the loads of segments; the caller holds the locks of their topics."""
    SegmentLoad.objects.bulk_create(
        [_load_row(ref, rates[ref], modified_at) for ref in sorted(rates)],
        update_conflicts=True,
        unique_fields=["topic", "segment_id"],
        update_fields=[*_RATE_FIELDS, "modified_at"],
    )


def lock_topics(incarnations: Collection[int]) -> set[int]:
    """Lock the topics that still exist, in the order of their incarnations, and give those."""
    rows = Topic.objects.select_for_update(no_key=True).filter(pk__in=incarnations).order_by("pk")
    return set(rows.values_list("pk", flat=True))


def lock_watermark(reporter: str, *, at: datetime) -> datetime | None:
    """Take the reporter's row for this transaction and give its watermark, None for a new reporter."""
    row, created = LoadWatermark.objects.select_for_update(no_key=True).get_or_create(
        reporter=reporter, defaults={"watermark": moment(0), "updated_at": at}
    )
    return None if created else row.watermark


def move_watermark(reporter: str, *, watermark: datetime, at: datetime) -> None:
    """Set the watermark of a reporter whose row is locked."""
    LoadWatermark.objects.filter(reporter=reporter).update(watermark=watermark, updated_at=at)


def newest_watermark_ms() -> int | None:
    """How far the furthest reporter has come, in ms since the epoch, or None without any."""
    newest = LoadWatermark.objects.aggregate(newest=Max("watermark"))["newest"]
    return None if newest is None else milliseconds(newest)


def lives_of_sealed(topic_id: int, segment_ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """When those of a topic's segments were created and sealed, in ms, that are sealed or pruned."""
    wanted = Q(topic_id=topic_id, segment_id__in=segment_ids, sealed_at__isnull=False)
    return {
        segment_id: (milliseconds(created_at), milliseconds(sealed_at))
        for model in (PrunedSegment, Segment)
        for segment_id, created_at, sealed_at in model.objects.filter(wanted).values_list(
            "segment_id", "created_at", "sealed_at"
        )
        if sealed_at is not None
    }


def observed_minutes(minutes: Collection[tuple[SegmentRef, int]]) -> dict[tuple[SegmentRef, int], int]:
    """For how many ms each of the minutes was observed that have a one-minute tile, by segment and start."""
    rows = LoadTile.objects.filter(
        topic_id__in={ref[0] for ref, _ in minutes},
        minute__in={moment(minute_ms) for _, minute_ms in minutes},
        span_minutes=1,
    )
    found = rows.values_list("topic_id", "segment_id", "minute", "observed_ms")
    return {
        ((topic_id, segment_id), milliseconds(minute)): observed_ms
        for topic_id, segment_id, minute, observed_ms in found
    }


def write_tiles(tiles: Iterable[tuple[int, Tile]]) -> None:
    """Set tiles by (topic, minute, segment); a tile that was there is replaced."""
    LoadTile.objects.bulk_create(
        [_tile_row(topic_id, tile) for topic_id, tile in tiles],
        update_conflicts=True,
        unique_fields=["topic", "span_minutes", "minute", "segment_id"],
        update_fields=["mean", "peak", "observed_ms"],
    )


def read_tiles(topic_id: int, *, first: datetime, last: datetime, limit: int) -> Sequence[Tile]:
    """The newest `limit` one-minute tiles of a span, both ends included, ascending by minute and segment."""
    span = LoadTile.objects.filter(topic_id=topic_id, span_minutes=1).filter(
        Q(minute__gte=first), Q(minute__lte=last)
    )
    rows = span.order_by("-minute", "-segment_id")[:limit]
    return [
        Tile(row.segment_id, milliseconds(row.minute), tuple(row.mean), tuple(row.peak))
        for row in reversed(rows)
    ]


def recent_tiles(
    since: Mapping[int, datetime], *, active: Collection[SegmentRef], parts_since: datetime
) -> Iterator[tuple[int, Tile]]:
    """All one-minute tiles of each topic since a minute of its own, each with its topic, without peaks.

    Of segments that are still active the mean is told in one, not in parts, where older than `parts_since`.
    """
    given: dict[str, Any] = {
        "topics": list(since),
        "since": list(since.values()),
        "active_topics": [topic_id for topic_id, _ in active],
        "active_segments": [segment_id for _, segment_id in active],
        "parts_since": parts_since,
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, given)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            for topic_id, segment_id, minute, observed_ms, mean in rows:
                tile = Tile(segment_id, milliseconds(minute), tuple(mean), (), observed_ms=observed_ms)
                yield topic_id, tile


def _load_record(row: SegmentLoad) -> LoadRecord:
    rates = SegmentRates(row.msg_rate_in, row.bytes_rate_in, row.msg_rate_out, row.bytes_rate_out)
    return LoadRecord(rates=rates, modified_at_ms=milliseconds(row.modified_at))


def _load_row(ref: SegmentRef, rates: SegmentRates, modified_at: datetime) -> SegmentLoad:
    return SegmentLoad(
        topic_id=ref[0],
        segment_id=ref[1],
        msg_rate_in=rates.msg_rate_in,
        bytes_rate_in=rates.bytes_rate_in,
        msg_rate_out=rates.msg_rate_out,
        bytes_rate_out=rates.bytes_rate_out,
        modified_at=modified_at,
    )


def _tile_row(topic_id: int, tile: Tile) -> LoadTile:
    return LoadTile(
        topic_id=topic_id,
        segment_id=tile.segment_id,
        minute=moment(tile.minute_ms),
        mean=list(tile.mean),
        peak=list(tile.peak),
        span_minutes=tile.span_minutes,
        observed_ms=tile.observed_ms,
    )
