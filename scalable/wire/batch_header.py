"""The header of a record batch: all that a server reads to store and deliver it (`docs/batch-format.md`).

The header's checksum covers the index, and the index holds the checksum of each sub-block, so that a batch
whose header and sub-blocks pass is whole.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from crc32c import crc32c

from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import MAX_HASH

MAGIC = b"SB"
VERSION = 1
VERSION_DELAYED = 2
"""Version 1 with the time from which the records are due; written only when there is one."""
MAX_RECORDS = 65_535
MAX_BUCKETS = 1_024
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_UNCOMPRESSED_BYTES = 32 * 1024 * 1024
NO_SEQUENCE = -1

_FIXED = struct.Struct(">2sBBBBHIHHqqqI")
_FIXED_DELAYED = struct.Struct(">2sBBBBHIHHqqqqI")
_ENTRY = struct.Struct(">HHIIII")
_CRC = struct.Struct(">I")
_MAX_SEQUENCE = 2**63 - 1
_MAX_SPAN = 2**32 - 1


class Codec(IntEnum):
    """How each sub-block is compressed."""

    NONE = 0
    ZSTD = 1


class Mode(IntEnum):
    """Whether the records have keys; both never share a batch."""

    KEYED = 0
    KEYLESS = 1


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """One sub-block: the bucket hashes (low half of the key hash) it covers, its records and its size."""

    start: int
    end: int
    count: int
    stored_bytes: int
    uncompressed_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What is known of a batch without touching its body.

    `hash_min` and `hash_max` are segment hashes (high 16 bits of the key hash). A keyless batch has there the
    one hash by which its producer routed it, or 0 and 65535 when it was not routed by a hash. `crc` is the
    header's checksum. QUEUE subscriptions hold the records back until `deliver_at_ms`; 0 holds nothing back.
    """

    version: int
    codec: Codec
    mode: Mode
    count: int
    hash_min: int
    hash_max: int
    first_sequence: int
    last_sequence: int
    published_at_ms: int
    uncompressed_bytes: int
    buckets: tuple[BucketEntry, ...]
    crc: int
    deliver_at_ms: int = 0

    @property
    def size(self) -> int:
        """Give the length of the header in bytes; the first sub-block begins there."""
        return _fixed_of(self.version).size + len(self.buckets) * _ENTRY.size + _CRC.size

    @property
    def unrouted(self) -> bool:
        """Tell whether the batch fits every segment: keyless, and not routed by a hash."""
        return self.mode is Mode.KEYLESS and self.hash_min == 0 and self.hash_max == MAX_HASH

    def block_bounds(self, index: int) -> tuple[int, int]:
        """Give where a sub-block lies in the batch: its first byte and the byte behind its last."""
        start = self.size + sum(entry.stored_bytes for entry in self.buckets[:index])
        return start, start + self.buckets[index].stored_bytes


def encode_header(
    *,
    codec: Codec,
    mode: Mode,
    hashes: tuple[int, int],
    sequences: tuple[int, int],
    published_at_ms: int,
    buckets: Sequence[BucketEntry],
    deliver_at_ms: int = 0,
) -> bytes:
    """Give the bytes of a header with its index and checksum."""
    version = VERSION_DELAYED if deliver_at_ms else VERSION
    times = (published_at_ms, deliver_at_ms) if deliver_at_ms else (published_at_ms,)
    count = sum(entry.count for entry in buckets)
    uncompressed = sum(entry.uncompressed_bytes for entry in buckets)
    fixed = _fixed_of(version).pack(
        *(MAGIC, version, codec, mode, 0, len(buckets), count),
        *(*hashes, *sequences, *times, uncompressed),
    )
    head = fixed + b"".join(
        _ENTRY.pack(e.start, e.end, e.count, e.stored_bytes, e.uncompressed_bytes, e.crc) for e in buckets
    )
    return head + _CRC.pack(crc32c(head))


