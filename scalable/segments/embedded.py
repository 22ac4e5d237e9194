"""The segment log in PostgreSQL: in the metadata database, joining the caller's transaction, or in another.

Functions of the schema (`sql/`) answer with a refusal by name instead of an SQL error, so that a refusal
leaves the caller's transaction usable. Queries run on psycopg's own cursor: binary, prepared, bound by the
server.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from scalable.domain.errors import (
    LeaseLost,
    ScalableError,
    SegmentStoreMissing,
    SegmentTerminated,
)
from scalable.domain.keyspace import HashRange
from scalable.segments import statements
from scalable.segments.checks import (
    ack_refusal,
    checked_headers,
    outside_range,
    partly_duplicate,
    position_refusal,
)
from scalable.segments.embedded_claims import EmbeddedClaims
from scalable.segments.embedded_tables import changed_meanwhile, names_of
from scalable.segments.port import (
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
from scalable.wire.batch import BatchHeader
from scalable.wire.marks import Mark, clip, flatten


class EmbeddedSegments(EmbeddedClaims):
    """A `SegmentPort` on the tables of `sql/` in one of Django's databases; safe for threads."""

    # Stores

    def create(
        self, key: SegmentKey, *, hash_range: HashRange, subscriptions: Sequence[str], fence: Fence | None
    ) -> None:
        """Make a store; see SegmentPort."""
        (refusal,) = self._one(
            statements.CREATE,
            key,
            fence,
            hash_start=hash_range.start,
            hash_end=hash_range.end,
            subscriptions=list(subscriptions),
        )
        _raise_refusal(refusal, key, fence)

    def create_all(self, *, incarnation: int, stores: Sequence[NewStore]) -> None:
        """Make many stores; see SegmentPort."""
        cursors = [(store.segment_id, cursor) for store in stores for cursor in store.cursors]
        names = {
            "incarnation": incarnation,
            "segment_ids": [store.segment_id for store in stores],
            "hash_starts": [store.hash_range.start for store in stores],
            "hash_ends": [store.hash_range.end for store in stores],
            "cursor_segment_ids": [segment_id for segment_id, _ in cursors],
            "cursors": [cursor for _, cursor in cursors],
        }
        self._execute(statements.CREATE_ALL, names)

    def terminate(self, key: SegmentKey, *, fence: Fence | None) -> int:
        """Seal a store and return its end; see SegmentPort."""
        refusal, end_offset = self._one(statements.TERMINATE, key, fence)
        _raise_refusal(refusal, key, fence)
        return int(end_offset)

    def inherit_producer_marks(
        self, parents: Sequence[SegmentKey], child: SegmentKey, *, fence: Fence | None
    ) -> None:
        """Hand marks on to a child; see SegmentPort."""
        keys = (child, *parents)
        names = {
            "incarnations": [key.incarnation for key in keys],
            "segment_ids": [key.segment_id for key in keys],
        }
        rows = self._execute(statements.INHERITABLE, names).fetchall()
        logs = {SegmentKey(*row[:2]): (HashRange(*row[2:4]), row[4]) for row in rows}
        _require_sealed(logs, parents, child)
        hash_range, _ = logs[child]
        marks = _inherited(((row[5], Mark(*row[6:])) for row in rows if row[5] is not None), hash_range)
        (refusal,) = self._one(
            statements.INHERIT,
            child,
            fence,
            producers=[producer for producer, _ in marks],
            starts=[mark.hash_start for _, mark in marks],
            ends=[mark.hash_end for _, mark in marks],
            lasts=[mark.last_sequence for _, mark in marks],
        )
        _raise_refusal(refusal, child, fence)

    def delete(self, key: SegmentKey) -> None:
        """Remove a store; see SegmentPort."""
        self.delete_all(incarnation=key.incarnation, segment_ids=[key.segment_id])

    def delete_all(self, *, incarnation: int, segment_ids: Sequence[int]) -> None:
        """Remove many stores; see SegmentPort."""
        names = {"incarnation": incarnation, "segment_ids": list(segment_ids)}
        self._execute(statements.DELETE_ALL, names)

    def keys(self, *, incarnation: int | None = None) -> Sequence[SegmentKey]:
        """All stores; see SegmentPort."""
        return [
            SegmentKey(*row)
            for row in self._execute(statements.KEYS, {"incarnation": incarnation}).fetchall()
        ]

    def stats(self, key: SegmentKey) -> SegmentStats:
        """Offsets and size; see SegmentPort."""
        row = self._execute(statements.STATS, names_of(key)).fetchone()
        if row is None:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        return SegmentStats(*row)

    # Messages

    def append(
        self, key: SegmentKey, batches: Sequence[bytes], *, producer: str | None
    ) -> list[AppendResult]:
        """Store batches; see SegmentPort."""
        headers = checked_headers(batches)
        refusal, refused_index, base_offsets, duplicates = self._one(
            statements.APPEND,
            key,
            None,
            producer=producer,
            sizes=[len(batch) for batch in batches],
            payloads=list(batches),
            **_columns(headers),
        )
        if refusal in {"outside_range", "partly_duplicate"}:
            raise self._refused_batch(refusal, key, headers[refused_index], producer)
        _raise_refusal(refusal, key, None)
        return list(map(AppendResult, base_offsets, duplicates))

    def _refused_batch(
        self, refusal: str, key: SegmentKey, header: BatchHeader, producer: str | None
    ) -> ScalableError:
        log_id, hash_range, _ = self._log(statements.LOG, key)
        if refusal == "outside_range":
            return outside_range(header, hash_range)
        return partly_duplicate(key, header, self._marks_of(log_id, producer))

    def read(self, key: SegmentKey, *, offset: int, max_bytes: int, max_batches: int) -> ReadResult:
        """A page of batches; see SegmentPort."""
        limits = {"offset": offset, "max_bytes": max_bytes, "max_batches": max(1, max_batches)}
        rows = self._execute(statements.READ, {**names_of(key), **limits}).fetchall()
        if not rows:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        start_offset, end_offset, terminated = rows[0][:3]
        batches = tuple(StoredBatch(*row[3:]) for row in rows if row[3] is not None)
        behind = batches[-1].base_offset + batches[-1].count if batches else max(offset, start_offset)
        return ReadResult(batches, behind, end_offset, terminated)

    def producer_marks(self, key: SegmentKey, *, producer: str) -> Sequence[ProducerMark]:
        """The marks of one producer; see SegmentPort."""
        marks = flatten(self._marks_of(self._log(statements.LOG, key)[0], producer))
        return [
            ProducerMark(producer, HashRange(mark.hash_start, mark.hash_end), mark.last_sequence)
            for mark in marks
        ]

    def trim(self, key: SegmentKey, *, before_offset: int, max_batches: int) -> int:
        """Delete old batches; see SegmentPort."""
        refusal, start_offset = self._one(statements.TRIM, key, before=before_offset, max_batches=max_batches)
        _raise_refusal(refusal, key, None)
        return int(start_offset)

    # Cursors

    def create_cursor(self, key: SegmentKey, *, subscription: str, position: int | None) -> None:
        """Add a cursor; see SegmentPort."""
        names = {**names_of(key), "subscription": subscription, "position": position}
        if self._execute(statements.CREATE_CURSOR, names).fetchone() is None:
            raise SegmentStoreMissing(segment_id=key.segment_id)

    def delete_cursor(self, key: SegmentKey, *, subscription: str) -> None:
        """Remove a cursor; see SegmentPort."""
        self._execute(statements.DELETE_CURSOR, {**names_of(key), "subscription": subscription})

    def cursor(self, key: SegmentKey, *, subscription: str) -> CursorState | None:
        """One cursor; see SegmentPort."""
        return next(iter(self._cursors(key, subscription)[0]), None)

    def cursors(self, key: SegmentKey) -> Sequence[CursorState]:
        """All cursors; see SegmentPort."""
        return self._cursors(key, None)[0]

    def own(self, key: SegmentKey, *, subscription: str, generation: int) -> None:
        """Raise the ownership generation; see SegmentPort."""
        names = {**names_of(key), "subscription": subscription, "generation": generation}
        if self._execute(statements.OWN, names).rowcount == 0:
            self._require_cursor(key, subscription)

    def own_all(self, *, incarnation: int, generations: Sequence[tuple[int, str, int]]) -> None:
        """Raise many generations; see SegmentPort."""
        segment_ids, cursors, wanted = zip(*generations, strict=True) if generations else ((), (), ())
        names = {"segment_ids": list(segment_ids), "cursors": list(cursors), "generations": list(wanted)}
        self._execute(statements.OWN_ALL, {"incarnation": incarnation, **names})

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
        refused, at_position, at_incarnation = self._one(
            statements.ACKNOWLEDGE,
            key,
            None,
            subscription=subscription,
            generation=generation,
            cursor_incarnation=incarnation,
            position=position,
        )
        if refused:
            cursor, _, end_offset = self._require_cursor(key, subscription)
            raise ack_refusal(
                key,
                cursor,
                generation=generation,
                position=position,
                incarnation=incarnation,
                end_offset=end_offset,
            ) or changed_meanwhile(key, subscription)
        return CursorState(subscription, at_position, at_incarnation, generation)

    def seek(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Move the cursor anywhere; see SegmentPort."""
        refused, at_incarnation, at_generation = self._one(
            statements.SEEK, key, None, subscription=subscription, position=position
        )
        if refused:
            _, low, high = self._require_cursor(key, subscription)
            raise position_refusal(key, position=position, low=low, high=high) or changed_meanwhile(
                key, subscription
            )
        return CursorState(subscription, position, at_incarnation, at_generation)


def _columns(headers: Sequence[BatchHeader]) -> dict[str, object]:
    return {
        "counts": [header.count for header in headers],
        "hash_lows": [None if header.unrouted else header.hash_min for header in headers],
        "hash_highs": [None if header.unrouted else header.hash_max for header in headers],
        "firsts": [header.first_sequence for header in headers],
        "lasts": [header.last_sequence for header in headers],
        "deliver_ats_ms": [header.deliver_at_ms for header in headers],
    }


def _require_sealed(
    logs: Mapping[SegmentKey, tuple[HashRange, bool]], parents: Sequence[SegmentKey], child: SegmentKey
) -> None:
    for key in (child, *parents):
        if key not in logs:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        if key in parents and not logs[key][1]:
            raise ValueError(f"{key} still takes appends: its marks would be incomplete")


def _inherited(marks: Iterable[tuple[str, Mark]], hash_range: HashRange) -> list[tuple[str, Mark]]:
    by_producer = groupby(sorted(marks), key=lambda entry: entry[0])
    return [
        (producer, mark)
        for producer, entries in by_producer
        for mark in flatten(clip((mark for _, mark in entries), hash_range))
    ]


def _raise_refusal(refusal: str | None, key: SegmentKey, fence: Fence | None) -> None:
    if refusal == "missing":
        raise SegmentStoreMissing(segment_id=key.segment_id)
    if refusal == "terminated":
        raise SegmentTerminated(segment_id=key.segment_id, epoch=0)
    if refusal == "fenced" and fence is not None:
        raise LeaseLost(resource=f"operation {fence.operation_id}", token=fence.token)
