"""Record batches: the unit in which messages are sent, stored and delivered (`docs/batch-format.md`).

A batch is a header with an index, then one sub-block per entry bucket. Inside a sub-block the fields of the
records lie column by column, so that thousands of records cost few calls. Each sub-block is compressed and
checked for itself and can be decoded alone.
"""

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import lt
from typing import Self, TypeVar

import msgspec
import zstandard
from crc32c import crc32c

from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import MAX_HASH, encoded_key_hash, key_hash
from scalable.wire.batch_header import (
    MAX_BATCH_BYTES,
    MAX_BUCKETS,
    MAX_RECORDS,
    MAX_UNCOMPRESSED_BYTES,
    NO_SEQUENCE,
    VERSION,
    BatchHeader,
    BucketEntry,
    Codec,
    Mode,
    check_batch,
    check_block,
    decode_header,
    encode_header,
)
from scalable.wire.texts import first_problem

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BUCKETS",
    "MAX_RECORDS",
    "MAX_UNCOMPRESSED_BYTES",
    "NO_SEQUENCE",
    "VERSION",
    "BatchHeader",
    "BucketEntry",
    "Codec",
    "Mode",
    "Record",
    "check_batch",
    "decode_batch",
    "decode_block",
    "decode_bucket",
    "decode_header",
    "decode_keys",
    "encode_batch",
]

_COMPRESSION_LEVEL = 1
Item = TypeVar("Item")
_HAS_PROPERTIES = 0x01
_FIXED_BYTES = 2 + 8 + 4
"""Of each record, before sequences and lengths of keys: position, event time, length of the value."""


class Record(msgspec.Struct, frozen=True):
    """One message; a `sequence` of -1 is not checked for duplicates, an `event_time_ms` of 0 is unset."""

    key: str | None
    value: bytes
    sequence: int = NO_SEQUENCE
    event_time_ms: int = 0
    properties: Mapping[str, str] = {}

    @property
    def key_hash(self) -> int | None:
        """Hash the key, unsigned: the high 16 bits choose the segment, the low 16 bits the entry bucket."""
        return None if self.key is None else key_hash(self.key)


