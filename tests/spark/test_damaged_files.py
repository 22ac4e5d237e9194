"""Files of the history whose data is damaged behind a sound footer, days that are none, days that fail."""

import errno
import os
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark import compact, daily_report, policy_replay
from spark.history import DAY_MS, RecordedFiles, read_recorded, recorded_files
from spark.jobs import reason_of
from tests.spark.recorded import DAY, Row, minute, record

pytestmark = pytest.mark.spark

MINUTES = 400
TOMORROW = DAY + timedelta(days=1)
DAMAGED = f"day={DAY}/1.parquet"


def minutes_of(topic: str, seed: int) -> list[Row]:
    """Make rows that are not alike, so that their data is long."""
    random = Random(seed)
    return [
        minute(topic, 0, number, random.random(), mean=[random.random() for _ in range(32)])
        for number in range(MINUTES)
    ]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Three files of a day, of which the second is damaged between its beginning and its footer."""
    topics = ("public/default/a", "public/default/b", "public/default/c")
    made = record(tmp_path / "history", *(minutes_of(topic, seed) for seed, topic in enumerate(topics)))
    with (made / DAMAGED).open("r+b") as file:
        file.seek(4_000)
        file.write(Random(1).randbytes(26_000))
    found = recorded_files(str(made), first=DAY, last=DAY)
    assert (len(found.readable), found.unreadable) == (3, ())
    return made


def next_day(history: Path) -> Path:
    """Put two sound files into the day after it."""
    later = history / f"day={TOMORROW}"
    later.mkdir()
    for number in (0, 2):
        rows = pq.read_table(history / f"day={DAY}/{number}.parquet", partitioning=None)
        place = rows.schema.get_field_index("minute_ms")
        moved = rows.set_column(place, "minute_ms", pc.add(rows["minute_ms"], DAY_MS))
        pq.write_table(moved, later / f"{number}.parquet")
    return later


def test_the_daily_report_goes_on_without_a_damaged_file(
    session: SparkSession, history: Path, tmp_path: Path
) -> None:
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path)]
    result = daily_report.report(session, daily_report.parse_options(arguments, {}))
    assert (result["topics"], result["minutes"], result["unreadable"]) == (2, 2 * MINUTES, [DAMAGED])
    assert f"left out (1): {DAMAGED}." in Path(result["report"]).read_text()


@pytest.mark.slow
def test_a_replay_goes_on_without_a_damaged_file(
    session: SparkSession, history: Path, tmp_path: Path
) -> None:
    arguments = ["--day", str(DAY), "--history", str(history), "--output", str(tmp_path)]
    options = policy_replay.parse_options([*arguments, "--profile", "pip-483"], {})
    result = policy_replay.run(session.newSession(), options)
    assert [policy["topics"] for policy in result["policies"]] == [2]
    assert result["unreadable"] == [DAMAGED]


def test_compaction_leaves_a_damaged_file_and_goes_on(session: SparkSession, history: Path) -> None:
    later = next_day(history)
    told = compact.compact(session, str(history), before=TOMORROW + timedelta(days=1))
    assert told == {"days": 2, "files": 4, "unreadable": [DAMAGED]}
    assert (history / DAMAGED).exists()
    assert len(list((history / f"day={DAY}").glob("*.parquet"))) == 2
    (made,) = later.glob("*.parquet")
    assert pq.read_table(made, partitioning=None).num_rows == 2 * MINUTES


def test_a_day_that_fails_stops_no_later_one_and_is_told(
    session: SparkSession, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = next_day(history)
    merge = compact._merge

    def on_a_full_disk(
        session: SparkSession, files: object, location: str, path: str, recorded: RecordedFiles
    ) -> RecordedFiles:
        if path.endswith(str(DAY)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return merge(session, files, location, path, recorded)

    monkeypatch.setattr(compact, "_merge", on_a_full_disk)
    with pytest.raises(OSError, match=f"not compacted: {DAY}; .*No space left on device"):
        compact.compact(session, str(history), before=TOMORROW + timedelta(days=1))
    assert len(list((history / f"day={DAY}").glob("*.parquet"))) == 3
    assert len(list(later.glob("*.parquet"))) == 1


def test_what_is_named_like_no_day_is_passed_over(session: SparkSession, history: Path) -> None:
    (history / "day=2026-13-45").mkdir()
    (history / "day=0000-01-01").mkdir()
    (history / "day=2026-01-01").write_text("no directory")
    assert len(recorded_files(str(history), first=DAY, last=DAY).readable) == 3
    assert compact.compact(session, str(history), before=TOMORROW)["days"] == 1


def test_why_spark_fails_is_told_with_the_innermost_cause(session: SparkSession, history: Path) -> None:
    damaged = RecordedFiles((DAMAGED,), ())
    with pytest.raises(Py4JJavaError) as failed:
        read_recorded(session, str(history), damaged).collect()
    said = reason_of(failed.value)
    cause = failed.value.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    assert "FAILED_READ_FILE" in said
    assert said.endswith(cause.getMessage())
    assert "\tat " not in said


def test_a_full_disk_is_told_as_such() -> None:
    said = (
        "An error occurred.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n\tat a.b(c)"
        "\nCaused by: org.apache.parquet.CloseException: Unable to close resource\n\tat a.b(c:1)"
        "\nCaused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\t... 9"
        "\nCaused by: java.io.IOException: No space left on device\n\tat a.b(c:1)\n\t... 9 more\n"
    )
    told = "An error occurred.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed"
    assert reason_of(OSError(said)) == f"{told}: No space left on device"
    assert reason_of(OSError(f"{told}: No space left on device\n\tat a.b(c:1)\n{said}")).count("space") == 1
    assert reason_of(ValueError("no stack")) == "no stack"
