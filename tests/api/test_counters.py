"""Counts by part of the range: exact where producers counted, spread evenly where they did not."""

from hypothesis import given
from hypothesis import strategies as st

from scalable.api.counters import MAX_SPANS, SegmentCounts
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.wire.frames import PARTS


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    """Least and greatest hash of a batch."""
    start = draw(st.integers(0, 65_535))
    return start, draw(st.integers(start, 65_535))


@given(st.lists(st.tuples(spans(), st.integers(1, 1_000)), max_size=2 * MAX_SPANS), spans())
def test_parts_always_add_up_to_the_messages(
    batches: list[tuple[tuple[int, int], int]], bounds: tuple[int, int]
) -> None:
    counts = SegmentCounts()
    for span, messages in batches:
        counts.add_in(messages, 1, parts=None, span=span)
    placed = counts.placed(HashRange(*bounds))
    assert sum(placed) == counts.messages_in == sum(messages for _, messages in batches)
    assert min(placed) >= 0
    assert len(counts.spans) <= MAX_SPANS


def test_what_the_producer_counted_stays_where_it_was() -> None:
    counts = SegmentCounts()
    counts.add_in(3, 10, parts=[3, *[0] * (PARTS - 1)], span=(0, 65_535))
    counts.add_in(PARTS, 10, parts=None, span=(0, 65_535))
    assert counts.placed(FULL_RANGE) == [4, *[1] * (PARTS - 1)]
    assert counts.bytes_in == 20


def test_a_single_hash_lies_in_one_part() -> None:
    counts = SegmentCounts()
    counts.add_in(7, 1, parts=None, span=(65_535, 65_535))
    assert counts.placed(FULL_RANGE)[PARTS - 1] == 7
