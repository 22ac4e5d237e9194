"""`python -m bench.hot_tables [--seconds 600]`: does the data plane stay flat under an old snapshot?

One client appends and acknowledges while another transaction stays open from before the first append, so that
nothing can be vacuumed. Beside each append a counter is updated in its own table, as a log with a counter
column would: that is the floor. The table of results shows latency and dead rows over time.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import django
import psycopg
from django.core.management import call_command

from bench.report import machine
from launch.sandbox import Sandbox
from scalable.domain.keyspace import FULL_RANGE
from scalable.segments.port import SegmentKey, SegmentPort
from scalable.segments.registry import segment_port
from scalable.wire.batch import Record, encode_batch

KEY = SegmentKey(10**9, 0)
APPENDS_PER_ACKNOWLEDGEMENT = 25
RECORDS_PER_BATCH = 10
SAMPLES = 10
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "hot-tables.md"
HEAD = """# Hot tables under an old snapshot

One client appends, and acknowledges at every {every}th append, while another transaction stays open from
before the first append. Beside each append a counter row is updated, as a log with a counter column would.
Latencies are in milliseconds, of one tenth of the run each; dead rows are counted at its end: those of the
log, its batches, marks and cursors together, then those of cursor positions. On a machine that others use,
the quotient of append and counter tells more than either. `python -m bench.hot_tables` measures again
({machine}, {date}).

| seconds | appends/s | append p50 | p99 | ack p50 | counter p50 | append/counter | dead: log | positions |
|---|---|---|---|---|---|---|---|---|
"""
FOOT = """
What it shows: the log, its batches, marks and cursors leave no dead row, so that an old transaction (a dump,
a report, a session that somebody forgot) does not slow appends down. The quotient does not rise, for it is
the counter that walks over more and more of its own dead rows. An acknowledgement leaves one dead row, the
former position of its cursor, which is removed once the old transaction has ended.
[Decision 0031](decisions/0031-append-updates-no-row.md) tells how.
"""
LOG_TABLES = ("segment_log", "segment_batch", "segment_mark", "segment_cursor")
WATCHED = (*LOG_TABLES, "segment_position", "bench_counter")
DEAD_ROWS = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE relname = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Sample:
    """One tenth of the run: medians in milliseconds, appends per second, dead rows at its end."""

    seconds: float
    appends: int
    append_p50_ms: float
    append_p99_ms: float
    acknowledge_p50_ms: float
    counter_update_p50_ms: float
    dead_rows: dict[str, int]


def _timed(work: Callable[[], object], into: list[float]) -> None:
    started = time.perf_counter()
    work()
    into.append((time.perf_counter() - started) * 1000)


class HotTables:
    """The load of one client, and what it does to the tables."""

    def __init__(self, url: str) -> None:
        self._port: SegmentPort = segment_port()
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE TABLE bench_counter (id integer PRIMARY KEY, next_offset bigint)")
        self._connection.execute("INSERT INTO bench_counter VALUES (0, 0)")
        self._port.create(KEY, hash_range=FULL_RANGE, subscriptions=["s"], fence=None)
        self._sequence = 0

    def run(self, seconds: float) -> Iterator[Sample]:
        """Append for so long, and give a sample after each tenth."""
        began = time.perf_counter()
        for tenth in range(1, SAMPLES + 1):
            yield self._sample(began, until=began + seconds * tenth / SAMPLES)

    def _sample(self, began: float, *, until: float) -> Sample:
        appends: list[float] = []
        acknowledgements: list[float] = []
        updates: list[float] = []
        while time.perf_counter() < until or not acknowledgements:
            _timed(self._append, appends)
            _timed(self._count, updates)
            if len(appends) % APPENDS_PER_ACKNOWLEDGEMENT == 0:
                _timed(self._acknowledge, acknowledgements)
        return Sample(
            seconds=round(time.perf_counter() - began, 1),
            appends=len(appends),
            append_p50_ms=round(statistics.median(appends), 3),
            append_p99_ms=round(statistics.quantiles(appends, n=100)[98], 3),
            acknowledge_p50_ms=round(statistics.median(acknowledgements), 3),
            counter_update_p50_ms=round(statistics.median(updates), 3),
            dead_rows=self._dead_rows(),
        )

    def _append(self) -> None:
        records = [Record("key", b"value", self._sequence + index) for index in range(RECORDS_PER_BATCH)]
        self._port.append(KEY, [encode_batch(records, published_at_ms=0)], producer="bench")
        self._sequence += RECORDS_PER_BATCH

    def _acknowledge(self) -> None:
        self._port.acknowledge(KEY, subscription="s", generation=0, position=self._sequence)

    def _count(self) -> None:
        self._connection.execute("UPDATE bench_counter SET next_offset = next_offset + 1 WHERE id = 0")

    def _dead_rows(self) -> dict[str, int]:
        return dict(self._connection.execute(DEAD_ROWS, [list(WATCHED)]).fetchall())


def _old_snapshot(url: str) -> psycopg.Connection:
    """Open a transaction that keeps every row version from now on alive."""
    connection = psycopg.connect(url, options="-c idle_in_transaction_session_timeout=0")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1")
    return connection


def render(samples: Sequence[Sample]) -> str:
    """Write the samples as a page."""
    today = datetime.now(tz=UTC).date().isoformat()
    head = HEAD.format(every=APPENDS_PER_ACKNOWLEDGEMENT, machine=machine(), date=today)
    return head + "".join(map(_line, [0.0, *(sample.seconds for sample in samples)], samples)) + FOOT


def _line(began: float, sample: Sample) -> str:
    dead = sample.dead_rows
    cells = [
        f"{sample.seconds:,.0f}",
        f"{sample.appends / (sample.seconds - began):,.0f}",
        f"{sample.append_p50_ms:.2f}",
        f"{sample.append_p99_ms:.2f}",
        f"{sample.acknowledge_p50_ms:.2f}",
        f"{sample.counter_update_p50_ms:.2f}",
        f"{sample.append_p50_ms / sample.counter_update_p50_ms:.2f}",
        f"{sum(dead.get(table, 0) for table in LOG_TABLES):,}",
        f"{dead.get('segment_position', 0):,}",
    ]
    return "| " + " | ".join(cells) + " |\n"


def main(argv: list[str]) -> int:
    """Run in an embedded PostgreSQL of its own and write `docs/hot-tables.md`."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_tables", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    seconds = parser.parse_args(argv).seconds
    sandbox = Sandbox(durable=True)
    environment = sandbox.environment()
    try:
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="scalable.settings")
        sandbox.start()
        django.setup()
        call_command("migrate", verbosity=0)
        tables = HotTables(environment["DATABASE_URL"])
        with _old_snapshot(environment["DATABASE_URL"]):
            samples = []
            for sample in tables.run(seconds):
                samples.append(sample)
                print(json.dumps(asdict(sample)), flush=True)
    finally:
        sandbox.stop()
    RESULTS.write_text(render(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
