"""Rows 16 and 17: the load report of a day on Spark beside DuckDB; policy replay on one core and on two."""

import heapq
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.functions import spark_partition_id

from bench.harness import Bench, Comparison, bench_row
from launch.java import java_environment
from replay.setup import Setup
from spark.daily_report import SEGMENT_RATE, topic_minutes, topics_of
from spark.jobs import TASKS_PER_CORE
from spark.policy_replay import candidates_of, replay_topics
from spark.session import make_session

SIZES = (10_000_000, 100_000_000)
ROWS_PER_FILE = 5_000_000
MINUTES, SEGMENTS = 1_440, 8
TOPICS_REPLAYED = 64
RULES = ("pip-483", "recommended")
MINUTE_MS = 60_000
RATE = 4_000.0
TRIES = 4
"""How often a part of the report is timed; the first times it warms up."""
_SAME_IN_SQL = """
WITH minutes AS (
  SELECT topic, incarnation, minute_ms, sum(msg_rate_in * observed_ms / 60000) AS rate,
         sum(msg_rate_out * observed_ms / 60000) AS rate_out, max(msg_rate_in) AS hottest,
         coalesce(max(active_segments), count(*)) AS segments
    FROM read_parquet('{files}') GROUP BY ALL),
judged AS (
  SELECT *, greatest(1, ceil(rate / {segment_rate})) AS needed,
         CASE WHEN rate > 0 THEN hottest * segments / rate END AS skew FROM minutes)
SELECT topic, incarnation, count(*) AS minutes, sum(rate) * 60 AS messages_in, avg(rate) AS mean_rate,
       max(rate) AS peak_rate, regr_slope(rate, minute_ms / 3600000) AS trend_per_hour, avg(skew) AS skew,
       count(*) FILTER (hottest > {segment_rate}) AS minutes_over_capacity,
       sum(segments) / 60 AS segment_hours, sum(needed) / 60 AS needed_hours,
       sum(segments) / 60 - sum(needed) / 60 AS waste_hours
  FROM judged GROUP BY topic, incarnation ORDER BY waste_hours DESC, topic, incarnation
"""


@contextmanager
def spark(**settings: str) -> Iterator[SparkSession]:
    """Start Spark on two cores, with the compiler that pays for itself on much data."""
    os.environ.update(java_environment() or {})
    large = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
    configuration = {**large, **settings}
    with tempfile.TemporaryDirectory() as directory:
        session = make_session(
            name="bench", master="local[2]", directory=Path(directory), configuration=configuration
        )
        try:
            yield session
        finally:
            session.stop()


def history(first_topic: int, topics: int) -> pa.Table:
    """Make a day of some topics: each goes up and down once, with noise, on its segments."""
    random = np.random.default_rng(first_topic)
    topic, minute, segment = (
        axis.ravel() for axis in np.indices((topics, MINUTES, SEGMENTS), dtype=np.int64)
    )
    wave = 1 + np.sin(2 * np.pi * minute / MINUTES + first_topic + topic)
    names = pa.array([f"topic://public/default/t{first_topic + number}" for number in range(topics)])
    return pa.table(
        {
            "topic": names.take(pa.array(topic)),
            "incarnation": first_topic + topic,
            "segment_id": segment,
            "minute_ms": minute * MINUTE_MS,
            "observed_ms": np.full(len(topic), MINUTE_MS, dtype=np.int32),
            "msg_rate_in": np.round(RATE * wave * random.uniform(0.5, 1.5, len(topic))),
            "msg_rate_out": np.round(RATE * wave),
            "active_segments": np.full(len(topic), SEGMENTS, dtype=np.int32),
        }
    )


def write_history(directory: Path, rows: int) -> None:
    """Write so many rows, in files of a few million."""
    per_topic = MINUTES * SEGMENTS
    topics, step = rows // per_topic, ROWS_PER_FILE // per_topic
    for first in range(0, topics, step):
        table = history(first, min(step, topics - first))
        pq.write_table(table, directory / f"{first:06d}.parquet", compression="zstd")


@bench_row(number=16, title="load report of a day on Spark over DuckDB, same answer", unit="s", goal="<= 2.5")
def load_report(bench: Bench) -> Iterator[Comparison]:
    """Compare the table of topics, warm, from the same Parquet files, on two cores each."""
    duckdb = importlib.import_module("duckdb")
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as name, spark(**{"spark.sql.shuffle.partitions": "4"}) as session:
            write_history(Path(name), rows)
            yield compare_reports(bench, duckdb.connect(config={"threads": 2}), session, Path(name), rows)


def compare_reports(
    bench: Bench, connection: Any, session: SparkSession, directory: Path, rows: int
) -> Comparison:
    """Time both on one set of files; raises AssertionError when their answers differ."""
    query = _SAME_IN_SQL.format(files=f"{directory}/*.parquet", segment_rate=SEGMENT_RATE)
    read = session.read.parquet(str(directory))
    answers: dict[str, pa.Table] = {}

    def floor() -> float:
        started = perf_counter()
        answers["floor"] = connection.sql(query).to_arrow_table()
        return perf_counter() - started

    def product() -> float:
        started = perf_counter()
        answers["product"] = topics_of(topic_minutes(read, SEGMENT_RATE), SEGMENT_RATE).toArrow()
        return perf_counter() - started

    goal = "<= 2" if rows > SIZES[0] else None
    label = f"{rows:,} rows"
    note = told_parts(parts_of(read))
    comparison = bench.compare(label, floor=floor, product=product, goal=goal, note=note)
    check_same(answers["floor"], answers["product"])
    return comparison


