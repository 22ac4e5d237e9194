"""Batch jobs as rows: one of a kind, one that runs, progress, cancelling, lost runners, bounded history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from replay.run import RULES
from scalable import announce
from scalable.announce import JobRequested, Notice
from scalable.domain.errors import (
    InvalidName,
    InvalidParameter,
    JobBusy,
    JobEnded,
    JobFileNotFound,
    JobNotFound,
    PolicyInvalid,
    PolicyUnreadable,
    ScalableError,
)
from scalable.domain.jobs import PUBLISHED_RULES, Counts, JobKind, JobState
from scalable.domain.profiles import PROFILES
from scalable.job_models import SparkJob
from scalable.services import auditing, jobs
from scalable.services.jobs import Go
from scalable.store.audit import AuditFilter
from scalable.store.jobs import JobView
from tests.topology import ACTOR

pytestmark = pytest.mark.django_db(transaction=True)

TODAY = datetime.now(UTC).date()
YESTERDAY = str(TODAY - timedelta(days=1))
AHEAD = str(TODAY + timedelta(days=2))
"""A day that has not begun, even when midnight passes meanwhile."""
REPORT, COMPACT, REPLAY = JobKind.DAILY_REPORT, JobKind.COMPACT, JobKind.POLICY_REPLAY


def start(kind: JobKind = COMPACT, **options: Any) -> JobView:
    """Ask for a job."""
    return jobs.start_job(kind=kind, options=options, actor=ACTOR)


def claim(job: JobView, runner: str = "a") -> JobView | None:
    """Take a job."""
    return jobs.claim_job(job_id=job.job_id, runner=runner)


def state_of(job: JobView) -> JobState:
    return jobs.get_job(job_id=job.job_id).state


NO_COUNTS = Counts()


def report(job: JobView, runner: str = "a", counts: Counts = NO_COUNTS) -> Go:
    return jobs.report_job(job_id=job.job_id, runner=runner, counts=counts)


def silence(job: JobView) -> None:
    """Let the runner have been silent for longer than it may."""
    SparkJob.objects.filter(pk=job.job_id).update(
        seen_at=F("seen_at") - timedelta(seconds=jobs.LEASE_SECONDS)
    )


def test_a_job_is_done_by_one_runner_and_its_row_tells_all_of_it() -> None:
    job = start(REPORT, day=YESTERDAY, namespace="public/default")
    assert (job.state, job.actor, job.options["day"]) == (JobState.QUEUED, ACTOR, YESTERDAY)
    assert claim(job) is not None
    assert claim(job, "b") is None
    assert report(job, counts=Counts(1, 2, 3, 4)) is Go.ON
    assert report(job, "b") is Go.AWAY
    assert not jobs.end_job(job_id=job.job_id, runner="b", state=JobState.FAILED)
    assert jobs.end_job(job_id=job.job_id, runner="a", state=JobState.SUCCEEDED, result={"topics": 1})
    done = jobs.get_job(job_id=job.job_id)
    assert (done.state, done.counts, done.result) == (JobState.SUCCEEDED, Counts(1, 2, 3, 4), {"topics": 1})
    assert done.started_at_ms is not None
    assert done.ended_at_ms is not None
    assert claim(job) is None
    (event,) = auditing.list_events(wanted=AuditFilter(action="job.start"), limit=10)
    assert (event.actor, event.target) == (ACTOR, f"job://daily_report/{job.job_id}")


def test_one_of_a_kind_is_unfinished_and_one_of_all_runs() -> None:
    first, other = start(COMPACT), start(REPORT)
    with pytest.raises(JobBusy) as busy:
        start(COMPACT)
    assert busy.value.fields["job_id"] == first.job_id
    assert claim(first) is not None
    assert claim(other, "b") is None
    heard: list[Notice] = []
    announce.listen(heard.append)
    try:
        jobs.end_job(job_id=first.job_id, runner="a", state=JobState.FAILED, error="no")
    finally:
        announce.silence(heard.append)
    assert heard == [JobRequested(other.job_id)]
    assert claim(other, "b") is not None
    assert start(COMPACT).state is JobState.QUEUED


def test_the_database_keeps_the_locks_by_itself() -> None:
    first, other = start(COMPACT), start(REPORT)
    claim(first)
    with pytest.raises(IntegrityError, match="job_one_of_a_kind"), transaction.atomic():
        SparkJob.objects.filter(pk=other.job_id).update(kind="compact")
    with pytest.raises(IntegrityError, match="job_one_runs"), transaction.atomic():
        SparkJob.objects.filter(pk=other.job_id).update(state="RUNNING", runner="b", seen_at=F("created_at"))
    with pytest.raises(IntegrityError, match="job_end_has_a_time"), transaction.atomic():
        SparkJob.objects.filter(pk=other.job_id).update(state="SUCCEEDED")


def test_cancelling_ends_what_waits_and_asks_what_runs() -> None:
    running, waiting = start(COMPACT), start(REPORT)
    assert claim(waiting) is None  # the first that waits is the next to run
    assert claim(running) is not None
    assert jobs.cancel_job(job_id=waiting.job_id, actor=ACTOR).state is JobState.CANCELLED
    assert jobs.cancel_job(job_id=running.job_id, actor=ACTOR).state is JobState.RUNNING
    assert report(running) is Go.CANCEL
    jobs.end_job(job_id=running.job_id, runner="a", state=JobState.CANCELLED)
    for job in (waiting, running):
        with pytest.raises(JobEnded):
            jobs.cancel_job(job_id=job.job_id, actor=ACTOR)
    assert len(auditing.list_events(wanted=AuditFilter(action="job.cancel"), limit=10)) == 2


def test_a_job_of_a_lost_runner_is_done_again_but_not_for_ever() -> None:
    job = start()
    for attempt in range(jobs.MAX_ATTEMPTS):
        assert claim(job, str(attempt)) is not None
        jobs.sweep_jobs()
        assert state_of(job) is JobState.RUNNING
        silence(job)
        jobs.sweep_jobs()
        assert report(job, str(attempt)) is Go.AWAY
    assert state_of(job) is JobState.FAILED


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled() -> None:
    job = start()
    claim(job)
    jobs.cancel_job(job_id=job.job_id, actor=ACTOR)
    silence(job)
    jobs.sweep_jobs()
    assert state_of(job) is JobState.CANCELLED


def test_a_job_that_is_given_back_waits_for_another() -> None:
    job = start()
    claim(job)
    jobs.release_job(job_id=job.job_id, runner="a")
    assert claim(job, "b") is not None


def test_jobs_that_are_given_back_lose_no_attempt() -> None:
    """Two restarts of workers are no reason to give up at the first that is lost."""
    job = start()
    for number in range(2 * jobs.MAX_ATTEMPTS):
        assert claim(job, str(number)) is not None
        jobs.release_job(job_id=job.job_id, runner=str(number))
        jobs.release_job(job_id=job.job_id, runner=str(number))  # a task that is given out again does so, too
    claimed = claim(job, "lost")
    assert claimed is not None
    assert claimed.attempts == 1
    silence(job)
    jobs.sweep_jobs()
    assert state_of(job) is JobState.QUEUED


@pytest.mark.parametrize(
    "counts", [Counts(3, 2, 1, 1), Counts(1, 1, 9, 8), Counts(-1, 2), Counts(1, 1 << 40)]
)
def test_a_runner_lives_whatever_it_counts(counts: Counts) -> None:
    job = start()
    claim(job)
    known = Counts(1, 2, 3, 4)
    report(job, counts=known)
    silence(job)
    assert report(job, counts=counts) is Go.ON
    jobs.sweep_jobs()
    assert (state_of(job), jobs.get_job(job_id=job.job_id).counts) == (JobState.RUNNING, known)
    assert report(job, "b", counts=counts) is Go.AWAY


def test_a_result_is_written_whatever_numbers_it_has() -> None:
    job = start()
    claim(job)
    mean, text = float("nan"), "a\0b"
    result = {"policies": [{"mean": mean, "most": float("inf"), "name": text, "actions": 3, "share": 0.5}]}
    assert jobs.end_job(job_id=job.job_id, runner="a", state=JobState.SUCCEEDED, result=result)
    (row,) = (jobs.get_job(job_id=job.job_id).result or {})["policies"]
    assert row == {"mean": None, "most": None, "name": "ab", "actions": 3, "share": 0.5}


def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEPT_JOBS", 3)
    made = []
    for _ in range(5):
        made.append(start())
        claim(made[-1])
        jobs.end_job(job_id=made[-1].job_id, runner="a", state=JobState.SUCCEEDED)
    kept = jobs.list_jobs(kind=None, state=None, limit=10, offset=0)
    assert [job.job_id for job in kept] == [job.job_id for job in reversed(made[2:])]
    with pytest.raises(JobNotFound):
        jobs.get_job(job_id=made[0].job_id)


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        (COMPACT, {"day": YESTERDAY}, InvalidParameter),
        (COMPACT, {"before": "2026-02-30"}, InvalidParameter),
        (REPORT, {"namespace": "public"}, InvalidName),
        (REPORT, {"segmentRate": 0.0}, InvalidParameter),
        (REPORT, {"segmentRate": float("nan")}, InvalidParameter),
        (REPLAY, {"capacity": 0}, InvalidParameter),
        (REPLAY, {"warmUpSeconds": -1}, InvalidParameter),
        (REPLAY, {"lastDay": YESTERDAY}, InvalidParameter),
        (REPLAY, {"day": str(TODAY), "lastDay": YESTERDAY}, InvalidParameter),
        (REPLAY, {"day": YESTERDAY, "lastDay": AHEAD}, InvalidParameter),
        (REPORT, {"day": AHEAD}, InvalidParameter),
        (COMPACT, {"before": AHEAD}, InvalidParameter),
        (REPLAY, {"profiles": ["nobody"]}, InvalidParameter),
        (REPLAY, {"policies": {"pip-483": {}}}, InvalidParameter),
        (REPLAY, {"policies": {"../x": {}}}, InvalidParameter),
        (REPLAY, {"policies": {"x": {"maxSegments": "many"}}}, PolicyUnreadable),
        (REPLAY, {"policies": {"x": {"minSegments": 9, "maxSegments": 2}}}, PolicyInvalid),
    ],
)
def test_what_cannot_be_meant_is_refused(
    kind: JobKind, options: dict[str, Any], error: type[ScalableError]
) -> None:
    with pytest.raises(error):
        start(kind, **options)
    assert not SparkJob.objects.exists()


def test_today_may_be_asked_for() -> None:
    assert start(COMPACT, before=str(TODAY)).options == {"before": str(TODAY)}


def test_a_replay_may_count_from_its_beginning() -> None:
    assert start(REPLAY, warmUpSeconds=0).options == {"warmUpSeconds": 0.0}


def test_replays_know_the_rules_that_the_domain_names() -> None:
    assert set(RULES) == {*PROFILES, *PUBLISHED_RULES}


def test_only_files_of_the_result_are_read(tmp_path: Any, settings: Any) -> None:
    settings.SCALABLE_DATA_DIR = tmp_path
    job = start(REPORT)
    claim(job)
    directory = jobs.result_directory(job.job_id)
    (directory / "topics.csv").mkdir(parents=True)
    (directory / "topics.csv" / "part-0.csv").write_text("a\n1\n")
    (directory / "secret").write_text("no")
    files = ["topics.csv", "gone.html"]
    jobs.end_job(job_id=job.job_id, runner="a", state=JobState.SUCCEEDED, result={"files": files})
    assert jobs.read_file(job_id=job.job_id, file="topics.csv") == b"a\n1\n"
    for file in ("secret", "../secret", "gone.html", ""):
        with pytest.raises(JobFileNotFound):
            jobs.read_file(job_id=job.job_id, file=file)
