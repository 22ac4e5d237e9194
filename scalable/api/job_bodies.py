"""What REST reads and answers about batch jobs."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from scalable.api.serializers import Body, Identifier, PageSize, Query
from scalable.domain.jobs import MAX_POLICIES, JobKind, JobState
from scalable.store.jobs import JobView

Kind = Literal["daily_report", "compact", "policy_replay"]
State = Literal["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
Day = Annotated[str, Meta(extra_json_schema={"format": "date"})]
"""The domain says what is wrong with one."""
Rate = Annotated[float, Meta(ge=0)]
NamespaceText = Annotated[str, Meta(max_length=511, pattern=r"^[^\x00]*$")]


class JobsQuery(Query):
    """Which jobs are wanted, and how many."""

    kind: Kind | None = None
    state: State | None = None
    limit: PageSize = 50
    offset: Identifier = 0

    @property
    def wanted(self) -> dict[str, Any]:
        """What the service is asked for."""
        return {
            "kind": None if self.kind is None else JobKind(self.kind),
            "state": None if self.state is None else JobState(self.state),
            "limit": self.limit,
            "offset": self.offset,
        }


class StartJobBody(Body):
    """The job that is wanted; a kind refuses the options of the others.

    `profiles` are rules to replay, `policies` fields of policies by the names that their results get.
    """

    kind: Kind
    day: Day | UnsetType = UNSET
    last_day: Day | UnsetType = UNSET
    before: Day | UnsetType = UNSET
    namespace: NamespaceText | UnsetType = UNSET
    segment_rate: Rate | UnsetType = UNSET
    capacity: Rate | UnsetType = UNSET
    max_segments: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    warm_up_seconds: Rate | UnsetType = UNSET
    profiles: Annotated[list[str], Meta(max_length=MAX_POLICIES)] | UnsetType = UNSET
    policies: Annotated[dict[str, Any], Meta(max_length=MAX_POLICIES)] | UnsetType = UNSET

    def options(self) -> dict[str, Any]:
        """Give what was said, by its names on the wire, without the kind."""
        said: dict[str, Any] = msgspec.to_builtins(self)
        del said["kind"]
        return said


class CountsBody(Body):
    """Done, and known so far."""

    done: int
    total: int


class JobBody(Body):
    """A job; `result` has what it found, and under `files` the names of what can be fetched."""

    job_id: str
    kind: str
    state: str
    options: dict[str, Any]
    actor: str
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    attempts: int
    cancel_requested: bool
    stages: CountsBody
    tasks: CountsBody
    result: dict[str, Any] | None
    error: str


class JobsBody(Body):
    """A page of the jobs, the newest first."""

    jobs: list[JobBody]


def job_body(job: JobView) -> dict[str, Any]:
    """Write a job."""
    return {
        "jobId": job.job_id,
        "kind": job.kind.value,
        "state": job.state.value,
        "options": dict(job.options),
        "actor": job.actor,
        "createdAtMs": job.created_at_ms,
        "startedAtMs": job.started_at_ms,
        "endedAtMs": job.ended_at_ms,
        "attempts": job.attempts,
        "cancelRequested": job.cancel_requested,
        "stages": {"done": job.counts.stages_done, "total": job.counts.stages_total},
        "tasks": {"done": job.counts.tasks_done, "total": job.counts.tasks_total},
        "result": None if job.result is None else dict(job.result),
        "error": job.error,
    }
