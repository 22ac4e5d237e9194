import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.operations
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The control plane's tables, and the constraints that models can state."""

    initial = True

    dependencies = []

    operations = [
        django.contrib.postgres.operations.BtreeGistExtension(),
        migrations.CreateModel(
            name="Namespace",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tenant", models.CharField(max_length=255)),
                ("name", models.CharField(max_length=255)),
                ("auto_scale_policy", models.JSONField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant", "name"), name="namespace_unique")],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Topic",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="topics",
                        to="scalable.namespace",
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("epoch", models.BigIntegerField()),
                ("revision", models.BigIntegerField(default=1)),
                ("next_segment_id", models.BigIntegerField()),
                ("properties", models.JSONField(default=dict)),
                ("auto_scale_policy", models.JSONField(null=True)),
                ("created_at", models.DateTimeField()),
                ("last_split_at", models.DateTimeField(null=True)),
                ("last_merge_at", models.DateTimeField(null=True)),
                ("next_evaluation_at", models.DateTimeField(db_index=True, null=True)),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["properties"], name="topic_properties", opclasses=["jsonb_path_ops"]
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "name"), name="topic_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("epoch__gte", 0), ("next_segment_id__gte", 1)),
                        name="topic_counters",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Segment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="segments",
                        to="scalable.topic",
                    ),
                ),
                ("segment_id", models.BigIntegerField()),
                ("hash_start", models.IntegerField()),
                ("hash_end", models.IntegerField()),
                (
                    "state",
                    models.CharField(choices=[("ACTIVE", "ACTIVE"), ("SEALED", "SEALED")], max_length=6),
                ),
                (
                    "parent_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "child_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("created_epoch", models.BigIntegerField()),
                ("sealed_epoch", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("sealed_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("topic", "segment_id"), name="segment_unique"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("hash_end__lte", 65535),
                            ("hash_start__gte", 0),
                            ("hash_start__lte", models.F("hash_end")),
                        ),
                        name="segment_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("sealed_at__isnull", True), ("sealed_epoch", 0), ("state", "ACTIVE")),
                            models.Q(
                                ("sealed_at__isnull", False), ("sealed_epoch__gt", 0), ("state", "SEALED")
                            ),
                            _connector="OR",
                        ),
                        name="segment_state",
                    ),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        condition=models.Q(("state", "ACTIVE")),
                        expressions=[
                            ("topic", "="),
                            (
                                models.Func(
                                    models.F("hash_start"),
                                    models.F("hash_end"),
                                    models.Value("[]"),
                                    function="int4range",
                                ),
                                "&&",
                            ),
                        ],
                        name="segment_active_ranges_disjoint",
                    ),
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "topic",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operations",
                        to="scalable.topic",
                    ),
                ),
                ("kind", models.CharField(max_length=5)),
                ("plan", models.JSONField()),
                ("results", models.JSONField(default=dict)),
                ("phase", models.CharField(max_length=20)),
                ("outcome", models.CharField(max_length=9, null=True)),
                ("error", models.JSONField(null=True)),
                ("actor", models.CharField(max_length=255)),
                ("reason", models.CharField(max_length=255)),
                ("epoch", models.BigIntegerField(null=True)),
                ("lease_holder", models.CharField(max_length=255, null=True)),
                ("lease_token", models.BigIntegerField(default=0)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("attempts", models.IntegerField(default=0)),
                ("timings", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["topic", "-created_at"], name="operation_by_topic"),
                    models.Index(
                        condition=models.Q(("outcome", None)),
                        fields=["lease_expires_at"],
                        name="operation_unfinished",
                    ),
                    models.Index(
                        condition=models.Q(("outcome", None)),
                        fields=["topic"],
                        name="operation_unfinished_by_topic",
                    ),
                ],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="OperationClaim",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="claims",
                        to="scalable.operation",
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="scalable.topic"),
                ),
                ("segment_id", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("topic", "segment_id"), name="operation_claim_unique")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("url", models.CharField(max_length=255)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField(db_index=True)),
            ],
            options={
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="ControllerLease",
            fields=[
                (
                    "topic",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="lease",
                        serialize=False,
                        to="scalable.topic",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to="scalable.node"
                    ),
                ),
                ("term", models.BigIntegerField(default=0)),
                ("acquired_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to="scalable.topic",
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("type", models.CharField(choices=[("STREAM", "STREAM"), ("QUEUE", "QUEUE")], max_length=6)),
                ("assignment_generation", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("topic", "name"), name="subscription_unique")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="ConsumerRegistration",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="consumers",
                        to="scalable.subscription",
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("subscription", "name"), name="consumer_unique")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Assignment",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "subscription_id",
                        "segment_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="assignments",
                        to="scalable.subscription",
                    ),
                ),
                ("segment_id", models.BigIntegerField()),
                ("owner", models.CharField(max_length=255, null=True)),
                ("next_owner", models.CharField(max_length=255, null=True)),
                ("generation", models.BigIntegerField(default=0)),
                ("release_deadline", models.DateTimeField(null=True)),
                ("drained", models.BooleanField(default=False)),
            ],
            options={
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="SegmentLoad",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="scalable.topic"),
                ),
                ("segment_id", models.BigIntegerField()),
                ("msg_rate_in", models.FloatField()),
                ("bytes_rate_in", models.FloatField()),
                ("msg_rate_out", models.FloatField()),
                ("bytes_rate_out", models.FloatField()),
                ("modified_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("topic", "segment_id"), name="segment_load_unique")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="LoadWatermark",
            fields=[
                ("reporter", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("watermark", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="LoadTile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="scalable.topic"),
                ),
                ("segment_id", models.BigIntegerField()),
                ("minute", models.DateTimeField()),
                (
                    "mean",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None),
                ),
                (
                    "peak",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("topic", "minute", "segment_id"), name="load_tile_unique")
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="Decision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="decisions",
                        to="scalable.topic",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("action", models.CharField(max_length=5, null=True)),
                ("rule", models.CharField(max_length=64)),
                (
                    "segment_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("explanation", models.JSONField()),
                (
                    "operation",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, to="scalable.operation"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["topic", "-at"], name="decision_by_topic")],
                "constraints": [],
            },
        ),
    ]