def encode_batch(
    records: Sequence[Record],
    *,
    published_at_ms: int,
    codec: Codec = Codec.NONE,
    bucket_starts: Sequence[int] = (),
    keyless_hash: int | None = None,
    deliver_at_ms: int = 0,
) -> bytes:
    """Encode records in their order; raises BatchInvalid for what the format cannot hold.

    `bucket_starts`: the ascending first hashes of the entry buckets behind the first one; a bucket without
    records takes no room. `keyless_hash`: the segment hash by which a batch of keyless records is routed, so
    that it finds its segment's successor as keyed ones do; None fits any segment. `deliver_at_ms`: when
    consumers of QUEUE subscriptions get the records at earliest (milliseconds since 1970, by the server's
    clock); 0 is at once.
    """
    mode = _check_records(records)
    if deliver_at_ms < 0:
        raise BatchInvalid(problem=f"the time {deliver_at_ms} from which it is due is before 1970")
    first, last = records[0].sequence, records[-1].sequence
    blocks, entries = [], []
    try:
        keys = [] if mode is Mode.KEYLESS else [(record.key or "").encode() for record in records]
        hashes = None if mode is Mode.KEYLESS else list(map(encoded_key_hash, keys))
        groups = _group(hashes, len(records), _check_starts(bucket_starts))
        for start, end, positions in groups:
            plain = _pack_block(_pick(records, positions), _pick(keys, positions), positions, first)
            stored = _compress(plain, codec)
            blocks.append(stored)
            entries.append(BucketEntry(start, end, len(positions), len(stored), len(plain), crc32c(stored)))
        header = encode_header(
            codec=codec,
            mode=mode,
            hashes=_hash_bounds(hashes, keyless_hash),
            sequences=(first, last),
            published_at_ms=published_at_ms,
            buckets=entries,
            deliver_at_ms=deliver_at_ms,
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise BatchInvalid(
            problem=first_problem((each.key, each.properties) for each in records)
            or f"a field cannot be written: {error}"
        ) from error
    return _check_size(b"".join([header, *blocks]), entries)


def decode_batch(data: bytes | memoryview) -> list[Record]:
    """Decode all records in the producer's order; raises BatchInvalid."""
    header = decode_header(data)
    if len(header.buckets) == 1:
        return _decode_block(header, 0, data)[1]
    records: list[Record | None] = [None] * header.count
    for index in range(len(header.buckets)):
        for position, record in zip(*_decode_block(header, index, data), strict=True):
            records[position] = record
    whole = [record for record in records if record is not None]
    if len(whole) != header.count:
        raise BatchInvalid(problem="two records have the same position")
    return whole


def decode_bucket(data: bytes | memoryview, index: int) -> list[tuple[int, Record]]:
    """Decode the sub-block at `index` of the header's index: (position in the batch, record), ascending."""
    positions, records = _decode_block(decode_header(data), index, data)
    return list(zip(positions, records, strict=True))


def _check_records(records: Sequence[Record]) -> Mode:
    if not 1 <= len(records) <= MAX_RECORDS:
        raise BatchInvalid(problem=f"it holds {len(records)} records; 1 to {MAX_RECORDS} are possible")
    keyless = sum(record.key is None for record in records)
    if keyless not in {0, len(records)}:
        raise BatchInvalid(problem="keyed and keyless records do not share a batch")
    sequences = [record.sequence for record in records]
    if sequences[0] < NO_SEQUENCE:
        raise BatchInvalid(problem=f"the sequence {sequences[0]} is below {NO_SEQUENCE}")
    if sequences[0] == NO_SEQUENCE:
        if any(sequence != NO_SEQUENCE for sequence in sequences):
            raise BatchInvalid(problem="either all records have a sequence or none has")
    elif not all(map(lt, sequences, sequences[1:])):
        raise BatchInvalid(problem="its sequences do not rise")
    return Mode.KEYLESS if keyless else Mode.KEYED


def _check_starts(bucket_starts: Sequence[int]) -> list[int]:
    starts = [0, *bucket_starts]
    if len(starts) > MAX_BUCKETS or starts[-1] > MAX_HASH or not all(map(lt, starts, starts[1:])):
        raise BatchInvalid(
            problem=f"entry buckets must ascend within 1..{MAX_HASH}, at most {MAX_BUCKETS} of them"
        )
    return starts


def _check_size(batch: bytes, entries: Sequence[BucketEntry]) -> bytes:
    uncompressed = sum(entry.uncompressed_bytes for entry in entries)
    if len(batch) > MAX_BATCH_BYTES or uncompressed > MAX_UNCOMPRESSED_BYTES:
        raise BatchInvalid(
            problem=f"{len(batch)} bytes ({uncompressed} uncompressed) are too many for one batch"
        )
    return batch


def _group(
    hashes: Sequence[int] | None, count: int, starts: Sequence[int]
) -> list[tuple[int, int, Sequence[int]]]:
    """Sort the positions into entry buckets: (first hash, last hash, positions) of each that has any."""
    if hashes is None or len(starts) == 1:
        return [(0, MAX_HASH, range(count))]
    ends = [*(start - 1 for start in starts[1:]), MAX_HASH]
    members: list[list[int]] = [[] for _ in starts]
    for position, key_hash32 in enumerate(hashes):
        members[bisect_right(starts, key_hash32 & 0xFFFF) - 1].append(position)
    return [(start, end, found) for start, end, found in zip(starts, ends, members, strict=True) if found]


def _pick(column: Sequence[Item], positions: Sequence[int]) -> Sequence[Item]:
    return column if len(positions) >= len(column) else [column[position] for position in positions]


def _hash_bounds(hashes: Sequence[int] | None, keyless_hash: int | None) -> tuple[int, int]:
    if hashes is not None:
        return min(hashes) >> 16, max(hashes) >> 16
    return (0, MAX_HASH) if keyless_hash is None else (keyless_hash, keyless_hash)


# A sub-block: flags, then one column per field, then the bytes of keys, values and properties.


def _pack_block(
    records: Sequence[Record], keys: Sequence[bytes], positions: Sequence[int], first_sequence: int
) -> bytes:
    count = len(records)
    values = [record.value for record in records]
    properties = (
        [_pack_properties(record.properties) for record in records] if _any_properties(records) else []
    )
    parts = [
        bytes([_HAS_PROPERTIES if properties else 0]),
        struct.pack(f">{count}H", *positions),
        struct.pack(f">{count}q", *[record.event_time_ms for record in records]),
        struct.pack(f">{count}I", *map(len, values)),
    ]
    if first_sequence != NO_SEQUENCE:
        parts.append(struct.pack(f">{count}I", *[record.sequence - first_sequence for record in records]))
    if keys:
        parts.append(struct.pack(f">{count}H", *map(len, keys)))
    if properties:
        parts.append(struct.pack(f">{count}I", *map(len, properties)))
    return b"".join([*parts, *keys, *values, *properties])


def _any_properties(records: Sequence[Record]) -> bool:
    return any([record.properties for record in records])  # noqa: C419 - a list is faster here


def _pack_properties(properties: Mapping[str, str]) -> bytes:
    parts = []
    for name, value in properties.items():
        for text in (name.encode(), value.encode()):
            parts += [struct.pack(">H", len(text)), text]
    return b"".join(parts)


def _compress(plain: bytes, codec: Codec) -> bytes:
    if codec is Codec.NONE:
        return plain
    return zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(plain)


def _decompress(stored: bytes, entry: BucketEntry, codec: Codec) -> bytes:
    if codec is Codec.NONE:
        plain = stored
    else:
        # The frame's own claim is compared first: the decompressor allocates what the frame claims.
        try:
            if zstandard.get_frame_parameters(stored).content_size != entry.uncompressed_bytes:
                raise BatchInvalid(problem="a compressed sub-block claims another size than the index")
            plain = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise BatchInvalid(problem=f"a sub-block cannot be decompressed: {error}") from error
    if len(plain) != entry.uncompressed_bytes:
        raise BatchInvalid(problem="a sub-block has another size than the index says")
    return plain


def _decode_block(
    header: BatchHeader, index: int, data: bytes | memoryview
) -> tuple[tuple[int, ...], list[Record]]:
    start, end = header.block_bounds(index)
    return decode_block(header, index, bytes(data[start:end]))


def decode_block(header: BatchHeader, index: int, stored: bytes) -> tuple[tuple[int, ...], list[Record]]:
    """Decode one stored sub-block: the positions in the batch, and the records; raises BatchInvalid."""
    entry = header.buckets[index]
    check_block(entry, stored)
    try:
        return _unpack_block(_decompress(stored, entry, header.codec), header, entry.count)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise BatchInvalid(problem=f"a sub-block cannot be read: {error}") from error


def decode_keys(header: BatchHeader, index: int, data: bytes | memoryview) -> list[str]:
    """Decode only the keys of a sub-block of a keyed batch whose checksums hold; raises BatchInvalid."""
    start, end = header.block_bounds(index)
    entry = header.buckets[index]
    plain = _decompress(bytes(data[start:end]), entry, header.codec)
    fixed = _FIXED_BYTES + (0 if header.first_sequence == NO_SEQUENCE else 4)
    try:
        columns = _Columns(plain, entry.count, at=1 + fixed * entry.count)
        lengths = columns.numbers("H", 2)
        return columns.texts(lengths) if not plain[0] else columns.behind(4).texts(lengths)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise BatchInvalid(problem=f"a sub-block cannot be read: {error}") from error


def _unpack_block(plain: bytes, header: BatchHeader, count: int) -> tuple[tuple[int, ...], list[Record]]:
    flags = plain[0]
    if flags & ~_HAS_PROPERTIES:
        raise BatchInvalid(problem=f"a sub-block has unknown flags {flags:#04x}")
    columns = _Columns(plain, count)
    positions = columns.numbers("H", 2)
    event_times = columns.numbers("q", 8)
    value_lengths = columns.numbers("I", 4)
    if header.first_sequence == NO_SEQUENCE:
        sequences: Sequence[int] = (NO_SEQUENCE,) * count
    else:
        sequences = [header.first_sequence + delta for delta in columns.numbers("I", 4)]
    key_lengths = columns.numbers("H", 2) if header.mode is Mode.KEYED else None
    property_lengths = columns.numbers("I", 4) if flags else None
    keys: Sequence[str | None] = (None,) * count if key_lengths is None else columns.texts(key_lengths)
    values = columns.slices(value_lengths)
    extra = (
        [] if property_lengths is None else [list(map(_unpack_properties, columns.slices(property_lengths)))]
    )
    columns.check_end()
    _check_order(positions, header)
    return positions, list(map(Record, keys, values, sequences, event_times, *extra))


def _check_order(positions: tuple[int, ...], header: BatchHeader) -> None:
    if positions[-1] >= header.count or not all(map(lt, positions, positions[1:])):
        raise BatchInvalid(problem="the positions of a sub-block do not ascend within the batch")


def _unpack_properties(packed: bytes) -> dict[str, str]:
    texts, at = [], 0
    while at < len(packed):
        (length,) = struct.unpack_from(">H", packed, at)
        text = packed[at + 2 : at + 2 + length]
        if len(text) != length:
            raise BatchInvalid(problem="a property is cut off")
        texts.append(text.decode())
        at += 2 + length
    if len(texts) % 2:
        raise BatchInvalid(problem="a property has no value")
    return dict(zip(texts[::2], texts[1::2], strict=True))


class _Columns:
    """Reads the columns of one sub-block in their order, and refuses to read past its end."""

    def __init__(self, plain: bytes, count: int, *, at: int = 1) -> None:
        self._plain = plain
        self._count = count
        self._at = at

    def behind(self, width: int) -> Self:
        """Pass over a column of numbers."""
        self._at += self._count * width
        return self

    def numbers(self, kind: str, width: int) -> tuple[int, ...]:
        column = struct.unpack_from(f">{self._count}{kind}", self._plain, self._at)
        self._at += self._count * width
        return column

    def slices(self, lengths: Sequence[int]) -> list[bytes]:
        plain, bounds = self._plain, list(accumulate(lengths, initial=self._at))
        self._at = bounds[-1]
        if self._at > len(plain):
            raise BatchInvalid(problem="a sub-block is shorter than its lengths say")
        return [plain[start:end] for start, end in pairwise(bounds)]

    def texts(self, lengths: Sequence[int]) -> list[str]:
        total = sum(lengths)
        raw = self._plain[self._at : self._at + total]
        if not raw.isascii() or len(raw) < total:
            return [text.decode() for text in self.slices(lengths)]
        self._at += total
        text = raw.decode("ascii")  # one call for all keys: offsets in bytes and in characters agree
        return [text[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]

    def check_end(self) -> None:
        if self._at != len(self._plain):
            raise BatchInvalid(problem="a sub-block is longer than its lengths say")
