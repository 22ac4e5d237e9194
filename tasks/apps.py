"""Joins the queue to the notices: what was committed and waits for a worker is sent to one."""

from django.apps import AppConfig

from scalable import announce
from scalable.announce import ConsumersChanged, JobRequested, Notice, OperationRequested
from tasks.app import app
from tasks.nudges import nudges


class TasksConfig(AppConfig):
    """The Django application of the Celery tasks."""

    name = "tasks"

    def ready(self) -> None:
        app.set_current()
        announce.listen(enqueue)


def enqueue(notice: Notice) -> None:
    """Send the task that a notice calls for, soon."""
    match notice:
        case OperationRequested(operation_id):
            nudges.offer([("tasks.jobs.drive", operation_id)])
        case JobRequested(job_id):
            nudges.offer([("tasks.jobs.run_spark_job", job_id)])
        case ConsumersChanged(incarnation):
            nudges.offer([("tasks.jobs.evaluate", incarnation)])
        case _:
            pass
