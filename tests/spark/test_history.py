"""The history of loads: what a minute's row holds, and that no minute is written or read twice."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from scalable.domain.load import SegmentRates
from spark.compact import compact
from spark.history import LAYOUT_AGE_MS, LAYOUT_KEPT_MS, History, Layouts, read_history, recorded_files
from spark.load_report import LoadReport
from spark.rest import NodeClient, NodeRefused
from spark.state import LoadState, LoadUpdate
from spark.state_files import StateFiles
from tests.spark.oracle import MINUTE_MS, SLOT_MS, Message, Oracle, make_messages, rows_of

START_MS = 1_795_823_940_000
"""One minute before midnight."""
NOW_MS = START_MS + 300_000
TOPIC = "topic://public/default/flights"
REFS = [(TOPIC, 7, segment_id) for segment_id in range(2)]


class Node(NodeClient):
    """A node that knows one layout."""

    def layout(self, topic: Any) -> Any:
        """Give it, for one topic only."""
        if str(topic) != TOPIC:
            raise NodeRefused("no such topic", "topic_not_found")
        segments = {
            str(number): {"hashRange": {"start": start, "end": start + 0x7FFF}, "state": "ACTIVE"}
            for number, start in enumerate((0, 0x8000))
        }
        return {"incarnation": 7, "segments": segments}


def history_in(directory: Path, *, kept_days: int = 30) -> History:
    """Make a history in a directory of this test."""
    return History(str(directory), layouts=Layouts(Node("", "")), kept_days=kept_days)


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """Read all files."""
    rows: list[dict[str, Any]] = ds.dataset(directory, partitioning="hive").to_table().to_pylist()
    return rows


def write_all(history: History, messages: list[Message], *, repeat: bool) -> None:
    """Write a history in steps of 20 messages, each step twice if wanted."""
    state = LoadState()
    for start in range(0, len(messages), 20):
        update = state.step(rows_of(messages[start : start + 20], start), now_ms=NOW_MS)
        for _ in range(2 if repeat else 1):
            history.write(update.minutes, now_ms=NOW_MS)


@pytest.mark.parametrize("repeat", [False, True])
def test_each_closed_minute_is_written_once_with_the_oracles_rates(tmp_path: Path, repeat: bool) -> None:
    messages = make_messages(Random(1), refs=REFS, start_ms=START_MS, seconds=200)
    write_all(history_in(tmp_path), messages, repeat=repeat)
    rows = rows_in(tmp_path)
    places = [(row["segment_id"], row["minute_ms"]) for row in rows]
    assert len(set(places)) == len(places) == 2 * 3
    for row in rows:
        oracle = Oracle(messages, (7, row["segment_id"]))
        start = max(row["minute_ms"], oracle.born_ms)
        end = row["minute_ms"] + MINUTE_MS
        span = oracle.counts[(start - oracle.start_ms) // SLOT_MS : (end - oracle.start_ms) // SLOT_MS]
        expected = SegmentRates(*(span.sum(axis=0) * 1000 / (end - start)).tolist())
        found = [row[name] for name in ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")]
        np.testing.assert_allclose(found, expected.values)
        assert row["observed_ms"] == end - start
        assert sum(row["mean"]) == pytest.approx(row["msg_rate_in"], rel=1e-5)
        assert row["hash_start"] == row["segment_id"] * 0x8000
        assert row["active_segments"] == 2


def test_days_are_utc_and_kept_for_so_long(tmp_path: Path) -> None:
    messages = make_messages(Random(2), refs=REFS, start_ms=START_MS, seconds=200)
    (tmp_path / "day=2026-11-01").mkdir(parents=True)
    write_all(history_in(tmp_path, kept_days=3), messages, repeat=False)
    for row in rows_in(tmp_path):
        assert date.fromisoformat(row["day"]) == datetime.fromtimestamp(row["minute_ms"] / 1000, UTC).date()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["day=2026-11-27", "day=2026-11-28"]


def measured(minute_ms: int, *, topic: str = TOPIC, **fields: Any) -> dict[str, Any]:
    """Make the row of a minute, as a step gives it; keywords replace or add fields."""
    place = {"topic": topic, "incarnation": 7, "segmentId": 0, "minuteMs": minute_ms, "observedMs": MINUTE_MS}
    rates = dict.fromkeys(("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut"), 1.0)
    parts = {"mean": [1.0] * 32, "max": [1.0] * 32, "hotKeys": [], "keysSeen": 0, "keysError": 0}
    return {**place, **rates, **parts, **fields}


def test_the_number_of_segments_is_told_of_the_last_minutes_alone(tmp_path: Path) -> None:
    ages = range(0, 60 * MINUTE_MS, MINUTE_MS)
    history_in(tmp_path).write([measured(NOW_MS - age_ms) for age_ms in ages], now_ms=NOW_MS)
    for row in rows_in(tmp_path):
        assert (row["hash_start"], row["hash_end"]) == (0, 0x7FFF)
        assert (row["active_segments"] is None) == (NOW_MS - row["minute_ms"] > LAYOUT_AGE_MS)


def test_layouts_that_are_not_asked_for_are_let_go(tmp_path: Path) -> None:
    class Many(Node):
        """A node that knows all topics."""

        def layout(self, topic: Any) -> Any:
            """Give the same for each."""
            return super().layout(TOPIC)

    layouts = Layouts(Many("", ""))
    history = History(str(tmp_path), layouts=layouts)
    for step in range(24):
        now_ms = NOW_MS + step * LAYOUT_KEPT_MS // 6
        topics = [TOPIC, *(f"topic://public/default/of-{step}-{number}" for number in range(5))]
        history.write([measured(now_ms, topic=topic) for topic in topics], now_ms=now_ms)
        assert len(layouts.known) <= 1 + 7 * 5
        assert TOPIC in layouts.known


@pytest.mark.parametrize("topic", ["flights", "topic://public/default", "topic://a//b", "", "topic://a/../b"])
def test_a_name_that_is_none_has_no_layout(tmp_path: Path, topic: str) -> None:
    history_in(tmp_path).write([measured(NOW_MS, topic=topic), measured(NOW_MS)], now_ms=NOW_MS)
    found = {row["topic"]: row["active_segments"] for row in rows_in(tmp_path)}
    assert found == {topic: None, TOPIC: 2}


ODD: Sequence[Any] = [
    {"minuteMs": 10**30},
    {"minuteMs": 2**63 - 1},
    {"observedMs": 2**40},
    {"msgRateIn": "fast"},
    {"mean": 1.0},
    {"hotKeys": [1]},
    {"topic": "topic://public/default/\ud800"},
    {"keysSeen": 2**63},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_row_that_no_file_takes_holds_up_no_report(
    tmp_path: Path, odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What is worse than a gap in the history is a load report that ends, is started again, and ends."""
    report = LoadReport(
        node=Node("", ""),
        reporter="test",
        files=StateFiles(str(tmp_path / "state")),
        status=tmp_path / "status.json",
        history=history_in(tmp_path / "history"),
    )
    report._keep(LoadUpdate(watermark_ms=NOW_MS, minutes=[measured(NOW_MS, **odd)]))
    assert "1 minutes are missing in the history" in caplog.text
    assert caplog.text.encode()  # what is logged can be written down
    report._keep(LoadUpdate(watermark_ms=NOW_MS, minutes=[measured(NOW_MS)]))
    assert [row["topic"] for row in rows_in(tmp_path / "history")] == [TOPIC]


