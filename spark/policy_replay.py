"""Policy replay: what other policies would have done with the load that was recorded, topic by topic.

`python -m spark.policy_replay --namespace public/default --profile pip-483 --profile recommended` plays the
history of each topic by each rule of `replay`, which asks the very same `decide` as the product does. Topics
are played in parallel.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from replay.keys import KeySpread, uniform
from replay.run import RULES, replay
from replay.setup import Setup
from replay.traces import Series
from scalable.domain.errors import ScalableError
from scalable.domain.jobs import check_policies
from scalable.domain.json_text import load_shallow_json
from scalable.domain.keyspace import KEYSPACE_SIZE
from spark.history import RecordedFiles, in_namespace, read_recorded, recorded_files, with_readable
from spark.jobs import (
    TASKS_PER_CORE,
    Result,
    check_namespace,
    into_option,
    job_parser,
    read_day,
    run_job,
    write_csv,
    yesterday,
)

MINUTE_MS = 60_000
SHORTEST_MINUTES = 3
PARTS = 32
DEFAULT_PROFILE = "pip-483"
POLICY_HELP = "JSON with fields of a policy, shown by the file's name; may be repeated"
RESULT = pa.schema(
    [
        ("topic", pa.string()),
        ("policy", pa.string()),
        ("minutes", pa.int64()),
        ("keys", pa.string()),
        ("violation_percent", pa.float64()),
        ("over_capacity_percent", pa.float64()),
        ("segments_over_clairvoyant", pa.float64()),
        ("mean_segments", pa.float64()),
        ("actions", pa.int64()),
        ("splits", pa.int64()),
        ("merges", pa.int64()),
    ]
)
RESULT_SCHEMA = (
    "topic string, policy string, minutes bigint, keys string, violation_percent double,"
    " over_capacity_percent double, segments_over_clairvoyant double, mean_segments double, actions bigint,"
    " splits bigint, merges bigint"
)
_NEEDED = (
    "topic",
    "minute_ms",
    "observed_ms",
    "msg_rate_in",
    "mean",
    "hash_start",
    "hash_end",
    "active_segments",
)


@dataclass(frozen=True)
class Candidate:
    """A rule that is compared: a published one, a profile, or a policy under a name of its own."""

    name: str
    rule: str
    fields: Mapping[str, Any] = field(default_factory=dict)


def candidates_of(profiles: Sequence[str], policies: Mapping[str, Mapping[str, Any]]) -> list[Candidate]:
    """Give what is compared; a policy without a profile stands on PIP-483's defaults."""
    named = [Candidate(name, name) for name in profiles]
    own = [
        Candidate(name, fields.get("profile", DEFAULT_PROFILE), fields) for name, fields in policies.items()
    ]
    return [*named, *own]


def replay_topics(rows: DataFrame, candidates: Sequence[Candidate], setup: Setup) -> DataFrame:
    """One row for each topic and rule; topics with less than three minutes of history give none.

    Topics are spread over several tasks a core. Their number is asked for outright:
    adaptive execution would put small groups into one task, where long replays run one after the other.
    """
    tasks = rows.sparkSession.sparkContext.defaultParallelism * TASKS_PER_CORE

    def play(minutes: pa.Table, ranges: pa.Table) -> pa.Table:
        return replay_topic(minutes, ranges, candidates=candidates, setup=setup)

    minutes, ranges = (
        found.repartition(tasks, "topic").groupBy("topic") for found in (minutes_of(rows), ranges_of(rows))
    )
    return minutes.cogroup(ranges).applyInArrow(play, RESULT_SCHEMA)


def minutes_of(rows: DataFrame) -> DataFrame:
    """One row for each minute of a topic: its rate, and how many segments there were, as far as is known."""
    active = sf.when(sf.col("active_segments") > 0, sf.col("active_segments"))
    return rows.groupBy("topic", "minute_ms").agg(
        sf.sum(sf.col("msg_rate_in") * sf.col("observed_ms") / MINUTE_MS).alias("rate"),
        sf.coalesce(sf.max(active), sf.count("*")).alias("segments"),
    )


def ranges_of(rows: DataFrame) -> DataFrame:
    """One row for each hash range that segments of a topic had: the load of its equal parts in all."""
    known = sf.col("hash_start").isNotNull() & sf.col("hash_end").isNotNull()
    weighed = [
        sf.sum(sf.get("mean", sf.lit(part)) * sf.col("observed_ms").cast("double")).alias(f"part_{part}")
        for part in range(PARTS)
    ]
    found = rows.where(known & (sf.size("mean") == PARTS)).groupBy("topic", "hash_start", "hash_end")
    parts = sf.array(*(f"part_{part}" for part in range(PARTS)))
    return found.agg(*weighed).select("topic", "hash_start", "hash_end", parts.alias("parts"))


def replay_topic(
    minutes: pa.Table, ranges: pa.Table, *, candidates: Sequence[Candidate], setup: Setup
) -> pa.Table:
    """Play the recorded load of one topic by each rule; the tables are those of `minutes_of`, `ranges_of`."""
    minutes = minutes.sort_by("minute_ms")
    load = load_of(minutes, setup.step_seconds)
    played_minutes = round(len(load) * setup.step_seconds / 60)
    if played_minutes < SHORTEST_MINUTES:
        return RESULT.empty_table()
    topic, keys = minutes["topic"][0].as_py(), keys_of(ranges)
    setup = replace(setup, initial_segments=min(minutes["segments"][0].as_py(), setup.max_segments))
    played = (
        replay(topic, load, each.rule, setup=setup, keys=keys, override=each.fields, label=each.name)[0]
        for each in candidates
    )
    found = [
        {**each.to_json(), "topic": topic, "policy": each.profile, "minutes": played_minutes}
        for each in played
    ]
    return pa.Table.from_pylist([{name: row[name] for name in RESULT.names} for row in found], schema=RESULT)


