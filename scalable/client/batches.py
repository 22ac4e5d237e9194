"""What a producer holds before it is durable: entries, lanes of entries, and batches cut from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from scalable.domain.errors import StreamBroken
from scalable.domain.keyspace import HashRange
from scalable.wire.batch import NO_SEQUENCE, Record
from scalable.wire.marks import Mark, bounds

LENGTH_BYTES = 2
"""Before each name and value of a property stands its length."""
ENTRY_OVERHEAD_BYTES = 200
"""What an entry takes in memory beside its key, value and properties."""
MAX_SPAN = 2**32 - 1
"""How far apart the first and the last sequence of a batch may lie."""
RECORDS_PER_SUB_BLOCK = 32
"""How many records a sub-block has on average at least."""
TRIED_AGAIN = frozenset(
    {"internal", "unavailable", "too_many_requests", "segment_store_missing", "no_leader", "lease_lost"}
)
"""Refusals that pass."""


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Where a message lies: segment, offset within it, index within its batch.

    The offset is -1 when an earlier attempt had stored the message and its place is not known. `duplicate`:
    a message with this sequence was stored before, and nothing was stored now.
    """

    segment_id: int
    offset: int
    index: int
    duplicate: bool = field(default=False, compare=False, repr=False)


def utf8_size(text: str) -> int:
    """Give the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def properties_size(properties: Mapping[str, str]) -> int:
    """Give the bytes of properties in a batch, their lengths included."""
    texts = (text for pair in properties.items() for text in pair)
    return sum(utf8_size(text) + LENGTH_BYTES for text in texts)


@dataclass(slots=True, eq=False)
class Entry:
    """One message on its way: `hash16` routes it.

    The sequence is given when a batch is first cut, or (`numbered`) by the application. A `doubtful` one was
    sent, and nobody knows whether it is stored. `handle` is whatever waits for the outcome. Consumers of
    QUEUE subscriptions get it at `deliver_at_ms`; 0: at once.
    """

    key: str | None
    value: bytes
    hash16: int
    handle: Any = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    added_at: float = 0.0
    sequence: int = NO_SEQUENCE
    numbered: bool = False
    doubtful: bool = False
    deliver_at_ms: int = 0
    size: int = field(init=False)
    """The bytes that the entry takes in memory, and at most in a batch."""

    def __post_init__(self) -> None:
        extra = 0
        if self.properties:
            extra = properties_size(self.properties)
        self.size = ENTRY_OVERHEAD_BYTES + len(self.value) + utf8_size(self.key or "") + extra

    @property
    def is_new(self) -> bool:
        """Tell whether it cannot be stored: a number of the producer's own that never arrived."""
        return not (self.doubtful or self.numbered)

    @property
    def keyless(self) -> bool:
        """Tell whether the message has no key."""
        return self.key is None

    def record(self) -> Record:
        """Give what goes into the batch."""
        return Record(self.key, self.value, self.sequence, self.event_time_ms, self.properties)


