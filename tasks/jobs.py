"""Tasks: each calls one service."""

from celery import shared_task

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
from tasks.runner import runner_name


@shared_task
def drive(operation_id: str) -> None:
    """Drive an operation to its end."""
    with trace.about(operation_id=operation_id):
        driver.drive_operation(operation_id=operation_id, runner=runner_name())


@shared_task
def sweep_operations() -> None:
    """Queue operations again that wait for a runner."""
    sweeping.sweep_operations()


@shared_task
def sweep_stores() -> None:
    """Remove orphaned segment stores and make missing ones."""
    sweeping.sweep_stores()


@shared_task
def sweep_retention() -> None:
    """Prune and trim the topics whose time has come."""
    pruning.sweep_due_topics()


@shared_task
def finish_namespace_deletions() -> None:
    """Go on with deletions of namespaces that a process began and did not end."""
    namespaces.finish_deletions()


@shared_task
def trim_topic_changes() -> None:
    """Forget changes of namespaces that every watcher has seen."""
    namespace_watching.trim_changes()


@shared_task
def forget_old_audit() -> None:
    """Drop events of the audit that are older than they need be kept."""
    auditing.forget_old()


@shared_task
def forget_old_keys() -> None:
    """Forget idempotency keys whose time is over."""
    idempotency.forget_old_keys()


@shared_task
def autoscale_tick() -> None:
    """Evaluate the topics whose time has come."""
    autoscaling.evaluate_due_topics()


@shared_task
def evaluate(incarnation: int) -> None:
    """Evaluate a topic whose consumers changed."""
    autoscaling.evaluate_if_due(incarnation=incarnation)


@shared_task
def daily_load_report() -> None:
    """Compact the history of loads and write the report of yesterday, where there is a history."""
    if spark_jobs.history().is_dir():
        spark_jobs.run("compact")
        spark_jobs.run("daily_report")
