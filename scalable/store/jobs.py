"""Rows of batch jobs on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.db import DataError, IntegrityError, transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Greatest

from scalable.domain.errors import JobNotFound
from scalable.domain.jobs import UNFINISHED, Counts, JobKind, JobState
from scalable.job_models import SparkJob
from scalable.store.clock import ClockTimestamp, milliseconds, optional_milliseconds, seconds_from_now


@dataclass(frozen=True, slots=True)
class JobView:
    """A batch job: what was asked for, how far it is, and what came of it."""

    job_id: str
    kind: JobKind
    state: JobState
    options: Mapping[str, Any]
    actor: str
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    attempts: int
    cancel_requested: bool
    counts: Counts
    result: Mapping[str, Any] | None
    error: str


def insert(kind: JobKind, options: Mapping[str, Any], *, actor: str) -> JobView | None:
    """Add a job that waits; None when one of its kind is not over."""
    row = SparkJob(
        id=uuid4(), kind=kind, state=JobState.QUEUED, options=dict(options), actor=actor[:300],
        created_at=ClockTimestamp(),
    )  # fmt: skip
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        return None
    row.refresh_from_db()
    return _view(row)


def unfinished(kind: JobKind) -> JobView | None:
    """Give the job of a kind that is not over."""
    row = SparkJob.objects.filter(kind=kind, state__in=UNFINISHED).first()
    return None if row is None else _view(row)


def read(job_id: str, *, lock: bool = False) -> JobView:
    """Read a job, and lock it until the transaction ends; raises JobNotFound."""
    rows = SparkJob.objects.filter(pk=_key(job_id))
    row = (rows.select_for_update(no_key=True) if lock else rows).first()
    if row is None:
        raise JobNotFound(job_id=job_id[:100])
    return _view(row)


def page(*, kind: JobKind | None, state: JobState | None, limit: int, offset: int) -> list[JobView]:
    """Give jobs, the newest first."""
    rows = SparkJob.objects.order_by("-created_at", "id")
    if kind is not None:
        rows = rows.filter(kind=kind)
    if state is not None:
        rows = rows.filter(state=state)
    return [_view(row) for row in rows[offset : offset + limit]]


def claim(job_id: str, *, runner: str) -> bool:
    """Let a runner have a job that waits, when it is the next one and no other runs."""
    if next_in_line() != str(_key(job_id)):
        return False
    waiting = SparkJob.objects.filter(pk=_key(job_id), state=JobState.QUEUED)
    attempts = waiting.values_list("attempts", flat=True).first()
    if attempts is None:
        return False
    try:
        with transaction.atomic():
            return bool(
                waiting.filter(attempts=attempts).update(
                    state=JobState.RUNNING, runner=runner[:300], attempts=attempts + 1,
                    started_at=ClockTimestamp(), seen_at=ClockTimestamp(), **_counted(Counts()),
                )
            )  # fmt: skip
    except IntegrityError:
        return False


def mark(job_id: str, *, runner: str, counts: Counts) -> bool:
    """Note that a job's runner lives, and how far it is; False when it is no longer this runner's.

    Counts that the database refuses are left as they were: for them no runner is taken for lost.
    """
    rows = _running(job_id, runner)
    try:
        with transaction.atomic():
            return bool(rows.update(seen_at=ClockTimestamp(), **_counted(counts)))
    except (IntegrityError, DataError):
        return bool(rows.update(seen_at=ClockTimestamp()))


def put_back(job_id: str, *, runner: str) -> bool:
    """Let a job wait again that its runner cannot go on with; False when it is no longer this runner's.

    That was no attempt: nobody was lost.
    """
    rows = _running(job_id, runner)
    return bool(
        rows.update(
            state=JobState.QUEUED, runner="", seen_at=None, attempts=Greatest(F("attempts") - 1, Value(0))
        )
    )


def end(
    job_id: str,
    state: JobState,
    *,
    runner: str | None = None,
    result: Mapping[str, Any] | None = None,
    error: str = "",
) -> bool:
    """End a job that is not over; a runner ends only what is its own."""
    rows = SparkJob.objects.filter(pk=_key(job_id), state__in=UNFINISHED)
    if runner is not None:
        rows = _running(job_id, runner)
    return bool(rows.update(state=state, ended_at=ClockTimestamp(), result=result, error=error))


def request_cancel(job_id: str) -> None:
    """Ask the runner of a job to end it."""
    SparkJob.objects.filter(pk=_key(job_id)).update(cancel_requested=True)


def lost(*, lease_seconds: float) -> list[JobView]:
    """Lock and give the running job whose runner has shown no life for so long."""
    silent = SparkJob.objects.filter(state=JobState.RUNNING, seen_at__lt=seconds_from_now(-lease_seconds))
    return [_view(row) for row in silent.select_for_update(no_key=True, skip_locked=True)]


def requeue(job_id: str) -> None:
    """Let a job wait again whose runner was lost; the caller holds its lock."""
    SparkJob.objects.filter(pk=_key(job_id)).update(state=JobState.QUEUED, runner="", seen_at=None)


def next_in_line() -> str | None:
    """Give the job that waits for longest, unless one runs."""
    if SparkJob.objects.filter(state=JobState.RUNNING).exists():
        return None
    waiting = SparkJob.objects.filter(state=JobState.QUEUED).order_by("created_at")
    key = waiting.values_list("pk", flat=True).first()
    return None if key is None else str(key)


def forget(*, kept: int) -> int:
    """Delete all but the newest jobs of those that are over."""
    over = SparkJob.objects.exclude(state__in=UNFINISHED).order_by("-created_at", "id")
    old = list(over.values_list("pk", flat=True)[kept : kept + 1_000])
    return SparkJob.objects.filter(Q(pk__in=old)).delete()[0]


def ids() -> set[str]:
    """Give the ids of all jobs."""
    return {str(key) for key in SparkJob.objects.values_list("pk", flat=True)}


def _running(job_id: str, runner: str) -> Any:
    return SparkJob.objects.filter(pk=_key(job_id), state=JobState.RUNNING, runner=runner[:300])


def _counted(counts: Counts) -> dict[str, int]:
    return {
        "stages_done": counts.stages_done,
        "stages_total": counts.stages_total,
        "tasks_done": counts.tasks_done,
        "tasks_total": counts.tasks_total,
    }


def _key(job_id: str) -> UUID:
    try:
        return UUID(job_id)
    except ValueError:
        raise JobNotFound(job_id=job_id[:100]) from None


def _view(row: SparkJob) -> JobView:
    return JobView(
        job_id=str(row.pk),
        kind=JobKind(row.kind),
        state=JobState(row.state),
        options=row.options,
        actor=row.actor,
        created_at_ms=milliseconds(row.created_at),
        started_at_ms=optional_milliseconds(row.started_at),
        ended_at_ms=optional_milliseconds(row.ended_at),
        attempts=row.attempts,
        cancel_requested=row.cancel_requested,
        counts=Counts(row.stages_done, row.stages_total, row.tasks_done, row.tasks_total),
        result=row.result,
        error=row.error,
    )
