"""The batch format: what goes in comes out, one bucket is a filter, and nothing broken is accepted."""

import struct
from pathlib import Path

import pytest
import zstandard
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import bucket_hash, segment_hash
from scalable.wire.batch import (
    MAX_BATCH_BYTES,
    MAX_UNCOMPRESSED_BYTES,
    NO_SEQUENCE,
    Codec,
    Mode,
    Record,
    check_batch,
    decode_batch,
    decode_bucket,
    decode_header,
    encode_batch,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DELAYS = st.sampled_from([0, 1, 1_700_000_000_000, 2**63 - 1])
BUCKET_STARTS = st.sets(st.integers(1, 65535), max_size=8).map(sorted)
FIXED_BYTES = 44


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """One to thirty records, all keyed or all keyless, all with rising sequences or all without."""
    count = draw(st.integers(1, 30))
    keyed, sequenced = draw(st.booleans()), draw(st.booleans())
    sequences = sorted(draw(st.sets(st.integers(0, 2**32 - 1), min_size=count, max_size=count)))
    offset = draw(st.integers(0, 2**62))
    return [
        Record(
            draw(TEXTS) if keyed else None,
            draw(st.binary(max_size=40)),
            sequences[index] + offset if sequenced else NO_SEQUENCE,
            draw(st.integers(-(2**63), 2**63 - 1)),
            draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
        )
        for index in range(count)
    ]


@given(record_lists(), st.sampled_from(Codec), BUCKET_STARTS, DELAYS)
@example([Record("", b"")], Codec.ZSTD, [], 0)
def test_records_come_back_in_order(
    records: list[Record], codec: Codec, starts: list[int], deliver_at_ms: int
) -> None:
    batch = encode_batch(
        records, published_at_ms=7, codec=codec, bucket_starts=starts, deliver_at_ms=deliver_at_ms
    )
    header = check_batch(batch)
    assert (header.version, header.deliver_at_ms) == (2 if deliver_at_ms else 1, deliver_at_ms)
    assert (header.published_at_ms, header.count) == (7, len(records))
    assert decode_batch(batch) == records
    assert decode_batch(memoryview(batch)) == records


@given(record_lists(), st.sampled_from(Codec), BUCKET_STARTS)
def test_each_bucket_decodes_alone_and_is_the_filter_by_hash(
    records: list[Record], codec: Codec, starts: list[int]
) -> None:
    batch = encode_batch(records, published_at_ms=7, codec=codec, bucket_starts=starts)
    header = decode_header(batch)
    for index, entry in enumerate(header.buckets):
        begin, end = header.block_bounds(index)
        alone = batch[: header.size] + b"\0" * (begin - header.size) + batch[begin:end]
        padded = alone + b"\0" * (len(batch) - end)
        expected = [
            (position, record)
            for position, record in enumerate(records)
            if record.key_hash is None or entry.start <= bucket_hash(record.key_hash) <= entry.end
        ]
        assert decode_bucket(padded, index) == expected


@given(record_lists(), BUCKET_STARTS)
def test_the_header_tells_the_batch_without_its_body(records: list[Record], starts: list[int]) -> None:
    batch = encode_batch(records, published_at_ms=99, bucket_starts=starts)
    size = decode_header(batch).size
    header = decode_header(batch[:size] + b"\xff" * (len(batch) - size))
    hashes = [segment_hash(record.key_hash) for record in records if record.key_hash is not None]
    assert (header.count, header.published_at_ms) == (len(records), 99)
    assert (header.first_sequence, header.last_sequence) == (records[0].sequence, records[-1].sequence)
    assert (header.hash_min, header.hash_max) == ((min(hashes), max(hashes)) if hashes else (0, 65535))
    assert header.unrouted == (header.mode is Mode.KEYLESS) == (not hashes)


@given(record_lists(), st.sampled_from(Codec), BUCKET_STARTS, DELAYS, st.data())
def test_any_flipped_bit_is_refused(
    records: list[Record], codec: Codec, starts: list[int], deliver_at_ms: int, data: st.DataObject
) -> None:
    batch = bytearray(
        encode_batch(
            records, published_at_ms=7, codec=codec, bucket_starts=starts, deliver_at_ms=deliver_at_ms
        )
    )
    bit = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    for read in (check_batch, decode_batch):
        with pytest.raises(BatchInvalid):
            read(bytes(batch))


@given(record_lists(), st.sampled_from(Codec), BUCKET_STARTS, DELAYS, st.data())
def test_any_other_length_is_refused(
    records: list[Record], codec: Codec, starts: list[int], deliver_at_ms: int, data: st.DataObject
) -> None:
    batch = encode_batch(
        records, published_at_ms=7, codec=codec, bucket_starts=starts, deliver_at_ms=deliver_at_ms
    )
    cut = batch[: data.draw(st.integers(0, len(batch) - 1))]
    for wrong in (cut, batch + b"\0"):
        with pytest.raises(BatchInvalid):
            decode_header(wrong)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    for read in (decode_header, check_batch, decode_batch):
        with pytest.raises(BatchInvalid):
            read(data)


def _reseal(batch: bytes, offset: int, replacement: bytes) -> bytes:
    """Change bytes of the fixed header or the index and make the header's checksum right again."""
    size = decode_header(batch).size
    changed = bytearray(batch)
    changed[offset : offset + len(replacement)] = replacement
    changed[size - 4 : size] = struct.pack(">I", crc32c(bytes(changed[: size - 4])))
    return bytes(changed)


@pytest.mark.parametrize(
    ("offset", "replacement"),
    [
        pytest.param(0, b"SC", id="magic"),
        pytest.param(2, b"\x02", id="version of a longer header"),
        pytest.param(2, b"\x03", id="version"),
        pytest.param(3, b"\x09", id="codec"),
        pytest.param(4, b"\x07", id="mode"),
        pytest.param(5, b"\x01", id="reserved"),
        pytest.param(8, struct.pack(">I", 4), id="count above the index"),
        pytest.param(8, struct.pack(">I", 0), id="count zero"),
        pytest.param(12, b"\xff\xff\x00\x00", id="hashes reversed"),
        pytest.param(16, struct.pack(">q", -1), id="only the first sequence absent"),
        pytest.param(16, struct.pack(">q", -5), id="negative sequence"),
        pytest.param(24, struct.pack(">q", 11), id="fewer sequences than records"),
        pytest.param(24, struct.pack(">q", 2**40), id="sequences too far apart"),
        pytest.param(
            40, struct.pack(">I", MAX_UNCOMPRESSED_BYTES), id="uncompressed size differs from the index"
        ),
        pytest.param(FIXED_BYTES, b"\x00\x05\x00\x04", id="sub-block ends before it starts"),
        pytest.param(FIXED_BYTES + 4, struct.pack(">I", 0), id="sub-block without records"),
        pytest.param(FIXED_BYTES + 8, struct.pack(">I", 1), id="stored size differs from the length"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(offset: int, replacement: bytes) -> None:
    batch = encode_batch(
        [Record("a", b"1", 10), Record("b", b"2", 11), Record("c", b"3", 12)], published_at_ms=0
    )
    with pytest.raises(BatchInvalid):
        decode_header(_reseal(batch, offset, replacement))


@pytest.mark.parametrize("deliver_at_ms", [0, -1])
def test_a_delayed_batch_says_from_when_it_is_due(deliver_at_ms: int) -> None:
    batch = encode_batch([Record("a", b"1")], published_at_ms=0, deliver_at_ms=5)
    with pytest.raises(BatchInvalid, match="is due"):
        decode_header(_reseal(batch, 40, struct.pack(">q", deliver_at_ms)))
    with pytest.raises(BatchInvalid):
        encode_batch([Record("a", b"1")], published_at_ms=0, deliver_at_ms=-1)


def test_a_decompression_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(b"\0" * (MAX_UNCOMPRESSED_BYTES * 8))
    batch = encode_batch([Record("a", b"1")], published_at_ms=0, codec=Codec.ZSTD)
    header_bytes = bytearray(batch[: decode_header(batch).size])
    claimed = decode_header(batch).uncompressed_bytes
    header_bytes[FIXED_BYTES + 8 : FIXED_BYTES + 20] = struct.pack(">III", len(bomb), claimed, crc32c(bomb))
    header_bytes[-4:] = struct.pack(">I", crc32c(bytes(header_bytes[:-4])))
    with pytest.raises(BatchInvalid, match="claims another size"):
        decode_batch(bytes(header_bytes) + bomb)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([], id="none"),
        pytest.param([Record("k", b"")] * 65_536, id="too many"),
        pytest.param([Record("k", b"", 1), Record(None, b"", 2)], id="keyed and keyless"),
        pytest.param([Record("k", b"", 2), Record("k", b"", 2)], id="sequence stands still"),
        pytest.param([Record("k", b"", 2), Record("k", b"", 1)], id="sequence falls"),
        pytest.param([Record("k", b"", -1), Record("k", b"", 1)], id="sequence on some"),
        pytest.param([Record("k", b"", 0), Record("k", b"", 2**32)], id="sequences too far apart"),
        pytest.param([Record("k", b"", 0, 2**63)], id="time out of range"),
        pytest.param([Record("k" * 65_536, b"")], id="key too long"),
        pytest.param([Record("\ud800", b"")], id="key without UTF-8 form"),
        pytest.param([Record("k", b"", properties={"a": "x" * 65_536})], id="property too long"),
        pytest.param([Record("k", bytes(MAX_BATCH_BYTES))], id="too large"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_when_encoding(records: list[Record]) -> None:
    with pytest.raises(BatchInvalid):
        encode_batch(records, published_at_ms=0)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (Record("\u00e9" * 32_768, b""), "a key has 65536 bytes"),
        (Record("k", b"", properties={"a": "", "b": "x" * 65_536}), "the property 'b' has 65536 bytes"),
        (Record("k", b"", properties={"x" * 70_000: ""}), "a property's name has 70000 bytes"),
    ],
    ids=["key", "value", "name"],
)
def test_a_text_that_is_too_long_is_named(record: Record, what: str) -> None:
    with pytest.raises(BatchInvalid, match=f"{what}, and 65535 are possible"):
        encode_batch([Record("k", b""), record], published_at_ms=0)


@pytest.mark.parametrize("starts", [[0], [5, 5], [9, 3], [65_536], list(range(1, 1025))])
def test_entry_buckets_must_ascend_within_the_bucket_space(starts: list[int]) -> None:
    with pytest.raises(BatchInvalid):
        encode_batch([Record("k", b"")], published_at_ms=0, bucket_starts=starts)


def test_a_keyless_batch_carries_the_hash_that_routed_it() -> None:
    header = decode_header(encode_batch([Record(None, b"x")], published_at_ms=0, keyless_hash=0x8000))
    assert (header.mode, header.hash_min, header.hash_max) == (Mode.KEYLESS, 0x8000, 0x8000)
    assert not header.unrouted


def test_the_example_of_the_document_is_what_the_code_writes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "batch-format.md").read_text()
    example = bytes.fromhex(page.split("```hex\n")[1].split("```")[0])
    records = [
        Record("k1", b"hello", 7, 1_700_000_000_000, {"a": "b"}),
        Record("x", b"", 9),
    ]
    written = encode_batch(records, published_at_ms=1_700_000_000_123, bucket_starts=[0x4000, 0x8000])
    assert written == example
    assert decode_batch(example) == records