def decode_header(data: bytes | memoryview, *, cut: bool = False) -> BatchHeader:
    """Read and check the header of a batch without touching its body; raises BatchInvalid.

    A `cut` batch may lack sub-blocks that its index names (`scalable.wire.bucket_batch`).
    """
    form = _fixed_of(data[2] if len(data) > 2 else VERSION)
    if len(data) < form.size:
        raise BatchInvalid(problem=f"a header has at least {form.size} bytes")
    magic, version, codec, mode, reserved, bucket_count, *numbers = form.unpack_from(data)
    _check_kind(magic, version, codec, mode, reserved)
    end = form.size + bucket_count * _ENTRY.size
    if not 1 <= bucket_count <= MAX_BUCKETS or len(data) < end + _CRC.size:
        raise BatchInvalid(problem=f"{bucket_count} sub-blocks are not possible here")
    (crc,) = _CRC.unpack_from(data, end)
    if crc32c(data[:end]) != crc:
        raise BatchInvalid(problem="the header's checksum does not match")
    entries = tuple(BucketEntry(*entry) for entry in _ENTRY.iter_unpack(data[form.size : end]))
    deliver_at_ms = numbers.pop(-2) if version == VERSION_DELAYED else 0
    header = BatchHeader(
        *(version, Codec(codec), Mode(mode), *numbers, entries, crc, deliver_at_ms),
    )
    problem = _problem_of(header) or _problem_of_index(header, _whole_size(header) if cut else len(data))
    if problem:
        raise BatchInvalid(problem=problem)
    return header


def check_batch(data: bytes | memoryview) -> BatchHeader:
    """Read the header and compare each sub-block with its checksum, nothing more; raises BatchInvalid."""
    header = decode_header(data)
    start = header.size
    for entry in header.buckets:
        check_block(entry, data[start : start + entry.stored_bytes])
        start += entry.stored_bytes
    return header


def check_block(entry: BucketEntry, stored: bytes | memoryview) -> None:
    """Compare a stored sub-block with its checksum; raises BatchInvalid."""
    if crc32c(stored) != entry.crc:
        raise BatchInvalid(problem=f"the checksum of the sub-block {entry.start}-{entry.end} does not match")


def _fixed_of(version: int) -> struct.Struct:
    return _FIXED_DELAYED if version == VERSION_DELAYED else _FIXED


def _check_kind(magic: bytes, version: int, codec: int, mode: int, reserved: int) -> None:
    if magic != MAGIC:
        raise BatchInvalid(problem="it does not begin with the letters SB")
    if version not in {VERSION, VERSION_DELAYED}:
        raise BatchInvalid(
            problem=f"version {version} is unknown; versions {VERSION} and {VERSION_DELAYED} are known"
        )
    if codec not in Codec._value2member_map_:
        raise BatchInvalid(problem=f"codec {codec} is unknown")
    if mode not in Mode._value2member_map_ or reserved:
        raise BatchInvalid(problem=f"mode {mode} or reserved byte {reserved} is unknown")


def _problem_of(header: BatchHeader) -> str | None:
    first, last = header.first_sequence, header.last_sequence
    if not 1 <= header.count <= MAX_RECORDS:
        return f"it holds {header.count} records; 1 to {MAX_RECORDS} are possible"
    if header.hash_min > header.hash_max:
        return "its least hash is above its greatest"
    if header.deliver_at_ms < (header.version == VERSION_DELAYED):
        return f"the time {header.deliver_at_ms} from which it is due is not after 1970"
    if first == NO_SEQUENCE or last == NO_SEQUENCE:
        return None if first == last else "only one of its sequences is absent"
    if not 0 <= first <= last or not header.count - 1 <= last - first <= _MAX_SPAN:
        return f"{header.count} records cannot rise from sequence {first} to {last}"
    return None


def _whole_size(header: BatchHeader) -> int:
    return header.size + sum(entry.stored_bytes for entry in header.buckets)


def _problem_of_index(header: BatchHeader, total_bytes: int) -> str | None:
    entries = header.buckets
    if any(e.start > e.end or not e.count for e in entries):
        return "a sub-block is empty or ends before it starts"
    if any(before.end >= after.start for before, after in pairwise(entries)):
        return "its sub-blocks overlap or do not ascend"
    if sum(e.count for e in entries) != header.count:
        return "its sub-blocks hold another number of records"
    if sum(e.uncompressed_bytes for e in entries) != header.uncompressed_bytes:
        return "its sub-blocks have another uncompressed size"
    if header.uncompressed_bytes > MAX_UNCOMPRESSED_BYTES or total_bytes > MAX_BATCH_BYTES:
        return f"it is larger than {MAX_BATCH_BYTES} bytes, or {MAX_UNCOMPRESSED_BYTES} uncompressed"
    if _whole_size(header) != total_bytes:
        return "its length is not what its index says"
    return None
