"""The daily load report: hot segments, keys and parts, skew, trend and waste, as HTML, Parquet and CSV.

`python -m spark.daily_report --day 2026-11-27` reads the history of one day. Nodes count all messages by
parts of a segment's range, and look at the keys of some: shares of keys come with their bounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from spark.history import (
    RecordedFiles,
    file_system,
    in_namespace,
    read_recorded,
    recorded_files,
    with_readable,
)
from spark.jobs import (
    Result,
    check_namespace,
    into_option,
    job_parser,
    read_day,
    run_job,
    write_csv,
    yesterday,
)
from spark.report_page import draw, page

SEGMENT_RATE = 10_000.0
HOTTEST = 100
DRAWN_TOPICS = 6
PARTS = 32
MINUTES_OF_DAY = 1_440
_TOPIC = ("topic", "incarnation")
_SEGMENT = (*_TOPIC, "segment_id")


def topic_minutes(rows: DataFrame, segment_rate: float) -> DataFrame:
    """One row a minute of a topic: rates, the hottest segment, segments there were and would have done.

    Segments there were are the active ones where the layout was known, else those that had samples. The
    hottest is so while it is observed; for the skew, which compares it with the topic, over the minute.
    """
    share = sf.col("observed_ms") / 60_000
    summed = (sf.sum(sf.col(name) * share).alias(name) for name in ("msg_rate_in", "msg_rate_out"))
    minutes = rows.groupBy(*_TOPIC, "minute_ms").agg(
        *summed,
        sf.max("msg_rate_in").alias("hottest"),
        sf.max(sf.col("msg_rate_in") * share).alias("largest"),
        sf.coalesce(sf.max("active_segments"), sf.count("*")).alias("segments"),
    )
    needed = sf.greatest(sf.lit(1), sf.ceil(sf.col("msg_rate_in") / segment_rate))
    skew = sf.when(sf.col("msg_rate_in") > 0, sf.col("largest") * sf.col("segments") / sf.col("msg_rate_in"))
    return minutes.withColumns({"needed": needed, "skew": skew})


def topics_of(minutes: DataFrame, segment_rate: float) -> DataFrame:
    """One row a topic: load, trend, skew, and segment-hours over the minimum; the most wasteful first."""
    hours = sf.col("minute_ms") / 3_600_000
    topics = minutes.groupBy(*_TOPIC).agg(
        sf.count("*").alias("minutes"),
        (sf.sum("msg_rate_in") * 60).alias("messages_in"),
        sf.avg("msg_rate_in").alias("mean_rate"),
        sf.max("msg_rate_in").alias("peak_rate"),
        sf.regr_slope("msg_rate_in", hours).alias("trend_per_hour"),
        sf.avg("skew").alias("skew"),
        sf.count_if(sf.col("hottest") > segment_rate).alias("minutes_over_capacity"),
        (sf.sum("segments") / 60).alias("segment_hours"),
        (sf.sum("needed") / 60).alias("needed_hours"),
    )
    waste = sf.col("segment_hours") - sf.col("needed_hours")
    return topics.withColumn("waste_hours", waste).orderBy(sf.desc("waste_hours"), *_TOPIC)


def hot_segments(rows: DataFrame) -> DataFrame:
    """The segments with the highest minute; means are over the time for which they were observed."""
    messages = sf.sum(sf.col("msg_rate_in") * sf.col("observed_ms"))
    segments = rows.groupBy(*_SEGMENT).agg(
        sf.max("hash_start").alias("hash_start"),
        sf.max("hash_end").alias("hash_end"),
        sf.max("msg_rate_in").alias("peak_rate"),
        sf.try_divide(messages, sf.sum("observed_ms")).alias("mean_rate"),
        (sf.sum("observed_ms") / 3_600_000).alias("hours"),
    )
    return segments.orderBy(sf.desc("peak_rate"), *_SEGMENT).limit(HOTTEST)


def hot_parts(rows: DataFrame) -> DataFrame:
    """The 1/32 parts of segments' ranges that had most messages, and their share of their segment's."""
    parts = rows.select(*_SEGMENT, "hash_start", "hash_end", "observed_ms", sf.posexplode("mean"))
    messages = sf.sum(sf.col("col") * sf.col("observed_ms") / 1000)
    summed = parts.groupBy(*_SEGMENT, sf.col("pos").alias("part")).agg(
        messages.alias("messages"),
        sf.max(_part_edge(sf.col("pos"))).alias("part_start"),
        sf.max(_part_edge(sf.col("pos") + 1) - 1).alias("part_end"),
    )
    whole = sf.sum("messages").over(Window.partitionBy(*_SEGMENT))
    shared = summed.withColumn("share_of_segment", sf.try_divide("messages", whole))
    return shared.orderBy(sf.desc("messages"), *_SEGMENT, "part").limit(HOTTEST)


def hot_keys(rows: DataFrame) -> DataFrame:
    """The keys with most messages, of those that nodes looked at, with the bounds of their share of a topic.

    A key was seen `count` times at least and `count + error` times at most. Nodes look at less of more: what
    they saw in a minute stands for all messages of the minute, and minutes without a look are left out.
    """
    messages = sf.col("msg_rate_in") * sf.col("observed_ms") / 1000
    looked = rows.where(sf.col("keys_seen") > 0).withColumn("each", messages / sf.col("keys_seen"))
    topics = looked.groupBy(*_TOPIC).agg(
        sf.sum("keys_seen").alias("seen"),
        sf.sum("keys_error").alias("error"),
        sf.sum(sf.col("keys_error") * sf.col("each")).alias("unsure"),
        sf.sum(sf.col("keys_seen") * sf.col("each")).alias("topic_messages"),
    )
    each = looked.select(*_TOPIC, "each", sf.explode("hot_keys").alias("hot"))
    keys = each.groupBy(*_TOPIC, sf.col("hot.key").alias("key")).agg(
        sf.sum("hot.count").alias("count"),
        sf.sum(sf.col("hot.count") * sf.col("each")).alias("messages"),
    )
    shares = keys.join(topics.where(sf.col("topic_messages") > 0), list(_TOPIC)).select(
        *_TOPIC,
        "key",
        "messages",
        (sf.col("messages") / sf.col("topic_messages")).alias("share_at_least"),
        sf.least(sf.lit(1.0), (sf.col("messages") + sf.col("unsure")) / sf.col("topic_messages")).alias(
            "share_at_most"
        ),
        "count",
        "error",
        "seen",
    )
    return shares.orderBy(sf.desc("messages"), *_TOPIC, "key").limit(HOTTEST)


def _part_edge(part: Column) -> Column:
    """Give the first hash that is counted in a part, which is hash * 32 // size = part."""
    size = sf.col("hash_end") - sf.col("hash_start") + 1
    return sf.col("hash_start") + sf.ceil(part * size / PARTS)