@dataclass(slots=True, eq=False)
class Batch:
    """Entries that are sent together to one segment; `restart` mends a stream that broke at the server."""

    segment_id: int
    entries: list[Entry]
    request_id: int = 0
    restart: bool = False

    def halves(self) -> list[Batch]:
        """Cut it in two; raises ValueError for a single entry."""
        middle = len(self.entries) // 2
        if not middle:
            raise ValueError("a single entry has no halves")
        parts = self.entries[:middle], self.entries[middle:]
        return [Batch(self.segment_id, part) for part in parts]

    def doubt(self) -> None:
        """Note that nobody knows whether it is stored."""
        for entry in self.entries:
            entry.doubtful = True

    def note_refusal(self, code: str, refusal: Mapping[str, Any]) -> None:
        """Doubt whether it is stored after a failure that may have come with its commit, or its group's.

        The server stores several batches by one commit, and names the failure for the first of them only.
        """
        broken_by = refusal.get("fields", {}).get("problem") if code == StreamBroken.code else code
        if broken_by in TRIED_AGAIN:
            self.doubt()

    @property
    def deliver_at_ms(self) -> int:
        """Give from when its messages are due; 0 for at once."""
        return self.entries[0].deliver_at_ms

    @property
    def first_sequence(self) -> int:
        """Give the lowest sequence."""
        return self.entries[0].sequence

    @property
    def keyless_hash(self) -> int | None:
        """Give the hash that routes a keyless batch; None for a keyed one."""
        return self.entries[0].hash16 if self.entries[0].keyless else None


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is full, and how long a message waits for company; raises ValueError out of its bounds."""

    max_records: int = 1_000
    max_bytes: int = 256 * 1024
    linger_seconds: float = 0.005

    def __post_init__(self) -> None:
        if min(self.max_records, self.max_bytes) < 1:
            raise ValueError("max_records and max_bytes: one is not at least 1")
        if not 0 <= self.linger_seconds < inf:  # NaN, too
            raise ValueError(f"linger_seconds is not a finite number from 0: {self.linger_seconds}")


class Lane:
    """Entries without sequence in the order of their keys' messages; batches are cut from the front."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_at(self) -> float:
        """Give when the first entry was added."""
        return self._entries[0].added_at

    @property
    def is_numbered(self) -> bool:
        """Tell whether the application gave the numbers of its entries."""
        return self._entries[0].numbered

    def push(self, entry: Entry) -> None:
        """Add behind all others."""
        self._entries.append(entry)
        self._bytes += entry.size

    def push_before(self, entries: Sequence[Entry]) -> None:
        """Add in front of all others, keeping the order of the new ones."""
        self._entries.extendleft(reversed(entries))
        self._bytes += sum(entry.size for entry in entries)

    def is_full(self, limits: BatchLimits) -> bool:
        """Tell whether a whole batch can be cut."""
        return len(self._entries) >= limits.max_records or self._bytes >= limits.max_bytes

    def take(self, limits: BatchLimits) -> list[Entry]:
        """Remove and give the entries of the next batch, at least one."""
        taken: list[Entry] = []
        room = limits.max_bytes
        while self._entries and len(taken) < limits.max_records:
            size = self._entries[0].size
            if taken and (size > room or not _share_batch(taken[0], self._entries[0])):
                break
            taken.append(self._entries.popleft())
            self._bytes -= size
            room -= size
        return taken

    def take_all(self) -> list[Entry]:
        """Remove and give everything."""
        taken = list(self._entries)
        self._entries.clear()
        self._bytes = 0
        return taken


def sub_block_starts(entry_bucket_splits: Sequence[int], records: int) -> Sequence[int]:
    """Choose where the sub-blocks of a batch begin: at entry buckets, so that each has enough records.

    Sub-blocks of few records cost more time and space than a co-owner saves by not getting its neighbours'.
    """
    step = -(-RECORDS_PER_SUB_BLOCK * (len(entry_bucket_splits) + 1) // records)
    return entry_bucket_splits[step - 1 :: step]


def is_duplicate(entry: Entry, marks: Sequence[Mark]) -> bool:
    """Tell whether the marks of a segment say that an entry is stored."""
    place = HashRange(entry.hash16, entry.hash16)
    return entry.sequence <= bounds(marks, place)[1]


def cut(
    entries: Iterable[Entry], segment_id: int, limits: BatchLimits, marks: Sequence[Mark] = ()
) -> Iterator[Batch]:
    """Cut entries of ascending sequence into batches that the server accepts.

    Keyed and keyless entries, and keyless ones of different hashes, never share a batch. The span of hashes
    of a batch overlaps no mark at or above its first sequence, else the server would have to refuse it.
    """
    batch: list[Entry] = []
    span = HashRange(0, 0)
    size = 0
    for entry in entries:
        full = len(batch) >= limits.max_records or size + entry.size > limits.max_bytes
        wider = _widen(span, entry) if batch else HashRange(entry.hash16, entry.hash16)
        if batch and (full or not _share_batch(batch[0], entry) or _meets_mark(batch[0], wider, marks)):
            yield Batch(segment_id, batch)
            batch, size, wider = [], 0, HashRange(entry.hash16, entry.hash16)
        batch.append(entry)
        size += entry.size
        span = wider
    if batch:
        yield Batch(segment_id, batch)


def _widen(span: HashRange, entry: Entry) -> HashRange:
    return HashRange(min(span.start, entry.hash16), max(span.end, entry.hash16))


def _share_batch(first: Entry, entry: Entry) -> bool:
    if first.deliver_at_ms != entry.deliver_at_ms or entry.sequence - first.sequence > MAX_SPAN:
        return False
    if first.keyless or entry.keyless:
        alike = first.hash16 == entry.hash16 or (not entry.numbered and entry.sequence == NO_SEQUENCE)
        return first.keyless and entry.keyless and alike
    return True


def _meets_mark(first: Entry, span: HashRange, marks: Sequence[Mark]) -> bool:
    return bool(marks) and bounds(marks, span)[1] >= first.sequence
