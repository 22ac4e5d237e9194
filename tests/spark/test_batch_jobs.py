"""The batch jobs over a history made by hand: the daily report, compaction, policy replay."""

import csv
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from replay.keys import uniform
from replay.run import replay
from replay.setup import Setup
from spark import compact, daily_report, policy_replay
from spark.history import SCHEMA, read_history
from tests.spark.recorded import DAY, PARTS, Row, minute, record

pytestmark = pytest.mark.spark

HALVES = ((0, 0x7FFF), (0x8000, 0xFFFF))


def two_segments(topic: str, number: int, rates: Sequence[float], **fields: object) -> list[Row]:
    """Make rows of both halves of a topic."""
    return [
        minute(
            topic, segment, number, rate, hash_start=half[0], hash_end=half[1], active_segments=2, **fields
        )
        for segment, (half, rate) in enumerate(zip(HALVES, rates, strict=True))
    ]


@pytest.mark.slow
def test_the_daily_report_finds_what_is_hot_and_wasted(session: SparkSession, tmp_path: Path) -> None:
    hot_part = [0.0] * (PARTS - 1) + [300.0]
    rows = [
        row for number in range(60) for row in two_segments("public/default/a", number, (100.0 + number, 0))
    ]
    looked_at = {
        "hot_keys": [{"key": "DL", "count": 60}, {"key": "AA", "count": 10}],
        "keys_seen": 100,
        "keys_error": 5,
    }
    rows += [minute("public/default/b", 0, number, 300.0, mean=hot_part, **looked_at) for number in range(30)]
    rows += [minute("public/other/c", 0, 0, 9.0)]
    history = record(tmp_path / "history", rows)
    arguments = ["--day", str(DAY), "--namespace", "public/default", "--segment-rate", "200"]
    options = daily_report.parse_options(
        [*arguments, "--history", str(history), "--output", str(tmp_path / "reports")], {}
    )
    result = daily_report.report(session, options)
    output = Path(result["report"]).parent
    first, second = pq.read_table(output / "topics.parquet").to_pylist()
    assert (first["topic"], first["minutes"]) == ("topic://public/default/a", 60)
    assert first["messages_in"] == pytest.approx(60 * sum(range(100, 160)))
    assert first["trend_per_hour"] == pytest.approx(60)
    assert first["skew"] == pytest.approx(2)
    assert (first["segment_hours"], first["needed_hours"], first["waste_hours"]) == pytest.approx((2, 1, 1))
    assert (second["waste_hours"], second["minutes_over_capacity"]) == (pytest.approx(-0.5), 30)
    segments = pq.read_table(output / "segments.parquet").to_pylist()
    assert [segment["peak_rate"] for segment in segments] == [300, 159, 0]
    part = pq.read_table(output / "parts.parquet").to_pylist()[0]
    assert (part["part"], part["part_start"], part["part_end"]) == (31, 65_536 - 2_048, 65_535)
    assert part["share_of_segment"] == pytest.approx(1)
    hottest, other = pq.read_table(output / "keys.parquet").to_pylist()
    assert (hottest["key"], other["key"], hottest["topic"]) == ("DL", "AA", "topic://public/default/b")
    assert (hottest["count"], hottest["error"], hottest["seen"]) == (1_800, 150, 3_000)
    assert (hottest["share_at_least"], hottest["share_at_most"]) == pytest.approx((0.6, 0.65))
    assert hottest["messages"] == pytest.approx(0.6 * 300 * 60 * 30)
    (file,) = (output / "topics.csv").glob("*.csv")
    assert pa.csv.read_csv(file)["topic"].to_pylist() == [first["topic"], second["topic"]]
    assert (result["minutesWithData"], result["minutesOfDay"], result["unreadable"]) == (60, 1_440, [])
    hours = pq.read_table(output / "hours.parquet").to_pylist()
    told = [(hour["hour"], hour["minutes_with_data"], hour["topics"]) for hour in hours]
    assert told == [(0, 60, 2), *((hour, 0, 0) for hour in range(1, 24))]
    (file,) = (output / "hours.csv").glob("*.csv")
    assert pa.csv.read_csv(file)["minutes_with_data"].to_pylist() == [60] + [0] * 23
    page = (output / "report.html").read_text()
    assert "60 of the day's 1,440 minutes have data." in page
    assert "topic://public/default/b" in page
    assert "topic://public/other/c" not in page
    assert "data:image/png;base64," in page


