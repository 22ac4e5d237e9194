"""Producer marks, hash by hash, against the plainest possible reading of what they say."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.keyspace import HashRange, segment_hash
from scalable.wire.batch import Record
from scalable.wire.marks import Mark, Verdict, bounds, clip, cut, flatten, judge

HASHES = st.integers(0, 65535)
RANGES = st.tuples(HASHES, HASHES).map(lambda pair: HashRange(min(pair), max(pair)))
MARKS = st.lists(
    st.builds(lambda place, last: Mark(place.start, place.end, last), RANGES, st.integers(0, 30)), max_size=6
)


def at(marks: list[Mark], place: int) -> int:
    """Give the highest mark over one hash."""
    return max(
        (mark.last_sequence for mark in marks if mark.hash_start <= place <= mark.hash_end), default=-1
    )


def places(marks: list[Mark], hash_range: HashRange) -> set[int]:
    """Give the hashes of a range at which what the marks say can change."""
    edges = {edge for mark in marks for edge in (mark.hash_start, mark.hash_end + 1)}
    return {edge for edge in edges if hash_range.contains(edge)} | {hash_range.start}


@given(MARKS, st.lists(HASHES, max_size=10))
def test_flattened_marks_say_the_same_and_are_disjoint(marks: list[Mark], probes: list[int]) -> None:
    flat = flatten(marks)
    for place in {*probes, *places(marks, HashRange(0, 65535))}:
        assert at(flat, place) == at(marks, place)
    for before, after in pairwise(flat):
        assert before.hash_end < after.hash_start
        assert before.hash_end + 1 < after.hash_start or before.last_sequence != after.last_sequence


@given(MARKS, RANGES)
def test_clipped_marks_say_the_same_within_the_range_and_nothing_outside(
    marks: list[Mark], hash_range: HashRange
) -> None:
    clipped = clip(marks, hash_range)
    assert all(at(clipped, place) == at(marks, place) for place in places(marks, hash_range))
    assert all(hash_range.start <= mark.hash_start <= mark.hash_end <= hash_range.end for mark in clipped)


@given(MARKS, RANGES, st.integers(0, 31), st.integers(0, 5))
def test_a_batch_is_judged_by_every_hash_of_its_range(
    marks: list[Mark], hash_range: HashRange, first: int, more: int
) -> None:
    sequences = [at(marks, place) for place in places(marks, hash_range)]
    assert bounds(marks, hash_range) == (min(sequences), max(sequences))
    verdict = judge(marks, hash_range, first, first + more)
    assert (verdict is Verdict.NEW) == (first > max(sequences))
    assert (verdict is Verdict.DUPLICATE) == (first + more <= min(sequences))


@given(MARKS, st.sets(st.integers(0, 31), min_size=1), st.data())
def test_cut_batches_are_new_one_after_the_other_and_leave_out_only_what_is_stored(
    marks: list[Mark], numbers: set[int], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.text(max_size=3), min_size=len(numbers), max_size=len(numbers)))
    records = [Record(key, b"", sequence) for key, sequence in zip(keys, sorted(numbers), strict=True)]
    batches = cut(records, marks)
    own = Mark(0, 65535, -1)
    for batch in batches:
        hashes = [segment_hash(record.key_hash or 0) for record in batch]
        place = HashRange(min(hashes), max(hashes))
        assert judge([own, *marks], place, batch[0].sequence, batch[-1].sequence) is Verdict.NEW
        own = Mark(0, 65535, batch[-1].sequence)
    expected = [r for r in records if r.sequence > at(marks, segment_hash(r.key_hash or 0))]
    assert [record for batch in batches for record in batch] == expected


def test_keyless_records_are_cut_by_the_hash_that_routed_them() -> None:
    records = [Record(None, b"", sequence) for sequence in range(6)]
    marks = [[0, 99, 2], [100, 65535, 9]]
    assert cut(records, marks, keyless_hash=50) == [records[3:]]
    assert cut(records, marks, keyless_hash=100) == []
    with pytest.raises(ValueError, match="by the hash that routed them"):
        cut(records, marks)
