"""Joins the queue to the notices: what was committed and waits for a worker is sent to one."""

import logging

from django.apps import AppConfig

from scalable import announce
from scalable.announce import ConsumersChanged, JobRequested, Notice, OperationRequested
from tasks.app import app

logger = logging.getLogger(__name__)

NUDGE_EXPIRES_SECONDS = 120
"""A nudge that waited for so long was repeated by the sweep meanwhile."""


class TasksConfig(AppConfig):
    """The Django application of the Celery tasks."""

    name = "tasks"

    def ready(self) -> None:
        app.set_current()
        announce.listen(enqueue)


def enqueue(notice: Notice) -> None:
    """Send the task that a notice calls for; a broker that fails is logged, and the sweeps make up for it."""
    match notice:
        case OperationRequested(operation_id):
            _send("tasks.jobs.drive", operation_id)
        case JobRequested(job_id):
            _send("tasks.jobs.run_spark_job", job_id)
        case ConsumersChanged(incarnation):
            _send("tasks.jobs.evaluate", incarnation)
        case _:
            pass


def _send(task: str, argument: str | int) -> None:
    try:
        app.send_task(task, args=[argument], expires=NUDGE_EXPIRES_SECONDS, ignore_result=True)
    except Exception as error:
        logger.warning("%s(%s) was not queued: %s", task, argument, error)