def hours_of(minutes: DataFrame) -> DataFrame:
    """One row for each hour of a day: how many of its minutes have data, of any topic, and of how many."""
    hour = sf.floor(sf.col("minute_ms") / 3_600_000) % 24
    told = minutes.groupBy(hour.alias("hour")).agg(
        sf.count_distinct("minute_ms").alias("minutes_with_data"), sf.count_distinct(*_TOPIC).alias("topics")
    )
    hours = minutes.sparkSession.range(24).select(sf.col("id").alias("hour"))
    return hours.join(told, "hour", "left").fillna(0).orderBy("hour")


def busiest_quarters(minutes: DataFrame, topics: DataFrame) -> DataFrame:
    """Load and segments by a quarter of an hour, of the topics with the most messages."""
    busiest = topics.orderBy(sf.desc("messages_in"), *_TOPIC).limit(DRAWN_TOPICS).select(*_TOPIC)
    quarter = sf.floor(sf.col("minute_ms") / 900_000).alias("quarter")
    averages = [sf.avg(name).alias(name) for name in ("msg_rate_in", "segments", "needed")]
    found = minutes.join(busiest, list(_TOPIC)).groupBy(*_TOPIC, quarter)
    return found.agg(*averages, sf.max("msg_rate_in").alias("highest")).orderBy(*_TOPIC, "quarter")


def report(session: SparkSession, options: argparse.Namespace) -> Result:
    """Write the report of a day; a report that was there is replaced."""
    recorded = recorded_files(options.history, first=options.day, last=options.day)
    return with_readable(options.history, recorded, partial(_report, session, options))


def _report(session: SparkSession, options: argparse.Namespace, recorded: RecordedFiles) -> Result:
    rows = in_namespace(read_recorded(session, options.history, recorded), options.namespace).cache()
    minutes = topic_minutes(rows, options.segment_rate).cache()
    tables = {
        "topics": topics_of(minutes, options.segment_rate).cache(),
        "segments": hot_segments(rows).cache(),
        "keys": hot_keys(rows).cache(),
        "parts": hot_parts(rows).cache(),
        "hours": hours_of(minutes).cache(),
    }
    output = options.into or f"{options.output}/day={options.day}/{options.namespace}".rstrip("/")
    for name, table in tables.items():
        table.coalesce(1).write.mode("overwrite").parquet(f"{output}/{name}.parquet")
        write_csv(table.coalesce(1), f"{output}/{name}.csv")
    shown = {name: table.limit(HOTTEST).toArrow().to_pylist() for name, table in tables.items()}
    picture = draw(busiest_quarters(minutes, tables["topics"]).toArrow().to_pylist(), options.segment_rate)
    title = f"Load of {options.namespace or 'all topics'} on {options.day}"
    unreadable = list(recorded.unreadable)
    text = page(title, shown, picture, segment_rate=options.segment_rate, unreadable=unreadable)
    _write(f"{output}/report.html", text)
    return {
        "report": f"{output}/report.html",
        "files": ["report.html", *(f"{name}.csv" for name in tables)],
        "topics": tables["topics"].count(),
        "minutes": minutes.count(),
        "minutesWithData": sum(row["minutes_with_data"] for row in shown["hours"]),
        "minutesOfDay": MINUTES_OF_DAY,
        "unreadable": unreadable,
    }


def _write(location: str, text: str) -> None:
    files, path = file_system(location)
    with files.open_output_stream(f"{path}.partial") as stream:
        stream.write(text.encode())
    files.move(f"{path}.partial", path)


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    parser = job_parser("daily_report", __doc__, environment)
    reports = Path(environment.get("SCALABLE_DATA_DIR") or ".data").resolve() / "spark" / "reports"
    add = parser.add_argument
    add("--day", type=read_day, default=yesterday(), help="UTC; default: yesterday")
    add("--namespace", default="", help="tenant/namespace; default: all")
    add("--output", default=str(reports), help="path or URI below which reports are written")
    add("--segment-rate", type=float, default=SEGMENT_RATE, help="messages/s that one segment can take")
    into_option(parser)
    options = parser.parse_args(arguments)
    if not options.segment_rate > 0:
        parser.error("--segment-rate must be above 0")
    check_namespace(parser, options.namespace)
    return options


def main() -> int:
    """Run the job as a process."""
    options = parse_options(sys.argv[1:], os.environ)
    return run_job("daily_report", options, lambda session: report(session, options))


if __name__ == "__main__":
    sys.exit(main())