UNREADABLE: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut off": lambda whole: whole[: len(whole) // 2],
    "without its last byte": lambda whole: whole[:-1],
    "no Parquet": lambda whole: b"PAR1" * 100,
}


def spoil(directory: Path, name: str) -> None:
    """Put a file there that cannot be read, made of one that can."""
    whole = next(directory.glob("*.parquet")).read_bytes()
    (directory / f"{name}.parquet").write_bytes(UNREADABLE[name](whole))


def put(directory: Path, name: str, table: pa.Table) -> None:
    """Put a file there."""
    pq.write_table(table, directory / f"{name}.parquet")


@pytest.mark.spark
def test_files_that_cannot_be_read_are_left_out_and_told(session: SparkSession, tmp_path: Path) -> None:
    history_in(tmp_path).write([measured(START_MS)], now_ms=NOW_MS)
    (directory,) = tmp_path.iterdir()
    whole = pq.read_table(next(directory.glob("*.parquet")), partitioning=None)
    for name in UNREADABLE:
        spoil(directory, name)
    put(directory, "other types", whole.set_column(3, "minute_ms", pa.array(["now"])))
    put(directory, "other lists", whole.set_column(9, "mean", pa.array([1.0])))
    put(directory, "other elements", whole.set_column(9, "mean", pa.array([["fast"]])))
    put(directory, "other columns", whole.select(["topic", "minute_ms"]))
    put(directory, "of an earlier version", whole.drop_columns(["hot_keys", "keys_seen", "keys_error"]))
    put(directory, "no rows", whole.slice(0, 0))
    day = datetime.fromtimestamp(START_MS / 1000, UTC).date()
    found = recorded_files(str(tmp_path), first=day, last=day)
    odd = {*UNREADABLE, "other types", "other lists", "other elements", "other columns"}
    assert set(found.unreadable) == {f"{directory.name}/{name}.parquet" for name in odd}
    (row,) = read_history(session, str(tmp_path), first=day, last=day).collect()
    assert (row["topic"], row["minute_ms"], row["day"]) == (TOPIC, START_MS, day)
    before = {path.name for path in directory.iterdir()}
    told = compact(session, str(tmp_path), before=day + timedelta(days=1))
    assert (told["files"], set(told["unreadable"])) == (3, set(found.unreadable))
    assert before & {path.name for path in directory.iterdir()} == {f"{name}.parquet" for name in odd}
    (again,) = read_history(session, str(tmp_path), first=day, last=day).collect()
    assert again == row


@pytest.mark.spark
def test_of_two_rows_of_a_minute_the_longer_counts_and_then_the_fuller(
    session: SparkSession, tmp_path: Path
) -> None:
    told = [(30_000, 9.0), (60_000, 2.0), (60_000, 5.0), (60_000, 3.0), (59_999, 99.0)]
    for number, (observed_ms, rate) in enumerate(told):
        row = measured(
            START_MS, observedMs=observed_ms, msgRateIn=rate, hotKeys=[{"key": str(number), "count": 1}]
        )
        history_in(tmp_path).write([row], now_ms=NOW_MS)
    day = datetime.fromtimestamp(START_MS / 1000, UTC).date()
    (found,) = read_history(session, str(tmp_path), first=day, last=day).collect()
    assert (found["observed_ms"], found["msg_rate_in"], found["hot_keys"][0]["key"]) == (60_000, 5.0, "2")


def test_a_topic_that_is_gone_leaves_its_layout_unknown(tmp_path: Path) -> None:
    gone = [("topic://public/default/gone", 9, 0)]
    messages = make_messages(Random(3), refs=gone, start_ms=START_MS, seconds=100)
    write_all(history_in(tmp_path), messages, repeat=False)
    assert {row["hash_start"] for row in rows_in(tmp_path)} == {None}
