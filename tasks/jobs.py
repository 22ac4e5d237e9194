"""Tasks: each calls one service; those of topics hold still while scalable topics are switched off."""

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec

from celery import shared_task
from django.conf import settings

from scalable import trace
from scalable.services import (
    auditing,
    autoscaling,
    driver,
    idempotency,
    namespace_watching,
    namespaces,
    pruning,
    sweeping,
)
from tasks import spark_jobs
from tasks.app import RETENTION_WORK_SECONDS
from tasks.runner import runner_name

P = ParamSpec("P")


def _where(allowed: Callable[[], bool], task: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(task)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if allowed():
            task(*args, **kwargs)

    return run


def of_topics(task: Callable[P, None]) -> Callable[P, None]:
    """Do nothing while scalable topics are switched off: what they hold stays as it is."""
    return _where(lambda: settings.SCALABLE_TOPICS_ENABLED, task)


def of_writers(task: Callable[P, None]) -> Callable[P, None]:
    """Begin nothing new in read-only mode; docs/audit.md tells what is made up for when it ends."""
    return _where(lambda: not settings.SCALABLE_READ_ONLY, task)


def alone(task: Callable[[], None]) -> Callable[[], None]:
    """Do nothing while the same task is at work in this process; the next tick goes on with what it leaves.

    Ticks that take longer than the time to the next would else fill all threads, and no operation be driven.
    """
    at_work = threading.Lock()

    @functools.wraps(task)
    def run() -> None:
        if at_work.acquire(blocking=False):
            try:
                task()
            finally:
                at_work.release()

    return run


@shared_task
@of_topics
def drive(operation_id: str) -> None:
    """Drive an operation to its end."""
    with trace.about(operation_id=operation_id):
        driver.drive_operation(operation_id=operation_id, runner=runner_name())


@shared_task
@of_topics
@alone
def sweep_operations() -> None:
    """Queue operations again that wait for a runner."""
    sweeping.sweep_operations()


@shared_task
@of_topics
@alone
def sweep_stores() -> None:
    """Remove orphaned segment stores and make missing ones."""
    sweeping.sweep_stores()


@shared_task
@of_topics
@of_writers
@alone
def sweep_retention() -> None:
    """Prune and trim the topics whose time has come, for as long as there are some until the next tick."""
    pruning.sweep_due_topics(seconds=RETENTION_WORK_SECONDS)


@shared_task
@of_topics
@of_writers
@alone
def finish_namespace_deletions() -> None:
    """Go on with deletions of namespaces that a process began and did not end."""
    namespaces.finish_deletions()


@shared_task
@of_topics
@alone
def trim_topic_changes() -> None:
    """Forget changes of namespaces that every watcher has seen."""
    namespace_watching.trim_changes()


@shared_task
@alone
def forget_old_audit() -> None:
    """Drop events of the audit that are older than they need be kept."""
    auditing.forget_old()


@shared_task
@alone
def forget_old_keys() -> None:
    """Forget idempotency keys whose time is over."""
    idempotency.forget_old_keys()


@shared_task
@of_topics
@of_writers
@alone
def autoscale_tick() -> None:
    """Evaluate the topics whose time has come."""
    autoscaling.evaluate_due_topics()


@shared_task
@of_topics
@of_writers
def evaluate(incarnation: int) -> None:
    """Evaluate a topic whose consumers changed."""
    autoscaling.evaluate_if_due(incarnation=incarnation)


@shared_task
def run_spark_job(job_id: str) -> None:
    """Do a batch job on Spark, unless somebody else does it or another one runs."""
    spark_jobs.run_job(job_id)


@shared_task
@alone
def sweep_spark_jobs() -> None:
    """Take batch jobs from workers that are lost, and ask again for the one that waits."""
    spark_jobs.sweep()


@shared_task
@of_writers
@alone
def daily_load_report() -> None:
    """Ask for the compaction of the history of loads and the report of yesterday, where there is one."""
    spark_jobs.start_daily()
