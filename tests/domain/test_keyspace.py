"""Hash ranges and key hashing; numbers in the ids are those of the published test vectors of Pulsar 5.0."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import InvalidBoundaries, InvalidRange
from scalable.domain.keyspace import (
    FULL_RANGE,
    KEYSPACE_SIZE,
    HashRange,
    bucket_hash,
    key_hash,
    segment_hash,
    tiles,
)

hashes = st.integers(0, KEYSPACE_SIZE - 1)
ranges = st.tuples(hashes, hashes).map(lambda ends: HashRange(min(ends), max(ends)))


def test_vector_1_full_range() -> None:
    assert (FULL_RANGE.start, FULL_RANGE.end, FULL_RANGE.size) == (0, 65535, 65536)
    assert str(FULL_RANGE) == "[0000, ffff]"


@pytest.mark.parametrize(
    ("value", "inside"), [(0x1000, True), (0x2000, True), (0x0FFF, False), (0x2001, False)]
)
def test_vector_2_contains(value: int, inside: bool) -> None:
    assert HashRange(0x1000, 0x2000).contains(value) is inside


@pytest.mark.parametrize(
    ("whole", "low", "high"),
    [
        pytest.param(FULL_RANGE, (0x0000, 0x7FFF), (0x8000, 0xFFFF), id="vector 3"),
        pytest.param(HashRange(100, 101), (100, 100), (101, 101), id="vector 4"),
        pytest.param(HashRange(100, 102), (100, 101), (102, 102), id="vector 6"),
    ],
)
def test_midpoint_split(whole: HashRange, low: tuple[int, int], high: tuple[int, int]) -> None:
    assert whole.midpoint_split() == (HashRange(*low), HashRange(*high))


def test_vector_5_one_hash_cannot_be_split() -> None:
    with pytest.raises(InvalidBoundaries):
        HashRange(42, 42).midpoint_split()


def test_vector_7_union_of_neighbours_in_any_order() -> None:
    low, high = FULL_RANGE.midpoint_split()
    assert high.union(low) == low.union(high) == FULL_RANGE


def test_vector_8_union_across_a_gap_is_refused() -> None:
    with pytest.raises(InvalidRange):
        HashRange(0, 0x3FFF).union(HashRange(0x8000, 0xFFFF))


def test_vector_9_a_gap_is_not_adjacent() -> None:
    assert not HashRange(0, 0x7FFF).adjacent_to(HashRange(0x9000, 0xFFFF))


def test_the_space_does_not_wrap_around() -> None:
    assert not HashRange(0x8000, 0xFFFF).adjacent_to(HashRange(0, 0x0FFF))


def test_vector_10_hex_form() -> None:
    assert HashRange(0x0A0B, 0xF0F0).hex == "0a0b-f0f0"
    assert HashRange.parse_hex("0a0b-f0f0") == HashRange(0x0A0B, 0xF0F0)


@pytest.mark.parametrize("ends", [(-1, 100), (0, 65536), (100, 50)])
def test_vector_11_invalid_ranges(ends: tuple[int, int]) -> None:
    with pytest.raises(InvalidRange):
        HashRange(*ends)


@pytest.mark.parametrize(
    "text", ["", "0-ffff", "0000_ffff", "0000-FFFF", "0000-ffff-1", "8000-7fff", "00000-ffff"]
)
def test_unreadable_hex_forms(text: str) -> None:
    with pytest.raises(InvalidRange):
        HashRange.parse_hex(text)


@pytest.mark.parametrize(
    ("key", "raw", "segment", "bucket"),
    [
        pytest.param("k1", 0xFDC6602A, 0xFDC6, 0x602A, id="vector 43"),
        pytest.param("key1", 0x9B970125, 0x9B97, 0x0125, id="vector 44a"),
        pytest.param("key2", 0x737139B4, 0x7371, 0x39B4, id="vector 44b"),
    ],
)
def test_key_hash(key: str, raw: int, segment: int, bucket: int) -> None:
    hashed = key_hash(key)
    assert (hashed, segment_hash(hashed), bucket_hash(hashed)) == (raw, segment, bucket)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_key_has_a_place(key: str) -> None:
    hashed = key_hash(key)
    assert FULL_RANGE.contains(segment_hash(hashed))
    assert segment_hash(hashed) * KEYSPACE_SIZE + bucket_hash(hashed) == hashed


@given(ranges, st.lists(hashes, max_size=6))
def test_split_at_covers_the_range_or_is_refused(whole: HashRange, boundaries: list[int]) -> None:
    valid = bool(boundaries) and boundaries == sorted(set(boundaries))
    valid = valid and whole.start < boundaries[0] and boundaries[-1] <= whole.end
    if not valid:
        with pytest.raises(InvalidBoundaries):
            whole.split_at(boundaries)
        return
    parts = whole.split_at(boundaries)
    assert [part.start for part in parts] == [whole.start, *boundaries]
    assert sum(part.size for part in parts) == whole.size
    assert all(left.end + 1 == right.start for left, right in pairwise(parts))


@given(ranges, ranges)
def test_overlap_intersection_and_adjacency_agree(one: HashRange, other: HashRange) -> None:
    shared = one.intersection(other)
    assert (shared is not None) == one.overlaps(other) == other.overlaps(one)
    assert not (one.overlaps(other) and one.adjacent_to(other))
    if shared:
        assert one.contains(shared.start)
        assert other.contains(shared.end)


@given(ranges, st.integers(1, 64))
def test_part_of_divides_a_range_evenly(whole: HashRange, count: int) -> None:
    assert whole.part_of(whole.start, count) == 0
    assert whole.part_of(whole.end, count) == (whole.size - 1) * count // whole.size < count


def test_tiling_notices_gaps_overlaps_and_missing_ends() -> None:
    low, high = FULL_RANGE.midpoint_split()
    assert tiles([low, high])
    for broken in ([low], [high], [low, low, high], [low, HashRange(0x8001, 0xFFFF)], []):
        assert not tiles(broken)
