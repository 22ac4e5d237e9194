"""Histories that somebody else had a hand in: rows that are no minutes of their day, names with patterns."""

import math
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from spark import compact, daily_report, policy_replay
from spark.history import DAY_MS, SCHEMA, literal_path, read_history, write_file
from tests.spark.recorded import DAY, START_MS, Row, minute, record

pytestmark = pytest.mark.spark

STRANGE: dict[str, Row] = {
    "the day before": {"minute_ms": START_MS - 60_000},
    "the day after": {"minute_ms": START_MS + DAY_MS},
    "a thousand years on": {"minute_ms": START_MS + 365_000 * DAY_MS},
    "before all days": {"minute_ms": -(2**62)},
    "no number": {"msg_rate_in": math.nan},
    "more than all": {"bytes_rate_out": math.inf},
    "less than nothing": {"msg_rate_out": -1.0},
    "an unknown rate": {"bytes_rate_in": None},
    "an unknown incarnation": {"incarnation": None},
    "an unknown minute": {"minute_ms": None},
    "a range beyond all": {"hash_end": 65_536},
    "a range backwards": {"hash_start": 9, "hash_end": 8},
    "observed for less than nothing": {"observed_ms": -1},
    "fewer segments than none": {"active_segments": -5},
    "an unknown part": {"mean": [None] * 32},
    "an endless part": {"mean": [math.inf] * 32},
    "a part of no number": {"max": [math.nan] * 32},
    "a part below nothing": {"mean": [-1.0] * 32},
    "more keys than all": {"hot_keys": [{"key": "k", "count": 2**62}]},
    "fewer keys than none": {"keys_seen": -1},
}


def sound(topic: str = "public/default/sound") -> list[Row]:
    """Give five minutes, the last of the day among them, one of which little is known, and one with keys."""
    numbers = (0, 1, 2, 3, 1_439)
    rows = [minute(topic, 0, number, 20.0) for number in numbers]
    unknown = dict.fromkeys(("hash_start", "hash_end", "active_segments", "mean", "max"))
    keys = {"hot_keys": [{"key": "k", "count": 3}], "keys_seen": 9, "keys_error": 0}
    return [*rows, minute(topic, 1, 4, 20.0, **unknown), minute(topic, 2, 5, 1.0, observed_ms=1, **keys)]


def test_a_row_that_is_no_minute_of_its_day_is_left_out(session: SparkSession, tmp_path: Path) -> None:
    strange = [
        minute(f"public/default/{number}", 0, 1, 5.0, **fields)
        for number, fields in enumerate(STRANGE.values())
    ]
    history = record(tmp_path / "history", sound(), strange)
    found = read_history(session, str(history), first=DAY, last=DAY).collect()
    assert {row["topic"] for row in found} == {"topic://public/default/sound"}
    assert len(found) == len(sound())


def test_compaction_keeps_every_sound_row_whatever_stands_beside_it(
    session: SparkSession, tmp_path: Path
) -> None:
    """A strange row of the same minute would win over a sound one, whose file goes."""
    strange = [minute("public/default/sound", 0, 1, 5.0, **fields) for fields in STRANGE.values()]
    history = record(tmp_path / "history", sound(), strange)
    before = read_history(session, str(history), first=DAY, last=DAY).collect()
    told = compact.compact(session, str(history), before=DAY + timedelta(days=1))
    assert told == {"days": 1, "files": 2, "unreadable": []}
    after = read_history(session, str(history), first=DAY, last=DAY).collect()
    assert len(before) == len(sound())
    assert sorted(map(str, after)) == sorted(map(str, before))


@pytest.mark.slow
def test_a_minute_far_away_makes_no_replay_longer(session: SparkSession, tmp_path: Path) -> None:
    far = minute("public/default/sound", 0, 1, 5.0, **STRANGE["a thousand years on"])
    history = record(tmp_path / "history", [*sound(), far])
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path)]
    options = policy_replay.parse_options([*arguments, "--profile", "pip-483"], {})
    policy_replay.run(session.newSession(), options)
    (results,) = tmp_path.glob("all/*/results.parquet")
    (row,) = session.read.parquet(str(results)).collect()
    assert row["minutes"] == 1_440


def test_names_are_no_patterns(session: SparkSession, tmp_path: Path) -> None:
    history = record(tmp_path / "a[1]{b,c}*? \\x", sound(), sound("public/default/b"))
    day = history / f"day={DAY}"
    (day / "1.parquet").rename(day / "[0-9]{1}*.parquet")
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path / "out")]
    result = daily_report.report(session, daily_report.parse_options(arguments, {}))
    assert (result["topics"], result["minutes"]) == (2, 2 * len(sound()))
    told = compact.compact(session, str(history), before=DAY + timedelta(days=1))
    assert told == {"days": 1, "files": 2, "unreadable": []}
    assert read_history(session, str(history), first=DAY, last=DAY).count() == 2 * len(sound())


def test_a_path_without_patterns_is_itself() -> None:
    for path in ("/data/history", "s3a://bucket/a b/ü", "hdfs://node:8020/day=2026-01-01/1-ab.parquet"):
        assert literal_path(path) == path


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "1.parquet" / "in the way").mkdir(parents=True)
    table = pa.Table.from_pylist(sound(), schema=SCHEMA)
    with pytest.raises(OSError, match=r"1\.parquet"):
        write_file(fs.LocalFileSystem(), str(tmp_path), "1.parquet", table)
    assert [path.name for path in tmp_path.iterdir()] == ["1.parquet"]


def test_a_last_day_before_the_first_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    days = ["--day", str(DAY), "--last-day", str(DAY - timedelta(days=1))]
    with pytest.raises(SystemExit):
        policy_replay.parse_options(days, {})
    assert f"--last-day ({DAY - timedelta(days=1)}) is before --day ({DAY})" in capsys.readouterr().err
