"""Batches as the co-owners of a segment get them: the whole header, and the sub-blocks of their entry bucket.

Each record has a place in the space of bucket hashes (0..65535), and belongs to the bucket whose range has
it: the low 16 bits of its key's hash; for a keyless record those of its batch's base offset, hashed as if
that were the key in decimal. Whatever the producer wrote, the place lies in the range that the index gives
for the record's sub-block (the nearest end of it otherwise), so that every record belongs to one bucket.

A cut batch has the original header and, of the sub-blocks that the header names, those whose range overlaps
the bucket's, one after the other. A sub-block across the border comes to both sides, who drop by place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import HashRange, bucket_hash, key_hash
from scalable.wire.batch import Record, decode_block
from scalable.wire.batch_header import BatchHeader, BucketEntry, Mode, decode_header


@dataclass(frozen=True, slots=True)
class CutBatch:
    """A batch as it is sent for one bucket; `count` records lie in it, of this bucket or near it."""

    payload: bytes
    count: int


@dataclass(frozen=True, slots=True)
class BucketBatch:
    """A batch as it was received: (position in the batch, record) of those of the bucket, ascending."""

    header: BatchHeader
    count: int
    records: Sequence[tuple[int, Record]]


def cut_batch(batch: bytes, bucket_range: HashRange, *, base_offset: int) -> CutBatch | None:
    """Cut a stored batch to a bucket without decompressing it; None when it has no record for the bucket."""
    header = decode_header(batch)
    kept = _overlapping(header, bucket_range, base_offset)
    if len(kept) == len(header.buckets):
        return CutBatch(batch, header.count)
    if not kept:
        return None
    blocks = (slice(*header.block_bounds(index)) for index in kept)
    payload = b"".join([batch[: header.size], *(batch[block] for block in blocks)])
    return CutBatch(payload, sum(header.buckets[index].count for index in kept))


def decode_cut(payload: bytes, bucket_range: HashRange, *, base_offset: int) -> BucketBatch:
    """Decode what `cut_batch` gives, without the records of other buckets; raises BatchInvalid."""
    header = decode_header(payload, cut=True)
    kept = _overlapping(header, bucket_range, base_offset)
    found: list[tuple[int, Record]] = []
    start = header.size
    for index in kept:
        entry = header.buckets[index]
        stored = payload[start : start + entry.stored_bytes]
        start += entry.stored_bytes
        found.extend(_of_bucket(header, index, stored, bucket_range, base_offset))
    if start != len(payload):
        raise BatchInvalid(problem="it is cut for another bucket than this one")
    if len(kept) > 1:
        found.sort(key=lambda one: one[0])
    return BucketBatch(header, sum(header.buckets[index].count for index in kept), found)


def places(batch: bytes, *, base_offset: int) -> list[int]:
    """Give the place of each record of a stored batch, in the producer's order; raises BatchInvalid."""
    header = decode_header(batch)
    found: dict[int, int] = {}
    for index, entry in enumerate(header.buckets):
        block = decode_block(header, index, batch[slice(*header.block_bounds(index))])
        for position, record in zip(*block, strict=True):
            found[position] = _place(record, entry, base_offset)
    return [found[position] for position in sorted(found)]


def _of_bucket(
    header: BatchHeader, index: int, stored: bytes, bucket_range: HashRange, base_offset: int
) -> Iterator[tuple[int, Record]]:
    entry = header.buckets[index]
    block = zip(*decode_block(header, index, stored), strict=True)
    if bucket_range.start <= entry.start and entry.end <= bucket_range.end:
        return block
    return (one for one in block if bucket_range.contains(_place(one[1], entry, base_offset)))


def _overlapping(header: BatchHeader, bucket_range: HashRange, base_offset: int) -> list[int]:
    """Name the sub-blocks that may hold records of the bucket, by their index."""
    if header.mode is Mode.KEYLESS:
        return [
            index
            for index, entry in enumerate(header.buckets)
            if bucket_range.contains(_within(_keyless_hash(base_offset), entry))
        ]
    return [
        index
        for index, entry in enumerate(header.buckets)
        if bucket_range.start <= entry.end and entry.start <= bucket_range.end
    ]


def _place(record: Record, entry: BucketEntry, base_offset: int) -> int:
    hash32 = record.key_hash
    return _within(_keyless_hash(base_offset) if hash32 is None else bucket_hash(hash32), entry)


def _within(hash16: int, entry: BucketEntry) -> int:
    return min(max(hash16, entry.start), entry.end)


def _keyless_hash(base_offset: int) -> int:
    return bucket_hash(key_hash(str(base_offset)))
