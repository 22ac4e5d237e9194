"""Batch jobs on Spark: one of a kind is unfinished at a time, one of all runs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scalable", "0027_keys_of_done_requests"),
    ]

    operations = [
        migrations.CreateModel(
            name="SparkJob",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=32)),
                ("state", models.CharField(max_length=16)),
                ("options", models.JSONField()),
                ("actor", models.CharField(max_length=300)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                ("runner", models.CharField(blank=True, default="", max_length=300)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("cancel_requested", models.BooleanField(default=False)),
                ("stages_done", models.PositiveIntegerField(default=0)),
                ("stages_total", models.PositiveIntegerField(default=0)),
                ("tasks_done", models.PositiveIntegerField(default=0)),
                ("tasks_total", models.PositiveIntegerField(default=0)),
                ("result", models.JSONField(null=True)),
                ("error", models.TextField(blank=True, default="")),
            ],
            options={
                "indexes": [models.Index(fields=["-created_at", "id"], name="job_by_time")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["daily_report", "compact", "policy_replay"])),
                        name="job_kind",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"])
                        ),
                        name="job_state",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["QUEUED", "RUNNING"])),
                        fields=("kind",),
                        name="job_one_of_a_kind",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "RUNNING")), fields=("state",), name="job_one_runs"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at", None), ("state__in", ["QUEUED", "RUNNING"])),
                            models.Q(
                                models.Q(("state__in", ["QUEUED", "RUNNING"]), _negated=True),
                                ("ended_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="job_end_has_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "RUNNING"), _negated=True),
                            models.Q(models.Q(("runner", ""), _negated=True), ("seen_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="job_runs_by_somebody",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("stages_done__lte", models.F("stages_total")),
                            ("tasks_done__lte", models.F("tasks_total")),
                        ),
                        name="job_counts",
                    ),
                ],
            },
        ),
    ]
