"""Batches cut for entry buckets: every record goes to one bucket, in order, and nothing is decompressed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.buckets import equal_splits
from scalable.domain.cursors import bucket_ranges
from scalable.domain.errors import BatchInvalid
from scalable.domain.keyspace import HashRange, bucket_hash, key_hash
from scalable.wire.batch import Codec, Record, decode_batch, decode_header, encode_batch
from scalable.wire.batch_header import encode_header
from scalable.wire.bucket_batch import cut_batch, decode_cut, places
from tests.wire.test_batch import BUCKET_STARTS, record_lists

KEYS = [f"key {number}" for number in range(200)]


def keyed(keys: Sequence[str] = KEYS) -> list[Record]:
    return [Record(key, key.encode(), number) for number, key in enumerate(keys)]


def parts(batch: bytes, splits: Sequence[int], *, base_offset: int = 0) -> list[list[tuple[int, Record]]]:
    """What each bucket of a segment gets of a batch."""
    found: list[list[tuple[int, Record]]] = []
    for bucket_range in bucket_ranges(splits):
        cut = cut_batch(batch, bucket_range, base_offset=base_offset)
        if cut is None:
            found.append([])
        else:
            decoded = decode_cut(cut.payload, bucket_range, base_offset=base_offset)
            assert decoded.count == cut.count >= len(decoded.records)
            found.append(list(decoded.records))
    return found


@given(record_lists(), st.sampled_from(Codec), BUCKET_STARTS, BUCKET_STARTS, st.integers(0, 2**62))
def test_the_buckets_of_a_segment_share_the_records_of_a_batch(
    records: list[Record], codec: Codec, written: list[int], splits: list[int], base_offset: int
) -> None:
    batch = encode_batch(records, published_at_ms=7, codec=codec, bucket_starts=written)
    found = parts(batch, splits, base_offset=base_offset)
    assert sorted(one for part in found for one in part) == list(enumerate(records))
    assert all(part == sorted(part, key=lambda one: one[0]) for part in found)
    ranges = bucket_ranges(splits)
    for position, place in enumerate(places(batch, base_offset=base_offset)):
        (home,) = [index for index, part in enumerate(found) if position in dict(part)]
        assert ranges[home].contains(place)


@pytest.mark.parametrize("written", [(), equal_splits(4), equal_splits(3), (1, 65535)])
def test_a_key_is_always_in_the_bucket_of_its_hash(written: Sequence[int]) -> None:
    splits = equal_splits(4)
    batch = encode_batch(keyed(), published_at_ms=7, bucket_starts=written)
    for bucket_range, part in zip(bucket_ranges(splits), parts(batch, splits), strict=True):
        keys = [record.key for _, record in part]
        assert keys == [key for key in KEYS if bucket_range.contains(bucket_hash(key_hash(key)))]


def test_a_batch_cut_as_the_segment_is_travels_in_disjoint_pieces() -> None:
    splits = equal_splits(4)
    batch = encode_batch(keyed(), published_at_ms=7, codec=Codec.ZSTD, bucket_starts=splits)
    cuts = [cut_batch(batch, bucket_range, base_offset=0) for bucket_range in bucket_ranges(splits)]
    sizes = [len(cut.payload) for cut in cuts if cut is not None]
    header = decode_header(batch)
    assert sum(sizes) - 4 * header.size == len(batch) - header.size
    assert [cut.count for cut in cuts if cut is not None] == [entry.count for entry in header.buckets]


def test_nothing_is_sent_of_a_batch_without_a_record_for_the_bucket() -> None:
    splits = equal_splits(4)
    batch = encode_batch(keyed(["k1"]), published_at_ms=7, bucket_starts=splits)  # its bucket hash is 602a
    cuts = [cut_batch(batch, bucket_range, base_offset=0) for bucket_range in bucket_ranges(splits)]
    assert [cut is not None for cut in cuts] == [False, True, False, False]


def test_keyless_batches_are_spread_over_the_buckets_by_their_offsets() -> None:
    splits = equal_splits(4)
    batch = encode_batch([Record(None, b"1"), Record(None, b"2")], published_at_ms=7)
    homes = [0, 0, 0, 0]
    for base_offset in range(0, 2_000, 2):
        sizes = [len(part) for part in parts(batch, splits, base_offset=base_offset)]
        assert sorted(sizes) == [0, 0, 0, 2]
        homes[sizes.index(2)] += 1
    assert min(homes) > 150


def test_a_record_that_its_producer_put_into_the_wrong_sub_block_is_not_lost() -> None:
    right = encode_batch(keyed(["k1"]), published_at_ms=7, bucket_starts=equal_splits(4))
    wrong = encode_batch(keyed(["k1"]), published_at_ms=7, bucket_starts=(1,))
    header = decode_header(wrong)
    assert (header.buckets[0].start, header.buckets[0].end) == (1, 65535)
    assert decode_batch(right) == decode_batch(wrong)
    forged = _with_sub_block_in(right, HashRange(0, 10))
    assert [len(part) for part in parts(forged, equal_splits(4))] == [1, 0, 0, 0]
    assert places(forged, base_offset=0) == [10]


def _with_sub_block_in(batch: bytes, hash_range: HashRange) -> bytes:
    """Claim another range for the only sub-block of a batch."""
    header = decode_header(batch)
    entry = replace(header.buckets[0], start=hash_range.start, end=hash_range.end)
    head = encode_header(
        codec=header.codec,
        mode=header.mode,
        hashes=(header.hash_min, header.hash_max),
        sequences=(header.first_sequence, header.last_sequence),
        published_at_ms=header.published_at_ms,
        buckets=[entry],
    )
    return head + batch[header.size :]


def test_a_batch_cut_for_another_bucket_or_broken_is_refused() -> None:
    splits = equal_splits(4)
    first, second, *_ = bucket_ranges(splits)
    batch = encode_batch(keyed(), published_at_ms=7, bucket_starts=splits)
    cut = cut_batch(batch, first, base_offset=0)
    assert cut is not None
    for payload, bucket_range in [
        (cut.payload, second),
        (cut.payload[:-1], first),
        (cut.payload + b"x", first),
        (cut.payload[:-1] + bytes([cut.payload[-1] ^ 1]), first),
        (batch, first),
    ]:
        with pytest.raises(BatchInvalid):
            decode_cut(payload, bucket_range, base_offset=0)
