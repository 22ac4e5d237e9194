"""While an old transaction is open nothing can be vacuumed; the data plane must not slow down for that.

Cost is counted in pages that a statement touches, which no other load on the machine changes; `python -m
bench.hot_tables` measures time.
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from scalable.domain.keyspace import FULL_RANGE
from scalable.segments import statements
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.port import SegmentKey
from scalable.segments.schema import SQL
from tests.segments.samples import batch, fresh_key

SECONDS = 30
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
# A version of a row is at the same place, and of the same transaction, until the row is updated or deleted.
VERSIONS = """
SELECT (SELECT array_agg((c.ctid, c.xmin)::text) FROM segment_cursor c WHERE c.log_id = l.log_id)
    || (SELECT array_agg((b.ctid, b.xmin)::text ORDER BY base_offset) FROM segment_batch b
        WHERE b.log_id = l.log_id AND b.base_offset < %s)
    || (SELECT array_agg((m.ctid, m.xmin)::text) FROM segment_mark m WHERE m.log_id = l.log_id)
    || (l.ctid, l.xmin)::text
FROM segment_log l WHERE l.incarnation = %s
"""
SET_FOR = re.compile(r"ALTER FUNCTION (\w+) SET enable_seqscan = off")
TABLES = ("log", "batch", "mark", "cursor", "position", "pending")


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
        port.create(self.key, hash_range=FULL_RANGE, subscriptions=["s", "shared"], fence=None)

    def step(self) -> None:
        self.port.append(self.key, [batch(self.sequence, self.sequence + 2)], producer="p")
        self.sequence += 2
        self.port.acknowledge(self.key, subscription="s", generation=0, position=self.sequence)

    def share(self) -> None:
        """Claim and acknowledge what is there, all but the first message, which is given back."""
        claimed = self.port.claim(
            self.key,
            subscription="shared",
            consumer="c",
            session="x",
            max_messages=10,
            max_bytes=10_000,
            lease_seconds=60,
        )
        found = [(first, end) for each in claimed.batches for first, end, _ in each.ranges]
        for first, end in found:
            if first == 0:
                self.port.return_claims(
                    self.key, subscription="shared", session="x", ranges=[(0, 1)], delay_seconds=3_600
                )
            self.port.acknowledge_ranges(
                self.key, subscription="shared", generation=None, ranges=[(max(1, first), end)]
            )

    def _next(self) -> dict[str, Any]:
        sequence, self.sequence = self.sequence, self.sequence + 1
        return {
            "producer": "p",
            "counts": [1],
            "hash_lows": [0],
            "hash_highs": [0],
            "firsts": [sequence],
            "lasts": [sequence],
            "sizes": [1],
            "deliver_ats_ms": [0],
            "payloads": [b"x"],
        }

    def pages(self) -> dict[str, int]:
        names = {"incarnation": self.key.incarnation, "segment_id": self.key.segment_id}
        acknowledge = {
            "subscription": "s",
            "generation": 0,
            "cursor_incarnation": None,
            "position": self.sequence,
        }
        read = {"offset": self.sequence - 1, "max_bytes": 1, "max_batches": 1}
        ranges = {"firsts": [1], "behinds": [2], "max_ahead": 1_000}
        claim = {
            "subscription": "shared",
            "session": "x",
            "consumer": "c",
            "max_messages": 10,
            "max_bytes": 10_000,
            "lease_seconds": 60,
            "max_ranges": 1_000,
            "max_ahead": 1_000,
        }
        return {
            "claim": _pages(statements.CLAIM, {**names, **claim}),
            "acknowledge ranges": _pages(
                statements.ACKNOWLEDGE_RANGES,
                {**names, **ranges, **acknowledge, "subscription": "shared", "generation": None},
            ),
            # A table that grows, or a page of an index that splits, costs a single append more.
            "append": min(_pages(statements.APPEND, {**names, **self._next()}) for _ in range(3)),
            "acknowledge": _pages(statements.ACKNOWLEDGE, {**names, **acknowledge}),
            "cursor": _pages(statements.CURSORS, {**names, "subscription": "s", "max_ranges": 9}),
            "read": _pages(statements.READ, {**names, **read}),
        }


def _pages(statement: str, values: dict[str, Any]) -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute(EXPLAIN + statement.replace(")b", ")s"), values)
        (explained,) = cursor.fetchone()
    plan = (json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _versions(load: Load) -> list[str]:
    """Give where the rows of the log lie that were there after its first step."""
    with connections["default"].cursor() as cursor:
        cursor.execute(VERSIONS, [2, load.key.incarnation])
        (found,) = cursor.fetchone()
    return list(found)


def _analyze() -> None:
    """Have the planner know what autovacuum would tell it."""
    with connections["default"].cursor() as cursor:
        cursor.execute("ANALYZE " + ", ".join(f"segment_{name}" for name in TABLES))


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


def test_a_function_that_was_replaced_has_what_was_set_for_it(embedded_port: EmbeddedSegments) -> None:
    """`CREATE OR REPLACE` forgets the settings."""
    demanded = {name for path in SQL.glob("*.sql") for name in SET_FOR.findall(path.read_text())}
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE proname = ANY(%s) AND 'enable_seqscan=off' = ANY(proconfig)",
            [list(demanded)],
        )
        assert {name for (name,) in cursor.fetchall()} == demanded
    assert "segment_claim" in demanded


def test_appends_and_acknowledgements_update_no_row(embedded_port: EmbeddedSegments) -> None:
    load = Load(embedded_port)
    load.step()
    before = _versions(load)
    for _ in range(20):
        load.step()
    assert _versions(load) == before
    embedded_port.own(load.key, subscription="s", generation=1)
    assert _versions(load) != before


def test_statistics_that_count_no_dead_rows_lead_no_lookup_astray(
    embedded_port: EmbeddedSegments, old_snapshot: None
) -> None:
    """After many moves a cursor has one live row among pages of dead ones, and so has a trimmed log."""
    load = Load(embedded_port)
    for _ in range(100):
        load.step()
        load.share()
    load.pages()  # plans, which reads the catalogue
    young = load.pages()
    for _ in range(1_200):
        load.step()
        load.share()
    embedded_port.trim(load.key, before_offset=load.sequence - 2, max_batches=10_000)
    _analyze()
    load.pages()  # plans again, and passes once by what was trimmed
    load.step()
    old = load.pages()
    # A scan of all of the dead rows costs 40 pages more at least, some dead rows on the way a dozen.
    assert {name: pages for name, pages in old.items() if pages > young[name] + 25} == {}


def test_reads_far_into_a_segment_touch_few_pages(embedded_port: EmbeddedSegments) -> None:
    load = Load(embedded_port)
    key: SegmentKey = load.key
    for first in range(0, 2_000, 100):
        embedded_port.append(
            key, [batch(number, number + 1) for number in range(first, first + 100)], producer="p"
        )
    load.sequence = 2_000
    pages = load.pages()
    assert max(pages[name] for name in ("append", "acknowledge", "cursor", "read")) < 60
