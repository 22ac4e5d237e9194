"""The Celery application: settings and schedule come from Django's settings, tasks from this package."""

import logging
import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, worker_init
from django.conf import settings

from tasks.broker import use_lasting_transport

logger = logging.getLogger(__name__)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scalable.settings")

STORE_SWEEP_SECONDS = 60
NAMESPACE_SWEEP_SECONDS = 10
CHANGES_TRIM_SECONDS = 60
AUDIT_SWEEP_SECONDS = 600
KEYS_SWEEP_SECONDS = 600.0
SPARK_SWEEP_SECONDS = 15.0
RETENTION_TICK_SECONDS = min(5.0, settings.SCALABLE_RETENTION_SWEEP_SECONDS)
"""Ticks are more frequent than the sweeps of one topic, so that many topics are spread over them."""
RETENTION_WORK_SECONDS = 0.8 * RETENTION_TICK_SECONDS
"""So long one tick sweeps at most, a bit less than the time between two."""

use_lasting_transport()
app = Celery("scalable")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ["tasks.jobs"]


@worker_init.connect
@beat_init.connect
def _tell_of_ignored_names(**_: Any) -> None:
    for said in settings.SCALABLE_IGNORED_NAMES:
        logger.warning(said)


def _every(seconds: float, task: str) -> dict[str, Any]:
    """Ask for a task again and again.

    A tick that waited for longer than the next one is due is dropped: ticks must not pile up behind a stopped
    worker.
    """
    return {"task": f"tasks.jobs.{task}", "schedule": seconds, "options": {"expires": seconds}}


app.conf.beat_schedule = {
    "sweep-operations": _every(settings.SCALABLE_OPERATION_SWEEP_SECONDS, "sweep_operations"),
    "sweep-stores": _every(STORE_SWEEP_SECONDS, "sweep_stores"),
    "sweep-retention": _every(RETENTION_TICK_SECONDS, "sweep_retention"),
    "finish-namespace-deletions": _every(NAMESPACE_SWEEP_SECONDS, "finish_namespace_deletions"),
    "trim-topic-changes": _every(CHANGES_TRIM_SECONDS, "trim_topic_changes"),
    "forget-old-audit": _every(AUDIT_SWEEP_SECONDS, "forget_old_audit"),
    "forget-old-keys": _every(KEYS_SWEEP_SECONDS, "forget_old_keys"),
    "sweep-spark-jobs": _every(SPARK_SWEEP_SECONDS, "sweep_spark_jobs"),
    "daily-load-report": {
        "task": "tasks.jobs.daily_load_report",
        "schedule": crontab(hour=0, minute=20),
        "options": {"expires": 6 * 3600},
    },
    "autoscale-tick": _every(settings.SCALABLE_AUTOSCALE_TICK_SECONDS, "autoscale_tick"),
}
