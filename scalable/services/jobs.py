"""Batch jobs on Spark: rows that a worker takes, one at a time; the row is the truth, a task only a nudge.

A runner that shows no life for a minute has lost its job, which is then done again from its beginning: every
job may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.announce import JobRequested
from scalable.domain.errors import JobBusy, JobEnded, JobFileNotFound
from scalable.domain.jobs import Counts, JobKind, JobState, check_options
from scalable.services import auditing
from scalable.store import jobs as store
from scalable.store.clock import database_now
from scalable.store.jobs import JobView

LEASE_SECONDS = 60.0
MAX_ATTEMPTS = 3
KEPT_JOBS = 100
"""So many jobs that are over are kept, with what they wrote."""
MAX_ERROR_CHARACTERS = 2_000


class Go(StrEnum):
    """What the runner of a job shall do."""

    ON = "on"
    CANCEL = "cancel"
    AWAY = "away"
    """The job is not its own any more."""


@transaction.atomic
def start_job(*, kind: JobKind, options: Mapping[str, Any], actor: str) -> JobView:
    """Ask for a job; the default of an option that is left out is that of the job itself.

    Raises JobBusy while one of its kind is not over, and what `check_options` does.
    """
    checked = check_options(kind, options, today=database_now().astimezone(UTC).date())
    job = store.insert(kind, checked, actor=actor)
    if job is None:
        busy = store.unfinished(kind)
        raise JobBusy(kind=kind.value, job_id=busy.job_id if busy else "")
    auditing.record("job.start", f"job://{kind}/{job.job_id}", actor=actor, after={"options": checked})
    announce.publish(JobRequested(job.job_id))
    return job


def list_jobs(*, kind: JobKind | None, state: JobState | None, limit: int, offset: int) -> list[JobView]:
    """Give jobs, the newest first."""
    return store.page(kind=kind, state=state, limit=limit, offset=offset)


def get_job(*, job_id: str) -> JobView:
    """Give a job; raises JobNotFound."""
    return store.read(job_id)


@transaction.atomic
def cancel_job(*, job_id: str, actor: str) -> JobView:
    """End a job that waits, or ask for the end of one that runs; raises JobNotFound, JobEnded."""
    job = store.read(job_id, lock=True)
    if job.state.is_over:
        raise JobEnded(job_id=job.job_id, state=job.state.value)
    if job.state is JobState.QUEUED:
        store.end(job_id, JobState.CANCELLED)
    store.request_cancel(job_id)
    auditing.record("job.cancel", f"job://{job.kind}/{job.job_id}", actor=actor)
    return store.read(job_id)


@transaction.atomic
def claim_job(*, job_id: str, runner: str) -> JobView | None:
    """Let a runner have a job; None when it is not to be had, or another job runs. Raises JobNotFound."""
    return store.read(job_id) if store.claim(job_id, runner=runner) else None


@transaction.atomic
def report_job(*, job_id: str, runner: str, counts: Counts) -> Go:
    """Tell how far a job is, and hear whether to go on; raises JobNotFound."""
    if not store.mark(job_id, runner=runner, counts=counts):
        return Go.AWAY
    return Go.CANCEL if store.read(job_id).cancel_requested else Go.ON


@transaction.atomic
def end_job(
    *, job_id: str, runner: str, state: JobState, result: Mapping[str, Any] | None = None, error: str = ""
) -> bool:
    """End a job that the runner has, and let the next one begin; False when it is not its own any more.

    What no JSON can say of a result, as a mean of nothing, becomes null.
    """
    said = error[:MAX_ERROR_CHARACTERS].replace("\0", "")
    ended = store.end(job_id, state, runner=runner, result=_sayable(result), error=said)
    store.forget(kept=KEPT_JOBS)
    _nudge()
    return ended


@transaction.atomic
def release_job(*, job_id: str, runner: str) -> None:
    """Give a job back, to be done from its beginning by somebody else."""
    store.put_back(job_id, runner=runner)
    _nudge()


@transaction.atomic
def sweep_jobs() -> None:
    """Take jobs from runners that are lost, and ask again for the one that waits."""
    for job in store.lost(lease_seconds=LEASE_SECONDS):
        if job.cancel_requested:
            store.end(job.job_id, JobState.CANCELLED)
        elif job.attempts >= MAX_ATTEMPTS:
            error = f"{job.attempts} workers were lost while they did it"
            store.end(job.job_id, JobState.FAILED, error=error)
        else:
            store.requeue(job.job_id)
    _nudge()


def result_directory(job_id: str) -> Path:
    """Where a job that was asked for writes."""
    return results_root() / job_id


def results_root() -> Path:
    """Where the jobs that were asked for write, each below its id."""
    root: Path = settings.SCALABLE_DATA_DIR / "spark" / "results"
    return root.resolve()


def known_jobs() -> set[str]:
    """Give the ids of the jobs that are kept."""
    return store.ids()


def read_file(*, job_id: str, file: str) -> bytes:
    """Read a file of a job's result, a table of several parts as one; raises JobNotFound, JobFileNotFound."""
    job = store.read(job_id)
    if file not in (job.result or {}).get("files", ()):
        raise JobFileNotFound(job_id=job.job_id, file=file[:100])
    path = result_directory(job.job_id) / file
    parts = sorted(path.glob("part-*")) if path.is_dir() else [path]
    try:
        return b"".join(part.read_bytes() for part in parts)
    except OSError:
        raise JobFileNotFound(job_id=job.job_id, file=file) from None


def _sayable(value: Any) -> Any:
    """Give a value as PostgreSQL takes JSON: numbers are finite, and texts have no NUL."""
    match value:
        case float():
            return value if isfinite(value) else None
        case str():
            return value.replace("\0", "")
        case Mapping():
            return {_sayable(name): _sayable(each) for name, each in value.items()}
        case list() | tuple():
            return [_sayable(each) for each in value]
        case _:
            return value


def _nudge() -> None:
    waiting = store.next_in_line()
    if waiting is not None:
        announce.publish(JobRequested(waiting))
