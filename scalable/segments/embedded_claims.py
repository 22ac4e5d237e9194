"""Cursors in PostgreSQL that many consumers share: claims, single acknowledgements, backlogs, times."""

from collections.abc import Mapping, Sequence

from scalable.domain.errors import SegmentStoreMissing, SubscriptionNotFound
from scalable.segments import statements
from scalable.segments.checks import MAX_BATCHES_AHEAD, fence_refusal, range_refusal, too_far_ahead
from scalable.segments.embedded_tables import EmbeddedTables, changed_meanwhile
from scalable.segments.pending import MAX_RANGES
from scalable.segments.port import (
    ClaimedBatch,
    ClaimedRange,
    ClaimResult,
    CursorBacklog,
    CursorState,
    CursorUsage,
    SegmentKey,
)

Ranges = Sequence[tuple[int, int]]


class EmbeddedClaims(EmbeddedTables):
    """The part of `EmbeddedSegments` that concerns shared cursors."""

    def offset_at(self, key: SegmentKey, *, time_ms: int) -> int:
        """The first offset appended at or after a time; see SegmentPort."""
        found = self._offsets_at(key.incarnation, time_ms, key.segment_id)
        if not found:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        return found[key.segment_id]

    def offsets_at(self, *, incarnation: int, time_ms: int) -> Mapping[int, int]:
        """The same of all segments; see SegmentPort."""
        return self._offsets_at(incarnation, time_ms, None)

    def _offsets_at(self, incarnation: int, time_ms: int, segment_id: int | None) -> dict[int, int]:
        names = {"incarnation": incarnation, "segment_id": segment_id, "time_ms": time_ms}
        return dict(self._execute(statements.OFFSETS_AT, names).fetchall())

    def backlog(self, key: SegmentKey, *, subscription: str) -> int:
        """What is left; see SegmentPort."""
        found = self._backlogs(key.incarnation, segment_id=key.segment_id, cursor=subscription)
        if not found:
            self._require_cursor(key, subscription)
            raise changed_meanwhile(key, subscription)
        return found[0].backlog

    def backlogs(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorBacklog]:
        """What is left of all cursors; see SegmentPort."""
        return self._backlogs(incarnation, subscription=subscription)

    def _backlogs(
        self,
        incarnation: int,
        *,
        segment_id: int | None = None,
        subscription: str | None = None,
        cursor: str | None = None,
    ) -> list[CursorBacklog]:
        names = {
            "incarnation": incarnation,
            "segment_id": segment_id,
            "subscription": subscription,
            "cursor": cursor,
        }
        return [CursorBacklog(*row) for row in self._execute(statements.BACKLOGS, names).fetchall()]

    def usage(self, *, incarnation: int, subscription: str | None = None) -> Sequence[CursorUsage]:
        """Bytes and claims of all cursors; see SegmentPort."""
        names = {"incarnation": incarnation, "subscription": subscription}
        return [CursorUsage(*row) for row in self._execute(statements.USAGE, names).fetchall()]

    def sizes(self, *, incarnation: int) -> Mapping[int, int]:
        """Bytes by segment; see SegmentPort."""
        return dict(self._execute(statements.SIZES, {"incarnation": incarnation}).fetchall())

    def last_sequences(self, *, incarnation: int, limit: int) -> Mapping[str, int]:
        """The producers of a topic; see SegmentPort."""
        names = {"incarnation": incarnation, "limit": limit}
        return dict(self._execute(statements.LAST_SEQUENCES, names).fetchall())

    def skip(self, key: SegmentKey, *, subscription: str, count: int) -> CursorState:
        """Skip messages; see SegmentPort."""
        if count < 0:
            raise ValueError(f"cannot skip {count} messages")
        return self._skip(statements.SKIP, key, subscription, count=count)

    def skip_to(self, key: SegmentKey, *, subscription: str, position: int) -> CursorState:
        """Skip up to a place; see SegmentPort."""
        return self._skip(statements.SKIP_TO, key, subscription, position=position)

    def _skip(self, statement: str, key: SegmentKey, subscription: str, **how_far: int) -> CursorState:
        refused, *state = self._one(statement, key, None, subscription=subscription, **how_far)
        if refused:
            self._raise_missing(key, subscription)
        return CursorState(subscription, *state)

    def acknowledge_ranges(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        generation: int | None,
        ranges: Ranges,
        incarnation: int | None = None,
    ) -> CursorState:
        """Acknowledge ranges; see SegmentPort."""
        refused, too_far, *state = self._one(
            statements.ACKNOWLEDGE_RANGES,
            key,
            None,
            subscription=subscription,
            generation=generation,
            cursor_incarnation=incarnation,
            max_ahead=MAX_BATCHES_AHEAD,
            **_bounds(ranges),
        )
        if refused:
            cursor, _, end_offset = self._require_cursor(key, subscription)
            refusal = fence_refusal(key, cursor, generation=generation, incarnation=incarnation)
            refusal = refusal or range_refusal(key, ranges, end_offset=end_offset)
            raise refusal or changed_meanwhile(key, subscription)
        if too_far is not None:
            raise too_far_ahead(key, too_far)
        return CursorState(subscription, *state)

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
        refused, log_id, batch_offsets, firsts, ends, deliveries, *state = self._one(
            statements.CLAIM,
            key,
            None,
            subscription=subscription,
            consumer=consumer,
            session=session,
            max_messages=max_messages,
            max_bytes=max_bytes,
            lease_seconds=lease_seconds,
            max_ranges=MAX_RANGES,
            max_ahead=MAX_BATCHES_AHEAD,
        )
        if refused:
            self._raise_missing(key, subscription)
        ranges: dict[int, list[ClaimedRange]] = {}
        for batch_offset, *found in zip(batch_offsets, firsts, ends, deliveries, strict=True):
            ranges.setdefault(batch_offset, []).append(ClaimedRange(*found))
        return ClaimResult(self._claimed(log_id, ranges), *state)

    def _claimed(self, log_id: int, ranges: Mapping[int, list[ClaimedRange]]) -> tuple[ClaimedBatch, ...]:
        if not ranges:
            return ()
        rows = self._execute(statements.BATCHES, {"log_id": log_id, "offsets": list(ranges)}).fetchall()
        return tuple(
            ClaimedBatch(offset, count, payload, tuple(sorted(ranges[offset])))
            for offset, count, payload in rows
        )

    def renew(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        lease_seconds: float,
        ranges: Ranges | None = None,
    ) -> int:
        """Let claims last; see SegmentPort."""
        return self._change_claims(key, subscription, session, ranges, lease_seconds, keeps=True)

    def return_claims(
        self,
        key: SegmentKey,
        *,
        subscription: str,
        session: str,
        ranges: Ranges | None,
        delay_seconds: float = 0,
        count_delivery: bool = True,
    ) -> int:
        """Take claims back; see SegmentPort."""
        uncounted = 0 if count_delivery else 1
        return self._change_claims(
            key, subscription, session, ranges, delay_seconds, keeps=False, uncounted=uncounted
        )

    def _change_claims(
        self,
        key: SegmentKey,
        subscription: str,
        session: str,
        ranges: Ranges | None,
        due_in_seconds: float,
        *,
        keeps: bool,
        uncounted: int = 0,
    ) -> int:
        refused, messages = self._one(
            statements.CHANGE_CLAIMS,
            key,
            None,
            subscription=subscription,
            session=session,
            due_in_seconds=due_in_seconds,
            keeps=keeps,
            uncounted=uncounted,
            **_bounds(ranges),
        )
        if refused:
            self._raise_missing(key, subscription)
        return int(messages)

    def _raise_missing(self, key: SegmentKey, subscription: str) -> None:
        self._require_cursor(key, subscription)
        raise SubscriptionNotFound(subscription=subscription)


def _bounds(ranges: Ranges | None) -> dict[str, object]:
    if ranges is None:
        return {"firsts": None, "behinds": None}
    return {"firsts": [first for first, _ in ranges], "behinds": [end for _, end in ranges]}
