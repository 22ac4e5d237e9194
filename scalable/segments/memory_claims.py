"""Cursors in memory that many consumers share: claims, individual acknowledgements, backlogs, times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from scalable.segments.checks import MAX_BATCHES_AHEAD, fence_refusal, range_refusal, too_far_ahead
from scalable.segments.memory_store import MemoryStores, Store
from scalable.segments.pending import MAX_RANGES, Pending, Row
from scalable.segments.port import (
    ClaimedBatch,
    ClaimedRange,
    ClaimResult,
    CursorBacklog,
    CursorState,
    CursorUsage,
    SegmentKey,
)


class MemoryClaims(MemoryStores):
    """The part of `MemorySegments` that concerns shared cursors."""

    def offset_at(self, key: SegmentKey, *, time_ms: int) -> int:
        """The first offset appended at or after a time; see SegmentPort."""
        with self._lock:
            store = self._store(key)
            late = (b.base_offset for b in store.batches if store.times[b.base_offset].appended_ms >= time_ms)
            return next(late, store.end_offset)

    def offsets_at(self, *, incarnation: int, time_ms: int) -> Mapping[int, int]:
        """The same of all segments; see SegmentPort."""
        with self._lock:
            return {
                key.segment_id: self.offset_at(key, time_ms=time_ms)
                for key in sorted(self._stores)
                if key.incarnation == incarnation
            }

    def backlog(self, key: SegmentKey, *, subscription: str) -> int:
        """What is left; see SegmentPort."""
        with self._lock:
            self._cursor(key, subscription)
            return _backlog(key, self._store(key), subscription).backlog

    def backlogs(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorBacklog]:
        """What is left of all cursors; see SegmentPort."""
        with self._lock:
            return [
                _backlog(key, self._stores[key], cursor)
                for key in sorted(self._stores)
                if key.incarnation == incarnation
                for cursor in sorted(self._stores[key].cursors)
                if subscription is None or cursor.partition("/")[0] == subscription
            ]

    def usage(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorUsage]:
        """Bytes and claims of all cursors; see SegmentPort."""
        with self._lock:
            return [
                self._usage(self._stores[SegmentKey(incarnation, each.segment_id)], each)
                for each in self.backlogs(incarnation=incarnation, subscription=subscription)
            ]

    def _usage(self, store: Store, backlog: CursorBacklog) -> CursorUsage:
        ahead = [each for each in store.batches if each.base_offset + each.count > backlog.position]
        ahead = ahead or store.batches[-1:]
        pending, now = store.pending.get(backlog.cursor), self._now_ms()
        return CursorUsage(
            backlog.segment_id,
            backlog.cursor,
            ahead[0].base_offset if ahead else store.start_offset,
            sum(len(each.payload) for each in ahead),
            sum(row.count for row in (pending.rows if pending else ()) if row.session and row.due_ms > now),
        )

    def sizes(self, *, incarnation: int) -> Mapping[int, int]:
        """Bytes by segment; see SegmentPort."""
        with self._lock:
            return {
                key.segment_id: sum(len(batch.payload) for batch in store.batches)
                for key, store in self._stores.items()
                if key.incarnation == incarnation
            }

    def last_sequences(self, *, incarnation: int, limit: int) -> Mapping[str, int]:
        """The producers of a topic; see SegmentPort."""
        found: dict[str, int] = {}
        with self._lock:
            for key, store in self._stores.items():
                if key.incarnation == incarnation and store.terminated_at_ms is None:
                    for name in store.producers:
                        last = max(mark.last_sequence for mark in store.marks(name))
                        if last >= 0:
                            found[name] = max(last, found.get(name, 0))
        return {name: found[name] for name in sorted(found)[:limit]}

    def skip(self, key: SegmentKey, *, subscription: str, count: int) -> CursorState:
        """Skip messages; see SegmentPort."""
        if count < 0:
            raise ValueError(f"cannot skip {count} messages")
        return self._skip(key, subscription, lambda pending, end_offset: _behind(pending, count, end_offset))

    def skip_to(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Skip up to a place; see SegmentPort."""
        return self._skip(key, subscription, lambda _, end_offset: min(position, end_offset))

    def _skip(self, key: SegmentKey, subscription: str, place: Callable[[Pending, int], int]) -> CursorState:
        with self._lock:
            store, pending = self._store(key), self._pending(key, subscription)
            _forget_trimmed(pending, store)
            end = place(pending, store.end_offset)
            pending.carve(0, end)
            pending.frontier = max(pending.frontier, end)
            now = self._now_ms()
            pending.rows = [
                _released(row, now, row.due_ms > now) if row.session else row for row in pending.rows
            ]
            cursor = self._cursor(key, subscription)
            store.cursors[subscription] = replace(cursor, incarnation=cursor.incarnation + 1)
            return self._moved(key, subscription)

    def acknowledge_ranges(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        generation: int | None,
        ranges: Sequence[tuple[int, int]],
        incarnation: int | None = None,
    ) -> CursorState:
        """Acknowledge ranges; see SegmentPort."""
        with self._lock:
            store, cursor = self._store(key), self._cursor(key, subscription)
            refusal = fence_refusal(key, cursor, generation=generation, incarnation=incarnation)
            refusal = refusal or range_refusal(key, ranges, end_offset=store.end_offset)
            if refusal is not None:
                raise refusal
            pending = self._pending(key, subscription)
            self._check_reach(key, store, pending, ranges)
            for first, end in sorted(ranges):
                pending.add(_passed(store, pending.frontier, first, self._now_ms()))
                pending.carve(first, end)
                pending.frontier = max(pending.frontier, end)
            return self._moved(key, subscription)

    def _check_reach(
        self, key: SegmentKey, store: Store, pending: Pending, ranges: Sequence[tuple[int, int]]
    ) -> None:
        highest = max((first for first, _ in ranges), default=0)
        if len(list(store.batches_between(pending.frontier, highest))) > MAX_BATCHES_AHEAD:
            raise too_far_ahead(key, highest)

    def claim(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        consumer: str,
        session: str,
        max_messages: int,
        max_bytes: int,
        lease_seconds: float,
    ) -> ClaimResult:
        """Give messages to a session; see SegmentPort."""
        with self._lock:
            store, pending = self._store(key), self._pending(key, subscription)
            _forget_trimmed(pending, store)
            now = self._now_ms()
            held = Row(0, 0, 0, now + lease_seconds * 1000, 1, session)
            room = _Room(store, max_messages, max_bytes)
            taken = [*_claim_due(pending, room, held, now), *_claim_new(pending, store, room, held, now)]
            incarnation = self._moved(key, subscription).incarnation
            at_end = store.terminated_at_ms is not None and pending.frontier >= store.end_offset
            return ClaimResult(
                _by_batch(store, taken),
                incarnation,
                at_end,
                at_end and not pending.rows,
                None if taken else _next_due_seconds(pending, room, now),
            )

    def renew(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        lease_seconds: float,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> int:
        """Let claims last; see SegmentPort."""
        with self._lock:
            pending = self._pending(key, subscription)
            due = self._now_ms() + lease_seconds * 1000
            held = _carve_all(pending, session, ranges)
            pending.add([replace(row, due_ms=due) for row in held])
            return sum(row.count for row in held)

    def return_claims(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        ranges: Sequence[tuple[int, int]] | None,
        delay_seconds: float = 0,
        count_delivery: bool = True,
    ) -> int:
        """Take claims back; see SegmentPort."""
        with self._lock:
            pending = self._pending(key, subscription)
            uncounted = 0 if count_delivery else 1
            due = self._now_ms() + delay_seconds * 1000
            held = _carve_all(pending, session, ranges)
            pending.add([_released(row, due, uncounted) for row in held])
            return sum(row.count for row in held)


class _Room:
    """What one claim may still take."""

    def __init__(self, store: Store, messages: int, max_bytes: int) -> None:
        self._sizes = {batch.base_offset: len(batch.payload) for batch in store.batches}
        self._bytes = max_bytes
        self._seen: set[int] = set()
        self.messages = max(1, messages)
        self.unread = False

    def take(self, batch_offset: int, count: int) -> int:
        """Give how many messages of a batch fit; the first batch always does."""
        if batch_offset not in self._seen:
            if self._seen and self._sizes[batch_offset] > self._bytes:
                self.messages = 0
            self._seen.add(batch_offset)
            self._bytes -= self._sizes[batch_offset]
        fitting = min(count, self.messages)
        self.messages -= fitting
        return fitting


def _claim_due(pending: Pending, room: _Room, held: Row, now: float) -> list[Row]:
    taken: list[Row] = []
    for row in sorted(pending.rows, key=lambda row: (row.due_ms, row.first)):
        if row.due_ms <= now and (fitting := room.take(row.batch_offset, row.count)):
            pending.carve(row.first, row.first + fitting)
            taken.append(_claimed(row.part(row.first, row.first + fitting), held))
    pending.add(taken)
    return taken


def _claim_new(pending: Pending, store: Store, room: _Room, held: Row, now: float) -> list[Row]:
    taken: list[Row] = []
    batches = store.batches_between(pending.frontier, store.end_offset)
    for looked_at, batch in enumerate(batches):
        if not room.messages or len(pending.rows) >= MAX_RANGES:
            break
        if looked_at == MAX_BATCHES_AHEAD:
            room.unread = True
            break
        first, end = max(batch.base_offset, pending.frontier), batch.base_offset + batch.count
        due = store.times[batch.base_offset].deliver_at_ms
        if due > now:
            pending.add([Row(batch.base_offset, first, end, due)])
        elif fitting := room.take(batch.base_offset, end - first):
            taken.append(_claimed(Row(batch.base_offset, first, first + fitting, 0), held))
            pending.add(taken[-1:])
    return taken


def _claimed(row: Row, held: Row) -> Row:
    return replace(row, due_ms=held.due_ms, session=held.session, deliveries=row.deliveries + 1)


def _released(row: Row, due_ms: float, uncounted: int = 0) -> Row:
    return replace(row, due_ms=due_ms, session=None, deliveries=row.deliveries - uncounted)


def _next_due_seconds(pending: Pending, room: _Room, now: float) -> float | None:
    if room.unread:
        return 0.0
    due = min((row.due_ms for row in pending.rows), default=None)
    return None if due is None else max(0.0, (due - now) / 1000)


def _by_batch(store: Store, taken: Sequence[Row]) -> tuple[ClaimedBatch, ...]:
    ranges: dict[int, list[ClaimedRange]] = {}
    for row in sorted(taken, key=lambda row: row.first):
        ranges.setdefault(row.batch_offset, []).append(ClaimedRange(row.first, row.end, row.deliveries))
    return tuple(
        ClaimedBatch(batch.base_offset, batch.count, batch.payload, tuple(ranges[batch.base_offset]))
        for batch in store.batches
        if batch.base_offset in ranges
    )


def _carve_all(pending: Pending, session: str, ranges: Sequence[tuple[int, int]] | None) -> list[Row]:
    wanted = [(0, pending.frontier)] if ranges is None else ranges
    return [row for first, end in wanted for row in pending.carve(first, end, session)]


def _passed(store: Store, first: int, end: int, now: float) -> list[Row]:
    """Give rows for messages that an acknowledgement jumped over."""
    return [
        Row(
            batch.base_offset,
            max(first, batch.base_offset),
            min(end, batch.base_offset + batch.count),
            max(now, store.times[batch.base_offset].deliver_at_ms),
        )
        for batch in store.batches_between(first, end)
    ]


def _forget_trimmed(pending: Pending, store: Store) -> None:
    pending.carve(0, store.start_offset)
    pending.frontier = max(pending.frontier, store.start_offset)


def _behind(pending: Pending, count: int, end_offset: int) -> int:
    """Give the offset behind the next `count` messages that are not acknowledged."""
    for row in pending.rows:
        if count <= row.count:
            return row.first + count
        count -= row.count
    return min(pending.frontier + count, end_offset)


def _backlog(key: SegmentKey, store: Store, cursor: str) -> CursorBacklog:
    state = store.cursors[cursor]
    pending = store.pending.get(cursor) or Pending(state.position)
    acknowledged = sum(max(0, end - max(first, store.start_offset)) for first, end in pending.acknowledged())
    return CursorBacklog(
        key.segment_id,
        cursor,
        state.position,
        acknowledged,
        store.start_offset,
        store.end_offset,
        store.terminated_at_ms is not None,
    )
