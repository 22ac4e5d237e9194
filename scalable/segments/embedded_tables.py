"""Statements on the tables of the segment log, and what all parts of the adapter look up."""

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

from scalable.domain.errors import SegmentStoreMissing, SubscriptionNotFound
from scalable.domain.keyspace import HashRange
from scalable.segments import statements
from scalable.segments.port import MAX_ACKNOWLEDGED, CursorState, Fence, SegmentKey
from scalable.wire.marks import Mark

Row = tuple[Any, ...]


class EmbeddedTables:
    """The tables of `sql/` in one of Django's databases; safe for threads."""

    def __init__(self, *, using: str = DEFAULT_DB_ALIAS) -> None:
        self._using = using

    @property
    def transactional(self) -> bool:
        """True in the metadata database."""
        return self._using == DEFAULT_DB_ALIAS

    def _require_cursor(self, key: SegmentKey, subscription: str) -> tuple[CursorState, int, int]:
        cursors, start_offset, end_offset = self._cursors(key, subscription)
        if not cursors:
            raise SubscriptionNotFound(subscription=subscription)
        return cursors[0], start_offset, end_offset

    def _cursors(self, key: SegmentKey, subscription: str | None) -> tuple[list[CursorState], int, int]:
        names = {**names_of(key), "subscription": subscription, "max_ranges": MAX_ACKNOWLEDGED}
        rows = self._execute(statements.CURSORS, names).fetchall()
        if not rows:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        end_offset, start_offset = rows[0][5:]
        return [_cursor_state(row) for row in rows if row[0] is not None], start_offset, end_offset

    # Rows

    def _log(self, statement: str, key: SegmentKey) -> tuple[int, HashRange, bool]:
        row = self._execute(statement, names_of(key)).fetchone()
        if row is None:
            raise SegmentStoreMissing(segment_id=key.segment_id)
        log_id, start, end, terminated = row
        return log_id, HashRange(start, end), terminated

    def _marks_of(self, log_id: int, producer: str | None) -> list[Mark]:
        rows = self._execute(statements.MARKS_OF, {"log_id": log_id, "producer": producer}).fetchall()
        return [Mark(*row[1:]) for row in rows]

    def _one(self, statement: str, key: SegmentKey, fence: Fence | None = None, **values: object) -> Row:
        fenced = (
            {"operation": fence.operation_id, "token": fence.token}
            if fence
            else {"operation": None, "token": None}
        )
        row = self._execute(statement, {**names_of(key), **fenced, **values}).fetchone()
        if row is None:
            raise RuntimeError("a function of the schema gave no answer")
        return row

    def _execute(self, statement: str, values: Mapping[str, object]) -> psycopg.Cursor[Row]:
        connection = connections[self._using]
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            cursor = psycopg.Cursor(connection.connection)
            return cursor.execute(statement, values, prepare=True, binary=True)


def _cursor_state(row: Row) -> CursorState:
    name, position, incarnation, generation, acknowledged = row[:5]
    ranges = tuple((found.lower, found.upper) for found in acknowledged)
    return CursorState(name, position, incarnation, generation, ranges)


def changed_meanwhile(key: SegmentKey, subscription: str) -> RuntimeError:
    """Make the error of a refusal whose cause was gone when it was looked for: the caller may try again."""
    return RuntimeError(f"the cursor {subscription} of {key} changed while a refusal was explained")


def names_of(key: SegmentKey) -> dict[str, object]:
    """Give the parameters that name a store."""
    return {"incarnation": key.incarnation, "segment_id": key.segment_id}
