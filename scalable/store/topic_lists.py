"""Which topics a namespace has, and what changed since an earlier look.

A position is a snapshot of the database. The trigger on topics notes each change with its transaction; what a
later snapshot sees and the earlier one did not is new, whatever the order of commits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

KEPT_SECONDS = 3_600
"""How long changes are kept: whoever looked longer ago reads the whole list again."""
TRIMMED_ROWS = 10_000

_LIST = """
SELECT pg_current_snapshot()::text, clock_timestamp(), namespace.id, topic.name, topic.id
  FROM scalable_namespace AS namespace
  LEFT JOIN scalable_topic AS topic
    ON topic.namespace_id = namespace.id {condition}
 WHERE namespace.tenant = %(tenant)s AND namespace.name = %(namespace)s
"""
_ALL = _LIST.format(condition="")
_FILTERED = _LIST.format(condition="AND topic.properties @> %(filters)s::jsonb")

_CHANGES = """
SELECT look.snapshot::text, look.at,
       EXISTS (SELECT FROM scalable_namespace WHERE id = %(namespace_id)s),
       look.at < %(at)s + make_interval(secs => %(kept_seconds)s)
         AND pg_snapshot_xmax(look.snapshot) >= pg_snapshot_xmax(%(snapshot)s::pg_snapshot),
       change.name, topic.id, topic.properties
  FROM (SELECT pg_current_snapshot() AS snapshot, clock_timestamp() AS at) AS look
  LEFT JOIN (
        SELECT DISTINCT name
          FROM scalable_topicchange
         WHERE namespace_id = %(namespace_id)s
           AND transaction_id >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
           AND NOT pg_visible_in_snapshot(transaction_id, %(snapshot)s::pg_snapshot)
       ) AS change ON true
  LEFT JOIN scalable_topic AS topic ON topic.namespace_id = %(namespace_id)s AND topic.name = change.name
"""

_TRIM = """
DELETE FROM scalable_topicchange
 WHERE id IN (SELECT id FROM scalable_topicchange ORDER BY id LIMIT %s)
   AND changed_at < clock_timestamp() - make_interval(secs => %s)
"""


@dataclass(frozen=True, slots=True)
class Position:
    """When a list was read."""

    namespace_id: int
    snapshot: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TopicList:
    """The topics that match, by name with their incarnations."""

    position: Position
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A topic that came, went or changed its properties, as it is now; without an incarnation it is gone."""

    name: str
    incarnation: int | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """All that changed since a position."""

    position: Position
    changes: tuple[Change, ...]


def read_list(*, tenant: str, namespace: str, filters: Mapping[str, str]) -> TopicList | None:
    """The topics of a namespace that have these properties, or None when there is no such namespace."""
    wanted = {"tenant": tenant, "namespace": namespace, "filters": json.dumps(dict(filters))}
    rows = _rows(_FILTERED if filters else _ALL, wanted)
    if not rows:
        return None
    snapshot, at, namespace_id, *_ = rows[0]
    topics = {name: incarnation for *_, name, incarnation in rows if incarnation is not None}
    return TopicList(Position(namespace_id, snapshot, at), topics)


def read_changes(since: Position) -> Changes | None:
    """What changed since an earlier look, or None when that can no longer be told.

    So it is when the namespace was deleted, when the look was too long ago, and when the database has gone
    back in time, as after a restore.
    """
    rows = _rows(
        _CHANGES,
        {
            "namespace_id": since.namespace_id,
            "snapshot": since.snapshot,
            "at": since.at,
            "kept_seconds": KEPT_SECONDS / 2,
        },
    )
    snapshot, at, exists, can_be_told, *_ = rows[0]
    if not (exists and can_be_told):
        return None
    changes = tuple(
        Change(name, incarnation, json.loads(properties) if properties else {})
        for *_, name, incarnation, properties in rows
        if name is not None
    )
    return Changes(Position(since.namespace_id, snapshot, at), changes)


def trim_changes() -> int:
    """Forget some changes that nobody asks for any more, and count them."""
    with connection.cursor() as cursor:
        cursor.execute(_TRIM, [TRIMMED_ROWS, KEPT_SECONDS])
        return int(cursor.rowcount)


def _rows(statement: str, parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
