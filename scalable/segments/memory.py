"""A segment port in memory, for tests and simulation; it forgets everything with its process."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from scalable.domain.errors import (
    LeaseLost,
    SegmentStoreMissing,
    SegmentTerminated,
    SubscriptionNotFound,
)
from scalable.domain.keyspace import HashRange
from scalable.segments.checks import (
    ack_refusal,
    checked_headers,
    outside_range,
    partly_duplicate,
    position_refusal,
)
from scalable.segments.memory_claims import MemoryClaims
from scalable.segments.memory_store import Store, Times
from scalable.segments.pending import Pending
from scalable.segments.port import (
    MAX_ACKNOWLEDGED,
    AppendResult,
    CursorState,
    Fence,
    NewStore,
    ProducerMark,
    ReadResult,
    SegmentKey,
    SegmentStats,
    StoredBatch,
)
from scalable.wire.batch import NO_SEQUENCE, BatchHeader, decode_header
from scalable.wire.marks import Mark, Verdict, clip, flatten, judge


@dataclass(slots=True)
class _Append:
    """One append as planned, before anything is stored."""

    results: list[AppendResult] = field(default_factory=list)
    stored: list[StoredBatch] = field(default_factory=list)
    places: dict[tuple[str, int, int], int] = field(default_factory=dict)
    own: int = NO_SEQUENCE


class MemorySegments(MemoryClaims):
    """A `SegmentPort` in memory; safe for threads. `now_ms` is the server's clock."""

    transactional = False

    # Stores

    def create(
        self, key: SegmentKey, *, hash_range: HashRange, subscriptions: Sequence[str], fence: Fence | None
    ) -> None:
        """Make a store; see SegmentPort."""
        with self._lock:
            store = self._stores.setdefault(key, Store(hash_range, self._now_ms()))
            _pass_fence(store, fence)
            for subscription in subscriptions:
                self.create_cursor(key, subscription=subscription, position=None)

    def create_all(self, *, incarnation: int, stores: Sequence[NewStore]) -> None:
        """Make many stores; see SegmentPort."""
        with self._lock:
            for store in stores:
                key = SegmentKey(incarnation, store.segment_id)
                self.create(key, hash_range=store.hash_range, subscriptions=store.cursors, fence=None)

    def terminate(self, key: SegmentKey, *, fence: Fence | None) -> int:
        """Seal a store and return its end; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            _pass_fence(store, fence)
            if store.terminated_at_ms is None:
                store.terminated_at_ms = self._now_ms()
            return store.end_offset

    def inherit_producer_marks(
        self, parents: Sequence[SegmentKey], child: SegmentKey, *, fence: Fence | None
    ) -> None:
        """Hand marks on to a child; see SegmentPort."""
        with self._lock:
            store = self._store(child)
            _pass_fence(store, fence)
            for parent in parents:
                if self._store(parent).terminated_at_ms is None:
                    raise ValueError(f"{parent} still takes appends: its marks would be incomplete")
            sources = [self._store(parent) for parent in parents]
            store.inherited = {
                producer: flatten(
                    clip((mark for source in sources for mark in source.marks(producer)), store.hash_range)
                )
                for producer in set().union(*(source.producers for source in sources))
            }

    def delete(self, key: SegmentKey) -> None:
        """Remove a store; see SegmentPort."""
        with self._lock:
            self._stores.pop(key, None)

    def delete_all(self, *, incarnation: int, segment_ids: Sequence[int]) -> None:
        """Remove many stores; see SegmentPort."""
        with self._lock:
            for segment_id in segment_ids:
                self.delete(SegmentKey(incarnation, segment_id))

    def keys(self, *, incarnation: int | None = None) -> Sequence[SegmentKey]:
        """All stores; see SegmentPort."""
        with self._lock:
            return sorted(key for key in self._stores if incarnation in {None, key.incarnation})

    def stats(self, key: SegmentKey) -> SegmentStats:
        """Offsets and size; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            return SegmentStats(
                start_offset=store.start_offset,
                end_offset=store.end_offset,
                terminated=store.terminated_at_ms is not None,
                bytes_stored=sum(len(batch.payload) for batch in store.batches),
                created_at_ms=store.created_at_ms,
                terminated_at_ms=store.terminated_at_ms,
            )

    # Messages

    def append(
        self, key: SegmentKey, batches: Sequence[bytes], *, producer: str | None
    ) -> list[AppendResult]:
        """Store batches; see SegmentPort."""
        headers = checked_headers(batches)
        with self._lock:
            store = self._store(key)
            if store.terminated_at_ms is not None:
                raise SegmentTerminated(segment_id=key.segment_id, epoch=0)
            plan = _Append(own=store.own.get(producer, NO_SEQUENCE) if producer else NO_SEQUENCE)
            for header, payload in zip(headers, batches, strict=True):
                _plan_batch(plan, key, store, header, payload, producer)
            now = max(store.last_append_ms, self._now_ms())
            store.times |= {
                batch.base_offset: Times(now, decode_header(batch.payload).deliver_at_ms)
                for batch in plan.stored
            }
            store.batches += plan.stored
            store.places |= plan.places
            if producer is not None and plan.own > NO_SEQUENCE:
                store.own[producer] = plan.own
            return plan.results

    def read(self, key: SegmentKey, *, offset: int, max_bytes: int, max_batches: int) -> ReadResult:
        """A page of batches; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            first = max(0, bisect_right(store.batches, offset, key=lambda batch: batch.base_offset) - 1)
            known = [
                batch
                for batch in store.batches[first : first + max(1, max_batches) + 1]
                if batch.base_offset + batch.count > offset
            ]
            page = _page(known, max_bytes, max_batches)
            behind = page[-1].base_offset + page[-1].count if page else max(offset, store.start_offset)
            return ReadResult(page, behind, store.end_offset, store.terminated_at_ms is not None)

    def producer_marks(self, key: SegmentKey, *, producer: str) -> Sequence[ProducerMark]:
        """The marks of one producer; see SegmentPort."""
        with self._lock:
            return [
                ProducerMark(producer, HashRange(mark.hash_start, mark.hash_end), mark.last_sequence)
                for mark in self._store(key).marks(producer)
            ]

    def trim(self, key: SegmentKey, *, before_offset: int, max_batches: int) -> int:
        """Delete old batches; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            gone = [
                batch
                for batch in store.batches[:max_batches]
                if batch.base_offset + batch.count <= before_offset
            ]
            if gone:
                store.start_offset = gone[-1].base_offset + gone[-1].count
                del store.batches[: len(gone)]
                store.times = {batch.base_offset: store.times[batch.base_offset] for batch in store.batches}
                store.places = {
                    place: offset for place, offset in store.places.items() if offset >= store.start_offset
                }
            return store.start_offset

    # Cursors

    def create_cursor(self, key: SegmentKey, *, subscription: str, position: int | None) -> None:
        """Add a cursor; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            start = store.start_offset if position is None else position
            if subscription not in store.cursors:
                store.cursors[subscription] = CursorState(subscription, start, next(self._lives), 0)

    def delete_cursor(self, key: SegmentKey, *, subscription: str) -> None:
        """Remove a cursor; see SegmentPort."""
        with self._lock:
            if key in self._stores:
                self._stores[key].cursors.pop(subscription, None)
                self._stores[key].pending.pop(subscription, None)

    def cursor(self, key: SegmentKey, *, subscription: str) -> CursorState | None:
        """One cursor; see SegmentPort."""
        with self._lock:
            self._store(key)
            return next((each for each in self.cursors(key) if each.subscription == subscription), None)

    def cursors(self, key: SegmentKey) -> Sequence[CursorState]:
        """All cursors; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            return [_with_ranges(store, cursor) for _, cursor in sorted(store.cursors.items())]

    def own(self, key: SegmentKey, *, subscription: str, generation: int) -> None:
        """Raise the ownership generation; see SegmentPort."""
        with self._lock:
            cursor = self._cursor(key, subscription)
            raised = replace(cursor, generation=max(cursor.generation, generation))
            self._store(key).cursors[subscription] = raised

    def own_all(self, *, incarnation: int, generations: Sequence[tuple[int, str, int]]) -> None:
        """Raise many generations; see SegmentPort."""
        with self._lock:
            for segment_id, cursor, generation in generations:
                with suppress(SubscriptionNotFound, SegmentStoreMissing):
                    self.own(SegmentKey(incarnation, segment_id), subscription=cursor, generation=generation)

    def acknowledge(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        generation: int,
        position: int,
        incarnation: int | None = None,
    ) -> CursorState:
        """Move the cursor up; see SegmentPort."""
        with self._lock:
            cursor = self._cursor(key, subscription)
            refusal = ack_refusal(
                key,
                cursor,
                generation=generation,
                position=position,
                incarnation=incarnation,
                end_offset=self._store(key).end_offset,
            )
            if refusal is not None:
                raise refusal
            pending = self._pending(key, subscription)
            pending.carve(0, position)
            pending.frontier = max(pending.frontier, position)
            return self._moved(key, subscription)

    def seek(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Move the cursor anywhere; see SegmentPort."""
        with self._lock:
            store, cursor = self._store(key), self._cursor(key, subscription)
            refusal = position_refusal(key, position=position, low=store.start_offset, high=store.end_offset)
            if refusal is not None:
                raise refusal
            moved = replace(cursor, position=position, incarnation=cursor.incarnation + 1)
            store.cursors[subscription] = moved
            store.pending[subscription] = Pending(position)
            return moved


def _with_ranges(store: Store, cursor: CursorState) -> CursorState:
    pending = store.pending.get(cursor.subscription) or Pending(cursor.position)
    return replace(cursor, acknowledged=tuple(islice(pending.acknowledged(), MAX_ACKNOWLEDGED)))


def _pass_fence(store: Store, fence: Fence | None) -> None:
    if fence is None:
        return
    if store.fences.get(fence.operation_id, fence.token) > fence.token:
        raise LeaseLost(resource=f"operation {fence.operation_id}", token=fence.token)
    store.fences[fence.operation_id] = fence.token


def _plan_batch(
    plan: _Append, key: SegmentKey, store: Store, header: BatchHeader, payload: bytes, producer: str | None
) -> None:
    place = _place(header, store.hash_range)
    if producer is not None and header.first_sequence != NO_SEQUENCE:
        numbers = (producer, header.first_sequence, header.last_sequence)
        whole = Mark(store.hash_range.start, store.hash_range.end, plan.own)
        marks = [whole, *store.inherited.get(producer, [])]
        verdict = judge(marks, place, header.first_sequence, header.last_sequence)
        if verdict is Verdict.DUPLICATE:
            plan.results.append(AppendResult(store.places.get(numbers, -1), True))
            return
        if verdict is Verdict.PARTLY_DUPLICATE:
            raise partly_duplicate(key, header, store.marks(producer))
        plan.own = header.last_sequence
        plan.places[numbers] = store.end_offset + sum(batch.count for batch in plan.stored)
    offset = store.end_offset + sum(batch.count for batch in plan.stored)
    plan.stored.append(StoredBatch(offset, header.count, bytes(payload)))
    plan.results.append(AppendResult(offset, False))


def _place(header: BatchHeader, hash_range: HashRange) -> HashRange:
    if header.unrouted:
        return hash_range
    place = HashRange(header.hash_min, header.hash_max)
    if not (hash_range.contains(place.start) and hash_range.contains(place.end)):
        raise outside_range(header, hash_range)
    return place


def _page(batches: Iterable[StoredBatch], max_bytes: int, max_batches: int) -> tuple[StoredBatch, ...]:
    page: list[StoredBatch] = []
    total = 0
    for batch in batches:
        total += len(batch.payload)
        if page and (total > max_bytes or len(page) >= max_batches):
            break
        page.append(batch)
    return tuple(page)
