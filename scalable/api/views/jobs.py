"""Batch jobs on Spark: start, look at, cancel, and fetch what they wrote."""

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.job_bodies import JobBody, JobsBody, JobsQuery, StartJobBody, job_body
from scalable.api.views.base import DoorView, body_of
from scalable.domain.access import Right
from scalable.domain.errors import (
    JobBusy,
    JobEnded,
    JobFileNotFound,
    JobNotFound,
    PolicyInvalid,
    PolicyUnreadable,
)
from scalable.domain.jobs import JobKind
from scalable.services import jobs

PAGE_TYPE, OTHER_TYPE = "text/html; charset=utf-8", "application/octet-stream"
# A report is a page of its own, which must not act as one of the dashboard.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; sandbox"
)


class JobsView(DoorView):
    """The batch jobs that were asked for."""

    tag = "Jobs"
    doors = {
        "GET": Door(
            summary="List batch jobs, the newest first",
            right=Right.SUPERUSER,
            query=JobsQuery,
            answers={200: JobsBody},
        ),
        "POST": Door(
            summary="Start a batch job, one of a kind at a time",
            right=Right.SUPERUSER,
            body=StartJobBody,
            answers={202: JobBody},
            errors=(JobBusy, PolicyUnreadable, PolicyInvalid),
            headers={"Location": "the address of the job"},
        ),
    }

    def get(self, request: Request) -> Response:
        found = jobs.list_jobs(**self.query(JobsQuery).wanted)
        return Response({"jobs": [job_body(job) for job in found]})

    def post(self, request: Request) -> Response:
        wanted = body_of(request, StartJobBody)
        job = jobs.start_job(kind=JobKind(wanted.kind), options=wanted.options(), actor=actor_of(request))
        return Response(job_body(job), status=202, headers={"Location": f"/admin/v2/jobs/{job.job_id}"})


class JobView(DoorView):
    """One batch job."""

    tag = "Jobs"
    doors = {
        "GET": Door(
            summary="Get a batch job: state, progress, result",
            right=Right.SUPERUSER,
            answers={200: JobBody},
            errors=(JobNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(job_body(jobs.get_job(job_id=path["job_id"])))


class CancelJobView(DoorView):
    """The end of a batch job."""

    tag = "Jobs"
    doors = {
        "POST": Door(
            summary="Cancel a batch job: one that waits at once, one that runs in a moment",
            right=Right.SUPERUSER,
            answers={200: JobBody},
            errors=(JobNotFound, JobEnded),
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        return Response(job_body(jobs.cancel_job(job_id=path["job_id"], actor=actor_of(request))))


class JobFileView(DoorView):
    """A file that a batch job wrote: its report, or one of its tables."""

    tag = "Jobs"
    doors = {
        "GET": Door(
            summary="Get a file of a job's result: a report as HTML, a table as CSV or Parquet",
            right=Right.SUPERUSER,
            answers={200: bytes},
            errors=(JobNotFound, JobFileNotFound),
        ),
    }

    def get(self, request: Request, **path: str) -> HttpResponse:
        file = path["file"]
        content = jobs.read_file(job_id=path["job_id"], file=file)
        is_page = file.endswith(".html")
        answer = HttpResponse(content, content_type=PAGE_TYPE if is_page else OTHER_TYPE)
        answer["Content-Disposition"] = f'{"inline" if is_page else "attachment"}; filename="{file}"'
        answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return answer
