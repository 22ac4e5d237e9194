"""What the port in memory keeps of each store."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from threading import RLock

from scalable.domain.errors import SegmentStoreMissing, SubscriptionNotFound
from scalable.domain.keyspace import HashRange
from scalable.segments.pending import Pending
from scalable.segments.port import CursorState, SegmentKey, StoredBatch
from scalable.wire.batch import NO_SEQUENCE
from scalable.wire.marks import Mark, flatten

INCARNATIONS_PER_CURSOR = 2**20
"""So many times a cursor can be sought before its incarnation is the first one of another cursor."""


@dataclass(frozen=True, slots=True)
class Times:
    """When a batch was appended, and from when it is due (0: at once)."""

    appended_ms: int
    deliver_at_ms: int


@dataclass(slots=True)
class Store:
    """One segment's batches, marks and cursors."""

    hash_range: HashRange
    created_at_ms: int
    terminated_at_ms: int | None = None
    start_offset: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    times: dict[int, Times] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)
    inherited: dict[str, list[Mark]] = field(default_factory=dict)
    places: dict[tuple[str, int, int], int] = field(default_factory=dict)
    cursors: dict[str, CursorState] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        """The offset behind the last message."""
        return self.batches[-1].base_offset + self.batches[-1].count if self.batches else self.start_offset

    @property
    def last_append_ms(self) -> int:
        """When the last batch was appended."""
        return self.times[self.batches[-1].base_offset].appended_ms if self.batches else self.created_at_ms

    @property
    def producers(self) -> set[str]:
        """All names of producers that have marks."""
        return self.own.keys() | self.inherited.keys()

    def marks(self, producer: str) -> list[Mark]:
        """What an append of a producer is compared with."""
        own = self.own.get(producer, NO_SEQUENCE)
        whole = Mark(self.hash_range.start, self.hash_range.end, own)
        return flatten([whole, *self.inherited.get(producer, [])])

    def batches_between(self, first: int, end: int) -> Iterator[StoredBatch]:
        """Give the batches that have messages in [first, end)."""
        for batch in self.batches:
            if first < end and batch.base_offset < end and batch.base_offset + batch.count > first:
                yield batch


def _clock_ms() -> int:
    return int(time.time() * 1000)


class MemoryStores:
    """The stores by key, under one lock."""

    def __init__(self, *, now_ms: Callable[[], int] = _clock_ms) -> None:
        self._now_ms = now_ms
        self._stores: dict[SegmentKey, Store] = {}
        self._lives = count(INCARNATIONS_PER_CURSOR, INCARNATIONS_PER_CURSOR)
        self._lock = RLock()

    def _store(self, key: SegmentKey) -> Store:
        if key not in self._stores:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        return self._stores[key]

    def _cursor(self, key: SegmentKey, subscription: str) -> CursorState:
        cursor = self._store(key).cursors.get(subscription)
        if cursor is None:
            raise SubscriptionNotFound(subscription=subscription)
        return cursor

    def _pending(self, key: SegmentKey, subscription: str) -> Pending:
        position = self._cursor(key, subscription).position
        return self._store(key).pending.setdefault(subscription, Pending(position))

    def _moved(self, key: SegmentKey, subscription: str) -> CursorState:
        """Bring the cursor to the position of its pending messages."""
        store = self._store(key)
        cursor, position = store.cursors[subscription], store.pending[subscription].position
        moved = CursorState(subscription, position, cursor.incarnation, cursor.generation)
        store.cursors[subscription] = moved
        return moved
