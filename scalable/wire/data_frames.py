"""Data frames: one binary message each, big-endian."""

import struct
from collections.abc import Iterable

import msgspec

from scalable.domain.errors import FrameInvalid, FrameUnknownType
from scalable.domain.keyspace import HashRange
from scalable.wire.frame import MAX_BIGINT

PUBLISH = 0x01
DELIVERY = 0x02
FLAG_RESTART = 0x01
FLAG_PARTS = 0x02
PARTS = 32
_PUBLISH = struct.Struct(">BBIQ")
_PARTS = struct.Struct(f">{PARTS}H")
_DELIVERY = struct.Struct(">BHQQQQ")


class Publish(msgspec.Struct, frozen=True):
    """Client to produce socket: one encoded batch for one segment.

    `parts` counts the batch's records by 1/32 of the segment's own range, for the map of load; without it the
    records count as spread evenly between the least and the greatest hash of the batch.
    """

    request_id: int
    segment_id: int
    restart: bool
    batch: bytes
    parts: tuple[int, ...] | None = None


class Delivery(msgspec.Struct, frozen=True):
    """Consume socket to client: one encoded batch; its records below `first_offset` are to be skipped.

    For an entry `bucket` of a key-shared subscription, records of other buckets are to be skipped too.
    """

    segment_id: int
    generation: int
    base_offset: int
    first_offset: int
    batch: bytes
    bucket: int = 0


def count_parts(hash_range: HashRange, segment_hashes: Iterable[int]) -> tuple[int, ...]:
    """Count hashes of a segment's range by 1/32 of it, for `Publish.parts`."""
    start, size, counts = hash_range.start, hash_range.size, [0] * PARTS
    for segment_hash in segment_hashes:
        counts[(segment_hash - start) * PARTS // size] += 1
    return tuple(counts)


def encode_publish(frame: Publish) -> bytes:
    """Kind (u8), flags (u8), request id (u32), segment id (u64), parts if flagged (32 times u16), batch."""
    flags = (FLAG_RESTART if frame.restart else 0) | (FLAG_PARTS if frame.parts else 0)
    head = _PUBLISH.pack(PUBLISH, flags, frame.request_id, frame.segment_id)
    return b"".join((head, _PARTS.pack(*frame.parts) if frame.parts else b"", frame.batch))


def decode_publish(data: bytes) -> Publish:
    """Parse a publish frame; raises FrameInvalid, FrameUnknownType."""
    if len(data) < _PUBLISH.size:
        raise FrameInvalid(problem=f"a publish frame has at least {_PUBLISH.size} bytes")
    kind, flags, request_id, segment_id = _PUBLISH.unpack_from(data)
    if kind != PUBLISH:
        raise FrameUnknownType(problem=f"binary frame kind {kind}")
    if flags & ~(FLAG_RESTART | FLAG_PARTS) or segment_id > MAX_BIGINT:
        raise FrameInvalid(problem=f"flags {flags:#04x} or segment id {segment_id} are not possible")
    start, parts = _PUBLISH.size, None
    if flags & FLAG_PARTS:
        if len(data) < start + _PARTS.size:
            raise FrameInvalid(problem="the parts are cut off")
        parts = _PARTS.unpack_from(data, start)
        start += _PARTS.size
    return Publish(request_id, segment_id, bool(flags & FLAG_RESTART), data[start:], parts)


def encode_delivery(frame: Delivery) -> bytes:
    """Kind (u8), bucket (u16), segment id, generation, base offset, first offset (u64 each), batch."""
    head = _DELIVERY.pack(
        *(DELIVERY, frame.bucket, frame.segment_id, frame.generation, frame.base_offset, frame.first_offset)
    )
    return head + frame.batch


def decode_delivery(data: bytes) -> Delivery:
    """Parse a delivery frame; raises FrameInvalid, FrameUnknownType."""
    if len(data) < _DELIVERY.size:
        raise FrameInvalid(problem="a delivery frame has at least 35 bytes")
    kind, bucket, segment_id, generation, base_offset, first_offset = _DELIVERY.unpack_from(data)
    if kind != DELIVERY:
        raise FrameUnknownType(problem=f"binary frame kind {kind}")
    batch = data[_DELIVERY.size :]
    return Delivery(segment_id, generation, base_offset, first_offset, batch, bucket)
