"""Batch jobs on Spark by REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from scalable.client.rest import Json, RestClient, listed, quoted

JobKind = Literal["daily_report", "compact", "policy_replay"]
JOB_ROOT = "/admin/v2/jobs"


class JobAdmin(RestClient):
    """What `Admin` does about batch jobs. Superusers only."""

    def start_job(self, kind: JobKind, options: Mapping[str, Any] | None = None) -> Json:
        """Start a job and give it; options by their names on the wire (`day`, `namespace`, `policies`).

        Raises JobBusy, InvalidParameter, PolicyUnreadable, PolicyInvalid.
        """
        return self._object("POST", JOB_ROOT, json={"kind": kind, **(options or {})})

    def jobs(self, *, kind: str = "", state: str = "", limit: int = 50, offset: int = 0) -> list[Json]:
        """List jobs, the newest first."""
        given = {"kind": kind, "state": state}
        params: Json = {name: value for name, value in given.items() if value}
        return listed(
            self._json("GET", JOB_ROOT, params={**params, "limit": limit, "offset": offset}), "jobs"
        )

    def job(self, job_id: str) -> Json:
        """Give a job: state, progress, result; raises JobNotFound."""
        return self._object("GET", f"{JOB_ROOT}/{quoted(job_id)}")

    def cancel_job(self, job_id: str) -> Json:
        """Cancel a job that is not over; raises JobNotFound, JobEnded."""
        return self._object("POST", f"{JOB_ROOT}/{quoted(job_id, 'cancel')}")

    def job_file(self, job_id: str, file: str) -> bytes:
        """Give a file of a job's result; raises JobNotFound, JobFileNotFound."""
        return self._call("GET", f"{JOB_ROOT}/{quoted(job_id, 'files', file)}").content
