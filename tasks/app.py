"""The Celery application: settings and schedule come from Django's settings, tasks from this package."""

import os

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scalable.settings")

STORE_SWEEP_SECONDS = 60
NAMESPACE_SWEEP_SECONDS = 10
CHANGES_TRIM_SECONDS = 60
AUDIT_SWEEP_SECONDS = 600
KEYS_SWEEP_SECONDS = 600.0
RETENTION_TICK_SECONDS = min(5.0, settings.SCALABLE_RETENTION_SWEEP_SECONDS)
"""Ticks are more frequent than the sweeps of one topic, so that many topics are spread over them."""

app = Celery("scalable")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ["tasks.jobs"]
app.conf.beat_schedule = {
    # A tick that waited for longer than the next one is due is dropped: ticks must not pile up behind a
    # stopped worker.
    "sweep-operations": {
        "task": "tasks.jobs.sweep_operations",
        "schedule": settings.SCALABLE_OPERATION_SWEEP_SECONDS,
        "options": {"expires": settings.SCALABLE_OPERATION_SWEEP_SECONDS},
    },
    "sweep-stores": {
        "task": "tasks.jobs.sweep_stores",
        "schedule": STORE_SWEEP_SECONDS,
        "options": {"expires": STORE_SWEEP_SECONDS},
    },
    "sweep-retention": {
        "task": "tasks.jobs.sweep_retention",
        "schedule": RETENTION_TICK_SECONDS,
        "options": {"expires": RETENTION_TICK_SECONDS},
    },
    "finish-namespace-deletions": {
        "task": "tasks.jobs.finish_namespace_deletions",
        "schedule": NAMESPACE_SWEEP_SECONDS,
        "options": {"expires": NAMESPACE_SWEEP_SECONDS},
    },
    "trim-topic-changes": {
        "task": "tasks.jobs.trim_topic_changes",
        "schedule": CHANGES_TRIM_SECONDS,
        "options": {"expires": CHANGES_TRIM_SECONDS},
    },
    "forget-old-audit": {
        "task": "tasks.jobs.forget_old_audit",
        "schedule": AUDIT_SWEEP_SECONDS,
        "options": {"expires": AUDIT_SWEEP_SECONDS},
    },
    "forget-old-keys": {
        "task": "tasks.jobs.forget_old_keys",
        "schedule": KEYS_SWEEP_SECONDS,
        "options": {"expires": KEYS_SWEEP_SECONDS},
    },
    "autoscale-tick": {
        "task": "tasks.jobs.autoscale_tick",
        "schedule": settings.SCALABLE_AUTOSCALE_TICK_SECONDS,
        "options": {"expires": settings.SCALABLE_AUTOSCALE_TICK_SECONDS},
    },
}
