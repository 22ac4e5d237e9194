"""What is looked at to learn hot keys: all of it while there is time for it, and never more."""

from hypothesis import given
from hypothesis import strategies as st

from scalable.api.counters import SegmentCounts
from scalable.api.looking import MOST_RECORDS, RECORDS_PER_SECOND, Looker
from scalable.wire.batch import Record, decode_header, encode_batch

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=1)
RECORD = st.builds(Record, TEXT, st.binary(max_size=5), st.just(-1), st.just(0), PROPERTIES)
RECORDS = st.lists(RECORD, min_size=1, max_size=50)


@given(RECORDS, st.booleans())
def test_the_keys_are_those_of_the_records(records: list[Record], numbered: bool) -> None:
    if numbered:
        records = [
            Record(record.key, record.value, number, 0, record.properties)
            for number, record in enumerate(records)
        ]
    batch = encode_batch(records, published_at_ms=1)
    found = Looker(clock=lambda: 0.0).keys(batch, decode_header(batch))
    assert sorted(found) == sorted(str(record.key) for record in records)


def test_a_budget_bounds_what_is_looked_at() -> None:
    now = [0.0]
    looker = Looker(clock=lambda: now[0])
    batch = encode_batch([Record(f"k{number}", b"") for number in range(1_000)], published_at_ms=1)
    header = decode_header(batch)

    def looked_at(batches: int) -> int:
        return sum(len(looker.keys(batch, header)) for _ in range(batches))

    first = looked_at(100)
    assert 0 < first <= MOST_RECORDS + 1_000
    assert looked_at(10) == 0
    now[0] += 0.5
    assert 0 < looked_at(100) <= RECORDS_PER_SECOND / 2 + 1_000


def test_keyless_and_damaged_batches_tell_none() -> None:
    looker = Looker(clock=lambda: 0.0)
    keyless = encode_batch([Record(None, b"x")], published_at_ms=1)
    assert looker.keys(keyless, decode_header(keyless)) == []
    keyed = encode_batch([Record("k", b"x" * 100)] * 10, published_at_ms=1)
    for at in range(decode_header(keyed).size, len(keyed)):
        damaged = keyed[:at] + bytes([keyed[at] ^ 0xFF]) + keyed[at + 1 :]
        looker.keys(damaged, decode_header(damaged))  # whatever it gives, it does not raise
    counts = SegmentCounts()
    counts.add_keys([])
    assert counts.keys is None


def test_batches_that_cannot_be_read_use_the_budget_up_too() -> None:
    looker = Looker(clock=lambda: 0.0)
    batch = encode_batch([Record(f"k{number}", b"") for number in range(1_000)], published_at_ms=1)
    header = decode_header(batch)
    cut_off = batch[: header.size + 10]
    assert Looker(clock=lambda: 0.0).keys(cut_off, header) == []
    for _ in range(10):
        looker.keys(cut_off, header)
    assert looker.keys(batch, header) == []
