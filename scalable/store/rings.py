"""Rows of the rings of tiles: rolled up from the finer ring, read by layers, let go with their age."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from django.db import connection
from django.db.models import Q

from scalable.domain.rings import RINGS, Layer, Ring
from scalable.models import LoadTile
from scalable.store.clock import milliseconds, moment
from scalable.store.loads import SegmentRef, Tile

# Messages are kept: the mean of a tile, over what was observed, is that of the tiles that it is made of.
_ROLL_UP = """
INSERT INTO scalable_loadtile (topic_id, segment_id, span_minutes, minute, mean, peak, observed_ms)
SELECT topic_id, segment_id, %(span)s, block, array_agg(mean ORDER BY part), array_agg(peak ORDER BY part),
       max(observed)
FROM (
    SELECT tile.topic_id, tile.segment_id, wanted.block, parts.part,
           sum(parts.mean * tile.observed_ms) / sum(tile.observed_ms) AS mean,
           max(parts.peak) AS peak, sum(tile.observed_ms) AS observed
    FROM unnest(%(topics)s::bigint[], %(segments)s::bigint[], %(blocks)s::timestamptz[])
         AS wanted(topic_id, segment_id, block)
    JOIN scalable_loadtile tile ON tile.topic_id = wanted.topic_id AND tile.segment_id = wanted.segment_id
         AND tile.span_minutes = %(finer)s
         AND tile.minute >= wanted.block AND tile.minute < wanted.block + make_interval(mins => %(span)s)
    CROSS JOIN LATERAL unnest(tile.mean, tile.peak) WITH ORDINALITY AS parts(mean, peak, part)
    GROUP BY tile.topic_id, tile.segment_id, wanted.block, parts.part
) AS rolled
GROUP BY topic_id, segment_id, block
ON CONFLICT (topic_id, span_minutes, minute, segment_id)
DO UPDATE SET mean = excluded.mean, peak = excluded.peak, observed_ms = excluded.observed_ms
"""

# What another transaction writes is passed over: it goes the next time. An array is looked up once, while
# IN (...) may be asked anew for each row and so take more than its limit.
_TRIM = """
DELETE FROM scalable_loadtile WHERE id = ANY(ARRAY(
    SELECT id FROM scalable_loadtile WHERE span_minutes = %s AND minute < %s
    ORDER BY minute LIMIT %s FOR UPDATE SKIP LOCKED
))
"""


def roll_up(blocks: Collection[tuple[SegmentRef, int]], *, ring: Ring, finer: Ring) -> None:
    """Make tiles of a ring anew, each by its segment and start, from all that the finer ring has of them.

    The caller holds the locks of the topics.
    """
    if not blocks:
        return
    ordered = sorted(blocks)
    with connection.cursor() as cursor:
        cursor.execute(
            _ROLL_UP,
            {
                "span": ring.minutes,
                "finer": finer.minutes,
                "topics": [ref[0] for ref, _ in ordered],
                "segments": [ref[1] for ref, _ in ordered],
                "blocks": [moment(start_ms) for _, start_ms in ordered],
            },
        )


def trim(*, now_ms: int, limit: int) -> None:
    """Let tiles go that are older than their rings, of each ring so many at most."""
    with connection.cursor() as cursor:
        for ring in RINGS:
            cursor.execute(_TRIM, [ring.minutes, moment(ring.start_ms(now_ms)), limit])


def read_layers(
    topic_id: int, layers: Iterable[Layer], *, from_ms: int, to_ms: int, limit: int
) -> Sequence[Tile]:
    """Give the newest `limit` tiles that begin in a span, both ends included, of each layer's ring.

    They ascend by time and segment.
    """
    wanted = Q(pk=None)
    for layer in layers:
        inside = Q(span_minutes=layer.ring.minutes, minute__gte=moment(layer.from_ms))
        wanted |= inside if layer.to_ms is None else inside & Q(minute__lt=moment(layer.to_ms))
    span = LoadTile.objects.filter(topic_id=topic_id, minute__gte=moment(from_ms), minute__lte=moment(to_ms))
    rows = span.filter(wanted).order_by("-minute", "-segment_id")[:limit]
    return [
        Tile(
            row.segment_id,
            milliseconds(row.minute),
            tuple(row.mean),
            tuple(row.peak),
            row.span_minutes,
            row.observed_ms,
        )
        for row in reversed(rows)
    ]
