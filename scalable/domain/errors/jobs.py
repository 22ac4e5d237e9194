"""Refusals about batch jobs on Spark."""

from __future__ import annotations

from scalable.domain.errors.base import ScalableError


class JobNotFound(ScalableError):
    """There is no job {job_id}."""

    code = "job_not_found"
    hint_template = "List the jobs: only the latest are kept."
    job_id: str


class JobBusy(ScalableError):
    """A job of the kind {kind} is not over yet: {job_id}."""

    code = "job_busy"
    hint_template = "Wait for that job, or cancel it; there is one of a kind at a time."
    kind: str
    job_id: str


class JobEnded(ScalableError):
    """The job {job_id} is over: {state}."""

    code = "job_ended"
    hint_template = "Start a new one if it is still wanted."
    job_id: str
    state: str


class JobFileNotFound(ScalableError):
    """The job {job_id} has no file {file}."""

    code = "job_file_not_found"
    hint_template = "Look at the job: its result lists the files, and they go when it is forgotten."
    job_id: str
    file: str
