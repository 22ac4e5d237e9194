"""Rows of the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import connection

from scalable.audit_models import AuditEvent
from scalable.store.clock import ClockTimestamp, milliseconds, moment

Json = Mapping[str, Any]
Sorted = Literal["action", "outcome"]
"""Columns of few values, which have an index that they lead."""

# One step in the index for each value, however many rows there are.
_VALUES = """
WITH RECURSIVE found(value) AS (
    (SELECT {column} FROM scalable_auditevent ORDER BY {column} LIMIT 1)
    UNION ALL
    SELECT (SELECT {column} FROM scalable_auditevent WHERE {column} > value ORDER BY {column} LIMIT 1)
      FROM found WHERE value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class AuditView:
    """One event; `before` and `after` hold what the action changed, where it changed a value."""

    event_id: int
    at_ms: int
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    request_id: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events are wanted; empty fields let everything pass. `target` also finds what lies below it."""

    actor: str = ""
    action: str = ""
    target: str = ""
    outcome: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    below_id: int | None = None


def insert(
    *,
    actor: str,
    action: str,
    target: str,
    before: Json | None,
    after: Json | None,
    request_id: str,
    outcome: str,
) -> None:
    """Add an event."""
    AuditEvent.objects.create(
        at=ClockTimestamp(),
        actor=actor[:300],
        action=action[:64],
        target=target.replace("\x00", "%00")[:1024],  # of a path; PostgreSQL's texts have no NUL
        before=before,
        after=after,
        request_id=request_id,
        outcome=outcome,
    )


def page(wanted: AuditFilter, *, limit: int) -> list[AuditView]:
    """Give events, the newest first."""
    rows = AuditEvent.objects.order_by("-id")
    exact = {"actor": wanted.actor, "action": wanted.action, "outcome": wanted.outcome}
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    if wanted.target:
        rows = rows.filter(target__startswith=wanted.target)
    if wanted.from_ms is not None:
        rows = rows.filter(at__gte=moment(wanted.from_ms))
    if wanted.to_ms is not None:
        rows = rows.filter(at__lt=moment(wanted.to_ms))
    if wanted.below_id is not None:
        rows = rows.filter(id__lt=wanted.below_id)
    return [_view(row) for row in rows[:limit]]


def values_of(column: Sorted, *, limit: int) -> list[str]:
    """Name the values that a column has, in their order, so many at most."""
    with connection.cursor() as cursor:
        cursor.execute(_VALUES.format(column=column), [limit])
        return [value for (value,) in cursor.fetchall()]


def forget(*, before: datetime, limit: int) -> int:
    """Drop the oldest events from before a time, so many at most."""
    oldest = AuditEvent.objects.filter(at__lt=before).order_by("id").values("id")[:limit]
    return AuditEvent.objects.filter(id__in=oldest).delete()[0]


def _view(row: AuditEvent) -> AuditView:
    return AuditView(
        row.pk,
        milliseconds(row.at),
        row.actor,
        row.action,
        row.target,
        row.before,
        row.after,
        row.request_id,
        row.outcome,
    )
