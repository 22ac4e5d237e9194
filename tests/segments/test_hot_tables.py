"""While an old transaction is open nothing can be vacuumed; the data plane must not slow down for that.

Cost is counted in pages that a statement touches, which no other load on the machine changes; `python -m
bench.hot_tables` measures time.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from scalable.domain.keyspace import FULL_RANGE
from scalable.segments import statements
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.port import SegmentKey
from tests.segments.samples import batch, fresh_key

SECONDS = 30
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
CHANGED_ROWS = """
SELECT relname, n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables
WHERE relid = ANY ('{segment_log, segment_batch, segment_mark, segment_cursor}'::regclass[])
"""


@pytest.fixture
def old_snapshot(embedded_port: EmbeddedSegments) -> Iterator[None]:
    """Keep a transaction open whose snapshot is older than everything that the test writes."""
    connection = connections.create_connection("default")
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 0")
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM segment_log")
        yield
        cursor.execute("ROLLBACK")
    connection.close()


class Load:
    """One producer and one consumer of one segment, and the pages that their next calls touch."""

    def __init__(self, port: EmbeddedSegments) -> None:
        self.port = port
        self.key = fresh_key()
        self.sequence = 0
        port.create(self.key, hash_range=FULL_RANGE, subscriptions=["s"], fence=None)

    def step(self) -> None:
        self.port.append(self.key, [batch(self.sequence, self.sequence + 2)], producer="p")
        self.sequence += 2
        self.port.acknowledge(self.key, subscription="s", generation=0, position=self.sequence)

    def pages(self) -> dict[str, int]:
        names = {"incarnation": self.key.incarnation, "segment_id": self.key.segment_id}
        append = {
            "producer": "p",
            "counts": [1],
            "hash_lows": [0],
            "hash_highs": [0],
            "firsts": [self.sequence],
            "lasts": [self.sequence],
            "sizes": [1],
            "payloads": [b"x"],
        }
        self.sequence += 1
        acknowledge = {
            "subscription": "s",
            "generation": 0,
            "cursor_incarnation": None,
            "position": self.sequence,
        }
        read = {"offset": self.sequence - 1, "max_bytes": 1, "max_batches": 1}
        return {
            "append": _pages(statements.APPEND, {**names, **append}),
            "acknowledge": _pages(statements.ACKNOWLEDGE, {**names, **acknowledge}),
            "cursor": _pages(statements.CURSORS, {**names, "subscription": "s"}),
            "read": _pages(statements.READ, {**names, **read}),
        }


def _pages(statement: str, values: dict[str, Any]) -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute(EXPLAIN + statement.replace(")b", ")s"), values)
        (explained,) = cursor.fetchone()
    plan = (json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _changed_rows() -> dict[str, int]:
    """Count the updates and deletes of this connection that lie in no statistics yet."""
    with connections["default"].cursor() as cursor:
        cursor.execute(CHANGED_ROWS)
        return dict(cursor.fetchall())


@pytest.mark.parametrize(
    "seconds", [pytest.param(2, id="short"), pytest.param(SECONDS, id="long", marks=pytest.mark.slow)]
)
def test_appends_and_acknowledgements_cost_the_same_however_many_came_before(
    embedded_port: EmbeddedSegments, old_snapshot: None, seconds: int
) -> None:
    load = Load(embedded_port)
    for _ in range(100):
        load.step()
    young = load.pages()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        load.step()
    old = load.pages()
    assert {name: pages for name, pages in old.items() if pages > young[name] + 12} == {}


def test_appends_and_acknowledgements_update_no_row(embedded_port: EmbeddedSegments) -> None:
    load = Load(embedded_port)
    load.step()
    with transaction.atomic():
        before = _changed_rows()
        for _ in range(20):
            load.step()
        assert _changed_rows() == before
        embedded_port.own(load.key, subscription="s", generation=1)
        assert _changed_rows() != before


def test_reads_far_into_a_segment_touch_few_pages(embedded_port: EmbeddedSegments) -> None:
    load = Load(embedded_port)
    key: SegmentKey = load.key
    for first in range(0, 2_000, 100):
        embedded_port.append(
            key, [batch(number, number + 1) for number in range(first, first + 100)], producer="p"
        )
    load.sequence = 2_000
    assert max(load.pages().values()) < 60
