"""Reads a whole topic from outside the client's consumers: by REST, parents before children."""

from __future__ import annotations

from scalable.client import Admin
from scalable.wire.batch import Record, decode_batch


def stored_records(admin: Admin, topic: str) -> list[Record]:
    """Every stored record, parents before children, by offset within a segment."""
    segments = admin.positions(topic)["segments"]
    return [
        record for segment_id in sorted(segments, key=int) for record in _segment(admin, topic, segment_id)
    ]


def _segment(admin: Admin, topic: str, segment_id: str) -> list[Record]:
    records, offset, end = [], 0, 1
    while offset < end:
        page = admin.read_batches(topic, int(segment_id), offset=offset)
        records += [record for _, batch in page.batches for record in decode_batch(batch)]
        offset, end = page.next_offset, page.end_offset
    return records


def values_by_key(records: list[Record]) -> dict[str | None, list[bytes]]:
    """The values of each key in their stored order."""
    found: dict[str | None, list[bytes]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found