ODD_TEXTS = ['{"a":1,"b":2}', " spaced ", "a,b", "a line\nand another", 'back\\slash\\"', '"', "", "é"]


def test_texts_of_any_kind_are_read_from_the_csv_as_they_were(session: SparkSession, tmp_path: Path) -> None:
    keys = [{"key": text, "count": 60 + number} for number, text in enumerate(ODD_TEXTS)]
    row = minute("public/default/we ird'\"é", 0, 0, 100.0, hot_keys=keys, keys_seen=600, keys_error=0)
    history = record(tmp_path / "history", [row])
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path / "out")]
    options = daily_report.parse_options(arguments, {})
    result = daily_report.report(session.newSession(), options)
    (file,) = (Path(result["report"]).parent / "keys.csv").glob("*.csv")
    with file.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert sorted(each["key"] for each in found) == sorted(ODD_TEXTS)
    assert {each["topic"] for each in found} == {row["topic"]}


def read_day(session: SparkSession, directory: Path, rows: list[Row]) -> DataFrame:
    """Read rows as the report does."""
    return read_history(session, str(record(directory, rows)), first=DAY, last=DAY)


def test_the_shares_of_keys_are_those_of_all_messages_however_many_were_looked_at(
    session: SparkSession, tmp_path: Path
) -> None:
    """At night nodes look at every message, by day at a tenth, and in some minutes at none."""
    night = {"hot_keys": [{"key": "X", "count": 60_000}], "keys_seen": 60_000, "keys_error": 0}
    counts = [{"key": "Y", "count": 500_000}, {"key": "X", "count": 40_000}]
    day = {"hot_keys": counts, "keys_seen": 600_000, "keys_error": 30_000}
    unseen: dict[str, object] = {"hot_keys": [], "keys_seen": 0, "keys_error": 0}
    rows = [minute("public/default/a", 0, number, 1_000.0, **night) for number in range(3)]
    rows += [minute("public/default/a", 1, number, 100_000.0, **day) for number in range(3)]
    rows += [minute("public/default/a", 2, 0, 5_000.0, **unseen), minute("public/default/a", 3, 0, 70.0)]
    rows += [minute("public/default/b", 0, 0, 20.0, observed_ms=30_000, **night)]
    y, x, b = daily_report.hot_keys(read_day(session, tmp_path, rows)).collect()
    assert (y["key"], x["key"], b["key"], b["topic"]) == ("Y", "X", "X", "topic://public/default/b")
    messages = 3 * 60 * 101_000
    assert y["messages"] == pytest.approx(3 * 5_000_000)
    assert x["messages"] == pytest.approx(3 * (60_000 + 400_000))
    assert (b["messages"], b["share_at_least"], b["share_at_most"]) == pytest.approx((600, 1, 1))
    for key in (x, y):
        assert key["share_at_least"] == pytest.approx(key["messages"] / messages)
        assert key["share_at_most"] == pytest.approx((key["messages"] + 3 * 300_000) / messages)
    assert (y["count"], y["error"], y["seen"]) == (1_500_000, 90_000, 3 * 660_000)


def test_a_segment_that_was_born_within_a_minute_makes_no_skew(session: SparkSession, tmp_path: Path) -> None:
    """A split in the middle of a minute; the load is even before and behind it."""
    half = {"observed_ms": 30_000, "active_segments": 2}
    rows = [
        minute("public/default/a", 0, 0, 1_000.0, active_segments=2),
        minute("public/default/a", 1, 0, 2_000.0, **half),
        minute("public/default/a", 1, 1, 1_000.0, active_segments=2),
        minute("public/default/a", 0, 1, 1_000.0, active_segments=2),
    ]
    history = read_day(session, tmp_path, rows)
    minutes = daily_report.topic_minutes(history, 1_500).orderBy("minute_ms").collect()
    assert [each["skew"] for each in minutes] == pytest.approx([1, 1])
    assert [each["hottest"] for each in minutes] == [2_000, 1_000]  # it is over capacity while it is observed
    means = {each["segment_id"]: each["mean_rate"] for each in daily_report.hot_segments(history).collect()}
    assert means == pytest.approx({0: 1_000, 1: (2_000 * 30 + 1_000 * 60) / 90})


def test_a_day_without_history_is_a_report_that_says_so(session: SparkSession, tmp_path: Path) -> None:
    history = record(tmp_path / "history", [minute("public/default/a", 0, 0, 1.0)])
    arguments = ["--day", str(DAY - timedelta(days=1)), "--history", str(history), "--output", str(tmp_path)]
    result = daily_report.report(session, daily_report.parse_options(arguments, {}))
    page = Path(result["report"]).read_text()
    assert "Nothing was recorded." in page
    assert "0 of the day's 1,440 minutes have data." in page


