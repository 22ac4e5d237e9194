"""The table of batch jobs on Spark: what was asked for, how far it is, and what came of it."""

from django.db import models
from django.db.models import F, Q

KINDS = ["daily_report", "compact", "policy_replay"]
STATES = ["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
UNFINISHED = ["QUEUED", "RUNNING"]


class SparkJob(models.Model):
    """A batch job; while it is `RUNNING` its `runner` alone writes to it, and shows life by `seen_at`.

    One job of a kind is unfinished at a time, and one of all runs.
    """

    id = models.UUIDField(primary_key=True)
    kind = models.CharField(max_length=32)
    state = models.CharField(max_length=16)
    options = models.JSONField()
    actor = models.CharField(max_length=300)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    runner = models.CharField(max_length=300, default="", blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    cancel_requested = models.BooleanField(default=False)
    stages_done = models.PositiveIntegerField(default=0)
    stages_total = models.PositiveIntegerField(default=0)
    tasks_done = models.PositiveIntegerField(default=0)
    tasks_total = models.PositiveIntegerField(default=0)
    result = models.JSONField(null=True)
    error = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=KINDS), name="job_kind"),
            models.CheckConstraint(condition=Q(state__in=STATES), name="job_state"),
            models.UniqueConstraint(
                fields=["kind"], condition=Q(state__in=UNFINISHED), name="job_one_of_a_kind"
            ),
            models.UniqueConstraint(fields=["state"], condition=Q(state="RUNNING"), name="job_one_runs"),
            models.CheckConstraint(
                condition=Q(state__in=UNFINISHED, ended_at=None)
                | (~Q(state__in=UNFINISHED) & Q(ended_at__isnull=False)),
                name="job_end_has_a_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="RUNNING") | (~Q(runner="") & Q(seen_at__isnull=False)),
                name="job_runs_by_somebody",
            ),
            models.CheckConstraint(
                condition=Q(stages_done__lte=F("stages_total"), tasks_done__lte=F("tasks_total")),
                name="job_counts",
            ),
        ]
        indexes = [models.Index(fields=["-created_at", "id"], name="job_by_time")]
