"""Batches, keys and threads for the suite of the data plane port."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count, islice
from typing import TypeVar

from django.db import connections

from scalable.domain.keyspace import FULL_RANGE, HashRange, key_hash, segment_hash
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.wire.batch import Record, decode_batch, encode_batch

Result = TypeVar("Result")
LOW, HIGH = FULL_RANGE.midpoint_split()
FIRST_INCARNATION = 10**9  # far above those of topics
_incarnations = count(FIRST_INCARNATION)


def fresh_key(segment_id: int = 0) -> SegmentKey:
    """Name a store that no other test names."""
    return SegmentKey(next(_incarnations), segment_id)


def new_store(port: SegmentPort, *subscriptions: str) -> SegmentKey:
    """Make a store over the whole range with cursors at earliest."""
    key = fresh_key()
    port.create(key, hash_range=FULL_RANGE, subscriptions=subscriptions, fence=None)
    return key


def incarnation_of(port: SegmentPort, key: SegmentKey, subscription: str = "s") -> int:
    """Give the incarnation of a cursor."""
    cursor = port.cursor(key, subscription=subscription)
    assert cursor is not None
    return cursor.incarnation


def remove_samples(port: SegmentPort) -> None:
    """Delete the stores whose keys `fresh_key` gave."""
    known = port.keys()
    for key in known:
        if key.incarnation >= FIRST_INCARNATION:
            port.delete(key)


@cache
def keys_within(hash_range: HashRange, number: int) -> tuple[str, ...]:
    """Find keys whose segment hash lies in a range."""
    known = (f"key-{index}" for index in count())
    fitting = (key for key in known if hash_range.contains(segment_hash(key_hash(key))))
    return tuple(islice(fitting, number))


def batch(first: int, behind: int, *, within: HashRange = FULL_RANGE, deliver_at_ms: int = 0) -> bytes:
    """Encode the records with the sequences `first` to `behind - 1`, over keys in both halves of a range."""
    keys = [key for half in within.midpoint_split() for key in keys_within(half, 2)]
    records = [Record(keys[sequence % 4], b"%d" % sequence, sequence) for sequence in range(first, behind)]
    return encode_batch(records, published_at_ms=0, deliver_at_ms=deliver_at_ms)


def delayed(first: int, behind: int) -> bytes:
    """Encode records that are due in some hundred years."""
    return batch(first, behind, deliver_at_ms=10**13)


def unnumbered(number: int) -> bytes:
    """Encode records that are not checked for duplicates."""
    return encode_batch([Record("k", b"%d" % index) for index in range(number)], published_at_ms=0)


def stored(port: SegmentPort, key: SegmentKey) -> list[Record]:
    """Read everything that a store holds, page by page, and demand that the offsets have no gap."""
    records: list[Record] = []
    offset = port.stats(key).start_offset
    while True:
        page = port.read(key, offset=offset, max_bytes=10_000, max_batches=7)
        for entry in page.batches:
            assert entry.base_offset == offset
            found = decode_batch(entry.payload)
            assert len(found) == entry.count
            records += found
            offset += entry.count
        if not page.batches:
            assert offset == page.next_offset == page.end_offset
            return records


def sequences(port: SegmentPort, key: SegmentKey) -> list[int]:
    """Give the sequences that a store holds, in its order."""
    return [record.sequence for record in stored(port, key)]


def every(appender: Callable[[str], Result], number: int) -> list[Callable[[], Result]]:
    """Bind one function to each of several producers."""
    return [partial(appender, f"producer-{index}") for index in range(number)]


def in_threads(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run functions at the same time, each on a database connection of its own, and give their results."""

    def run(function: Callable[[], Result]) -> Result:
        try:
            return function()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result(60) for future in [pool.submit(run, function) for function in functions]]