def test_a_report_tells_which_files_it_could_not_read(session: SparkSession, tmp_path: Path) -> None:
    history = record(tmp_path / "history", [minute("public/default/a", 0, 0, 1.0)])
    (history / f"day={DAY}" / "<cut>.parquet").write_bytes(b"PAR1")
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path)]
    result = daily_report.report(session, daily_report.parse_options(arguments, {}))
    assert (result["topics"], result["unreadable"]) == (1, [f"day={DAY}/<cut>.parquet"])
    told = f"Files that cannot be read are left out (1): day={DAY}/&lt;cut&gt;.parquet."
    assert told in Path(result["report"]).read_text()


def test_compaction_changes_nothing_that_is_read(session: SparkSession, tmp_path: Path) -> None:
    rows = [minute("public/default/a", 0, number, float(number)) for number in range(20)]
    cut_short = {**rows[3], "observed_ms": 1_000, "msg_rate_in": 99.0}
    history = record(tmp_path, rows[:7], rows[5:], [cut_short])

    def read() -> pa.Table:
        found = read_history(session, str(history), first=DAY, last=DAY).drop("day")
        return found.orderBy("minute_ms").toArrow().select(SCHEMA.names)

    before = read()
    assert before["msg_rate_in"].to_pylist() == [float(number) for number in range(20)]
    assert compact.compact(session, str(history), before=DAY) == {"days": 0, "files": 0, "unreadable": []}
    tomorrow = DAY + timedelta(days=1)
    assert compact.compact(session, str(history), before=tomorrow) == {
        "days": 1,
        "files": 3,
        "unreadable": [],
    }
    assert read().equals(before)
    assert len(list((history / f"day={DAY}").iterdir())) <= 2  # the file, and the checksum that Spark makes
    assert compact.compact(session, str(history), before=tomorrow) == {
        "days": 0,
        "files": 0,
        "unreadable": [],
    }


@pytest.mark.slow
def test_policies_are_replayed_as_the_replay_itself_does(session: SparkSession, tmp_path: Path) -> None:
    minutes = 120
    rates = [5_000.0 + 500 * number for number in range(minutes)]
    rows = [minute("public/default/grows", 0, number, rate) for number, rate in enumerate(rates)]
    rows += [minute("public/default/calm", 0, number, 10.0) for number in range(minutes)]
    rows += [minute("public/other/c", 0, number, 10.0) for number in range(minutes)]
    history = record(tmp_path / "history", rows)
    arguments = ["--day", str(DAY), "--namespace", "public/default", "--history", str(history)]
    rules = ["pip-483", "pravega"]
    profiles = [f"--profile={rule}" for rule in rules]
    options = policy_replay.parse_options([*arguments, *profiles, "--output", str(tmp_path / "out")], {})
    result = policy_replay.run(session.newSession(), options)
    found = pq.read_table(Path(result["results"]) / "results.parquet").to_pylist()
    assert [(row["topic"].rpartition("/")[2], row["policy"]) for row in found] == [
        (topic, rule) for topic in ("calm", "grows") for rule in rules
    ]
    seconds = np.arange(0.0, minutes * 60, 10.0)
    load = np.interp(seconds, (np.arange(minutes) + 0.5) * 60, rates)
    setup = Setup(initial_segments=1, warm_up_seconds=0)
    for row in found[2:]:
        expected = replay("grows", load, row["policy"], setup=setup, keys=uniform())[0]
        assert row["actions"] == expected.actions > 0
        assert row["violation_percent"] == expected.violation_percent
        assert row["segments_over_clairvoyant"] == expected.segments_over_clairvoyant
    assert {policy["policy"]: policy["topics"] for policy in result["policies"]} == dict.fromkeys(rules, 2)


def test_recorded_keys_are_where_the_parts_had_them(session: SparkSession) -> None:
    rows = [
        *two_segments("public/default/a", 0, (32.0, 0.0)),
        minute("public/default/a", 2, 1, 32.0, hash_start=None, hash_end=None),
    ]
    recorded = session.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
    keys = policy_replay.keys_of(policy_replay.ranges_of(recorded).toArrow())
    assert keys.below[[0, 0x4000, 0x8000, 0x10000]].tolist() == pytest.approx([0, 0.5, 1, 1])