def parts_of(read: DataFrame) -> dict[str, float]:
    """Time what the report does, by itself, when it is warm: seconds."""
    parts: dict[str, Callable[[], DataFrame]] = {
        "the numbers of all rows": lambda: summed(read),
        "the names of their topics": lambda: read.agg(sf.sum(sf.length("topic"))),
        "the sums of minutes, with both": lambda: summed(topic_minutes(read, SEGMENT_RATE)),
    }
    return {name: min(seconds_of(part) for _ in range(TRIES)) for name, part in parts.items()}


def summed(frame: DataFrame) -> DataFrame:
    """Add up all numbers, so that none of them can be left unread."""
    return frame.agg(*(sf.sum(name) for name, kind in frame.dtypes if kind != "string"))


def seconds_of(make: Callable[[], DataFrame]) -> float:
    """Time one run of a query that is made anew: a second run of the same one reuses its shuffle files."""
    started = perf_counter()
    make().toArrow()
    return perf_counter() - started


def told_parts(parts: Mapping[str, float]) -> str:
    """Say in a note what parts of the report take."""
    told = ", ".join(f"{seconds:.2f} s for {name}" for name, seconds in parts.items())
    return (
        f"both read the same files with two threads; by itself, Spark takes {told}. It writes shuffle files"
        " between its stages, DuckDB none"
    )


def check_same(expected: pa.Table, found: pa.Table) -> None:
    """Compare answers row by row; numbers may differ in their last digits."""
    orders = [[("topic", "ascending")]] * 2
    left, right = (table.sort_by(order) for table, order in zip((expected, found), orders, strict=True))
    for name in expected.column_names:
        if pa.types.is_string(expected[name].type):
            assert left[name].to_pylist() == right[name].to_pylist()
        else:
            wanted, got = (np.asarray(table[name].to_pylist(), dtype=float) for table in (left, right))
            np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=name)


@bench_row(
    number=17,
    title="policy replay: topic-days a second on two cores over one",
    unit="topic-days/s",
    goal=">= 1.7",
    higher_is_better=True,
)
def policy_replay(bench: Bench) -> Iterator[Comparison]:
    """Replay the same days with Spark and its Python kept to one core, and on two; workers are warm."""
    table = history(0, TOPICS_REPLAYED)
    parts = pa.array([[RATE / 32] * 32] * len(table), type=pa.list_(pa.float32()))
    edges = np.asarray(table["segment_id"]) * (65_536 // SEGMENTS)
    columns = {"mean": parts, "hash_start": edges, "hash_end": edges + 65_536 // SEGMENTS - 1}
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    with tempfile.TemporaryDirectory() as directory, spark() as session:
        pq.write_table(table, f"{directory}/history.parquet")
        rows = session.read.parquet(directory).cache()
        rows.count()
        yield bench.compare(
            f"{TOPICS_REPLAYED} topics of a day, {len(RULES)} policies",
            floor=lambda: on_one_core(lambda: topic_days_per_second(rows)),
            product=lambda: topic_days_per_second(rows),
            note=bound_note(rows),
        )


def bound_note(rows: DataFrame) -> str:
    """Tell what the spreading of topics over tasks allows at most, with a job's tasks and with more."""
    tasks = rows.sparkSession.sparkContext.defaultParallelism * TASKS_PER_CORE
    return told_bounds(
        {each: best_ratio(topics_of_tasks(rows, each)) for each in (tasks, 2 * tasks, 4 * tasks)}
    )


def told_bounds(bounds: Mapping[int, float]) -> str:
    """Say in a note what bounds by numbers of tasks mean; the first number is a job's."""
    told = ", ".join(f"{bound:.2f}x with {each}" for each, bound in bounds.items())
    return (
        f"topics go to tasks by the hash of their names, which bounds two cores at {told} tasks, were all"
        f" topics equally long; a job has {next(iter(bounds))}"
    )


def topics_of_tasks(rows: DataFrame, tasks: int) -> list[int]:
    """Count the topics of each task, in the order of tasks, spread as the replay spreads them."""
    spread = rows.select("topic").distinct().repartition(tasks, "topic")
    counted = spread.groupBy(spark_partition_id().alias("task")).count().orderBy("task")
    return [row["count"] for row in counted.collect()]


def best_ratio(sizes: Sequence[int]) -> float:
    """Over one core, what two cores do that take the tasks in their order, each when it is free."""
    cores = [0, 0]
    for size in sizes:
        heapq.heapreplace(cores, cores[0] + size)
    return sum(sizes) / max(cores)


def on_one_core(work: Callable[[], float]) -> float:
    """Do a work while Spark and its workers, which are our children, share one core."""
    cores = os.sched_getaffinity(0)
    keep_to({min(cores)})
    try:
        return work()
    finally:
        keep_to(cores)


def keep_to(cores: set[int]) -> None:
    """Let all threads of our children run on these cores alone; what they start begins there, too."""
    for process in psutil.Process().children(recursive=True):
        for thread in process.threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)


def topic_days_per_second(rows: DataFrame) -> float:
    """Replay all topics by all policies."""
    started = perf_counter()
    found = replay_topics(rows, candidates_of(RULES, {}), Setup()).count()
    assert found == TOPICS_REPLAYED * len(RULES)
    return TOPICS_REPLAYED / (perf_counter() - started)
