"""Does batch jobs on Spark as processes of their own: one that runs out of memory takes no worker along.

A process that loses its worker ends by itself; a worker that is told to end gives its job back.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import Error, InterfaceError, InternalError, OperationalError

from scalable.domain.errors import JobBusy, JobNotFound
from scalable.domain.jobs import Counts, JobKind, JobState
from scalable.services import jobs
from scalable.services.jobs import Go
from scalable.store.jobs import JobView
from spark.withheld import WITHHELD
from tasks.runner import runner_name

logger = logging.getLogger("tasks.spark_jobs")

LONGEST_SECONDS = 6 * 3600
TOO_LONG = "it ran for longer than six hours"
PATIENCE_SECONDS = 30
POLL_SECONDS = 0.5
DATABASE_PATIENCE_SECONDS = 600
"""So long the end of a job waits for a database that is away; without its end it would be done again."""
BEAT = "beat"
RESULT_OPTIONS: Mapping[str, str] = {
    "day": "--day",
    "lastDay": "--last-day",
    "before": "--before",
    "namespace": "--namespace",
    "segmentRate": "--segment-rate",
    "capacity": "--capacity",
    "maxSegments": "--max-segments",
    "warmUpSeconds": "--warm-up-seconds",
}
_shutting_down = threading.Event()


@worker_shutting_down.connect
def _note_shutdown(**_: object) -> None:
    _shutting_down.set()


def history() -> Path:
    """Where the load report of this installation keeps its history."""
    return settings.SCALABLE_DATA_DIR / "spark" / "load-report" / "history"


def start_daily() -> None:
    """Ask for what is due each night; where there is no history there is nothing to do.

    The nudges of the jobs have them done, one behind the other: a task that did them itself would be given
    out again while it runs, and would ask for them again.
    """
    if not history().is_dir():
        return
    for kind in (JobKind.COMPACT, JobKind.DAILY_REPORT):
        try:
            jobs.start_job(kind=kind, options={}, actor=BEAT)
        except JobBusy as busy:
            logger.warning("%s", busy)


def sweep() -> None:
    """Give lost jobs to others, and remove what jobs wrote that are forgotten."""
    jobs.sweep_jobs()
    root = jobs.results_root()
    directories = list(root.iterdir()) if root.is_dir() else []
    known = jobs.known_jobs() if directories else set()  # afterwards: a job that begins meanwhile is known
    for directory in directories:
        if directory.name not in known:
            shutil.rmtree(directory, ignore_errors=True)


def run_job(job_id: str) -> None:
    """Do a job to its end, unless it is not to be had; its progress goes to its row."""
    runner = runner_name()
    try:
        job = jobs.claim_job(job_id=job_id, runner=runner)
    except JobNotFound:
        return
    if job is not None:
        _Run(job, runner).drive()


class _Run:
    """One attempt at a job by this thread."""

    def __init__(self, job: JobView, runner: str) -> None:
        self._job = job
        self._runner = runner
        self._deadline = time.monotonic() + LONGEST_SECONDS

    def drive(self) -> None:
        """Start the process, follow it to its end, and write down what came of it."""
        try:
            process = start(self._job.kind.value, *arguments_of(self._job))
        except OSError as error:
            self._end(JobState.FAILED, error=str(error))
            return
        go = Go.ON
        try:
            while process.poll() is None and go is Go.ON:
                go = self._look(process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            _stop(process)
        self._conclude(process, go)

    def _look(self, pid: int) -> Go:
        """Write down how far the process is; a database that is away does not end it at once."""
        if _shutting_down.is_set():
            return Go.AWAY
        if self._is_late():
            return Go.CANCEL
        counts = counts_of(status_of(self._job.kind.value, pid))
        try:
            return jobs.report_job(job_id=self._job.job_id, runner=self._runner, counts=counts)
        except JobNotFound:
            return Go.AWAY
        except Error as error:
            logger.warning("The progress of job %s is not written: %s", self._job.job_id, error)
            return Go.ON

    def _conclude(self, process: Process, go: Go) -> None:
        status = status_of(self._job.kind.value, process.pid)
        if process.returncode == 0:
            self._count(status)
            self._end(JobState.SUCCEEDED, result=status.get("result") or {})
        elif go is Go.AWAY or _shutting_down.is_set():
            jobs.release_job(job_id=self._job.job_id, runner=self._runner)
        elif go is Go.CANCEL:
            self._end(JobState.CANCELLED, error=TOO_LONG if self._is_late() else "")
        else:
            self._end(JobState.FAILED, error=status.get("error") or process.last_words())

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _count(self, status: Mapping[str, Any]) -> None:
        """Write down the last counts; the end of a job does not hang on them."""
        with contextlib.suppress(Error, JobNotFound):
            jobs.report_job(job_id=self._job.job_id, runner=self._runner, counts=counts_of(status))

    def _end(self, state: JobState, *, result: Mapping[str, Any] | None = None, error: str = "") -> None:
        logger.info("job %s (%s): %s %s", self._job.job_id, self._job.kind, state, error)
        gives_up_at = time.monotonic() + DATABASE_PATIENCE_SECONDS
        while not self._is_ended(state, result, error):
            if time.monotonic() >= gives_up_at or _shutting_down.wait(POLL_SECONDS):
                logger.error("The end of job %s is not written: it will be done again", self._job.job_id)
                return

    def _is_ended(self, state: JobState, result: Mapping[str, Any] | None, error: str) -> bool:
        """Write down how the job ended; False while the database is away. It may be told twice."""
        try:
            jobs.end_job(
                job_id=self._job.job_id, runner=self._runner, state=state, result=result, error=error
            )
        except (OperationalError, InterfaceError, InternalError) as away:
            logger.warning("The end of job %s is not written yet: %s", self._job.job_id, away)
            return False
        return True


def arguments_of(job: JobView) -> list[str]:
    """Give the command line of a job; policies go by files of their own."""
    found = [f"{RESULT_OPTIONS[name]}={job.options[name]}" for name in RESULT_OPTIONS if name in job.options]
    if job.kind is JobKind.COMPACT:
        return found
    directory = jobs.result_directory(job.job_id)
    directory.mkdir(parents=True, exist_ok=True)
    found += [f"--profile={name}" for name in job.options.get("profiles", ())]
    for name, fields in job.options.get("policies", {}).items():
        path = directory / f"{name}.json"
        path.write_text(json.dumps(fields))
        found.append(f"--policy={path}")
    return [*found, f"--into={directory}"]


class Process(subprocess.Popen[bytes]):
    """A job's process, with the end of what it said."""

    log: Path

    def last_words(self) -> str:
        """Give the last line that it wrote, and how it ended."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return f"it ended with {self.returncode}: {lines[-1] if lines else 'without a word'}"


def start(job: str, *arguments: str) -> Process:
    """Start a job of the package `spark`; it gets no address and no secret of the servers behind the product.

    It ends when this process does: its standard input is a pipe that nobody else holds.
    """
    directory = settings.SCALABLE_DATA_DIR / "spark" / "jobs"
    directory.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    log = directory / f"{job}.log"
    with log.open("wb") as out:
        process = Process(
            [sys.executable, "-m", f"spark.{job}", "--with-parent", *arguments],
            cwd=settings.BASE_DIR,
            env={**environment, "SCALABLE_DATA_DIR": str(settings.SCALABLE_DATA_DIR)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=out,
        )
    process.log = log
    return process


def status_of(job: str, pid: int) -> dict[str, Any]:
    """Give what a process left in the status file of its job; nothing when that is another's."""
    path = settings.SCALABLE_DATA_DIR / "spark" / "jobs" / f"{job}.json"
    try:
        status: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return status if status.get("pid") == pid else {}


def counts_of(status: Mapping[str, Any]) -> Counts:
    """Give the counts of a status file; no more is done than there is."""
    stages, tasks = status.get("stages") or {}, status.get("tasks") or {}
    return Counts(*_done_of(stages), *_done_of(tasks))


def _done_of(counted: Mapping[str, int]) -> tuple[int, int]:
    total = counted.get("total", 0)
    return min(counted.get("done", 0), total), total


def _stop(process: Process) -> None:
    """End what still runs: Spark's job is cancelled by the process itself, which has half a minute for it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