def load_of(minutes: pa.Table, step_seconds: float) -> Series:
    """Give the topic's load in equal steps; a minute without a row had none."""
    numbers = minutes["minute_ms"].to_numpy() // MINUTE_MS
    by_minute = np.zeros(int(numbers.max() - numbers.min()) + 1)
    np.add.at(by_minute, numbers - numbers.min(), minutes["rate"].to_numpy())
    middles = (np.arange(len(by_minute)) + 0.5) * 60
    load: Series = np.interp(np.arange(0.0, len(by_minute) * 60, step_seconds), middles, by_minute)
    return load


def keys_of(ranges: pa.Table) -> KeySpread:
    """Give how the load lay in the hash space, from the parts of the segments whose range is known."""
    loads = np.zeros(KEYSPACE_SIZE)
    for each in ranges.sort_by([("hash_start", "ascending"), ("hash_end", "ascending")]).to_pylist():
        start, end = each["hash_start"], each["hash_end"]
        part = np.arange(end - start + 1) * PARTS // (end - start + 1)
        widths = np.bincount(part, minlength=PARTS)
        loads[start : end + 1] += (np.asarray(each["parts"]) / np.maximum(widths, 1))[part]
    if not loads.sum() > 0:
        return uniform()
    return KeySpread("recorded", np.concatenate([[0.0], np.cumsum(loads / loads.sum())]))


def compare(results: DataFrame) -> DataFrame:
    """One row a policy: means over topics, actions in all."""
    return results.groupBy("policy").agg(
        sf.count("*").alias("topics"),
        sf.avg("violation_percent").alias("violation_percent"),
        sf.avg("segments_over_clairvoyant").alias("segments_over_clairvoyant"),
        sf.sum("actions").alias("actions"),
    )


def run(session: SparkSession, options: argparse.Namespace) -> Result:
    """Replay the days of a namespace, and write the results; those of the same days are replaced."""
    recorded = recorded_files(options.history, first=options.day, last=options.last_day or options.day)
    return with_readable(options.history, recorded, partial(_run, session, options))


def _run(session: SparkSession, options: argparse.Namespace, recorded: RecordedFiles) -> Result:
    last = options.last_day or options.day
    rows = in_namespace(read_recorded(session, options.history, recorded), options.namespace)
    rows = rows.select(*_NEEDED).cache()  # it is gone through twice
    candidates = candidates_of(options.profile or RULES, options.policy)
    results = replay_topics(rows, candidates, _setup(options)).cache()
    # Not coalesced: one task would then play all the topics.
    ordered = results.repartition(1).sortWithinPartitions("topic", "policy")
    output = options.into or f"{options.output}/{options.namespace or 'all'}/{options.day}-{last}"
    ordered.write.mode("overwrite").parquet(f"{output}/results.parquet")
    write_csv(ordered, f"{output}/results.csv")
    policies = compare(results).orderBy("policy").toArrow().to_pylist()
    unreadable = list(recorded.unreadable)
    return {"results": output, "files": ["results.csv"], "policies": policies, "unreadable": unreadable}


def _setup(options: argparse.Namespace) -> Setup:
    """Give the set-up of the replays; raises ValueError for a number out of its bounds."""
    return Setup(
        capacity=options.capacity,
        initial_segments=1,  # until a topic's own are known
        max_segments=options.max_segments,
        warm_up_seconds=options.warm_up_seconds,
    )


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    parser = job_parser("policy_replay", __doc__, environment)
    replays = Path(environment.get("SCALABLE_DATA_DIR") or ".data").resolve() / "spark" / "replays"
    add, usual = parser.add_argument, Setup()
    add("--day", type=read_day, default=yesterday(), help="UTC; default: yesterday")
    add("--last-day", type=read_day, help="default: the same day")
    add("--namespace", default="", help="tenant/namespace; default: all")
    add("--profile", action="append", choices=RULES, help="may be repeated; default: all")
    add("--policy", action="append", default=[], type=Path, metavar="FILE", help=POLICY_HELP)
    add("--output", default=str(replays), help="path or URI below which results are written")
    add("--capacity", type=float, default=usual.capacity, help="messages/s that one segment can take")
    add("--max-segments", type=int, default=usual.max_segments, help="segments at most, whatever the policy")
    add("--warm-up-seconds", type=float, default=0.0, help="so long at the start nothing is counted")
    into_option(parser)
    options = parser.parse_args(arguments)
    check_namespace(parser, options.namespace)
    if options.last_day is not None and options.last_day < options.day:
        parser.error(f"--last-day ({options.last_day}) is before --day ({options.day})")
    try:
        _setup(options)
    except ValueError as error:
        parser.error(str(error))
    try:
        options.policy = read_policies(options.policy)
    except (ScalableError, OSError, ValueError) as error:
        parser.error(f"--policy: {error}")
    return options


def read_policies(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Read policies from files, by the files' names; raises OSError, ValueError, ScalableError."""
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        raise ValueError("two files have the same name, by which results are told apart")
    return check_policies(
        "policy", {path.stem: load_shallow_json(path.read_text(encoding="utf-8")) for path in paths}
    )


def main() -> int:
    """Run the job as a process."""
    options = parse_options(sys.argv[1:], os.environ)
    return run_job("policy_replay", options, lambda session: run(session, options))


if __name__ == "__main__":
    sys.exit(main())
