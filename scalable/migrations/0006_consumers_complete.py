import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Entry buckets, checkpoint groups, retention and grace by namespace and topic, history of pruned segments."""

    dependencies = [
        ("scalable", "0005_load_samples_topic"),
    ]

    operations = [
        migrations.CreateModel(
            name="PrunedSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("segment_id", models.BigIntegerField()),
                ("hash_start", models.IntegerField()),
                ("hash_end", models.IntegerField()),
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
                ("sealed_epoch", models.BigIntegerField()),
                ("created_at", models.DateTimeField()),
                ("sealed_at", models.DateTimeField()),
                ("pruned_at", models.DateTimeField()),
                ("end_offset", models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="assignment",
            name="bucket",
            field=models.IntegerField(default=0),
        ),
        migrations.AddField(
            model_name="assignment",
            name="position",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="namespace",
            name="deleting",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="namespace",
            name="retention_seconds",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="namespace",
            name="session_grace_seconds",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="segment",
            name="entry_bucket_splits",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.IntegerField(), default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="subscription",
            name="holds_pruning",
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name="subscription",
            name="key_shared",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="topic",
            name="last_rebucket_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="topic",
            name="retention_seconds",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="topic",
            name="session_grace_seconds",
            field=models.FloatField(null=True),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE scalable_assignment DROP CONSTRAINT scalable_assignment_pkey,"
                    " ADD PRIMARY KEY (subscription_id, segment_id, bucket)",
                    "ALTER TABLE scalable_assignment DROP CONSTRAINT scalable_assignment_pkey,"
                    " ADD PRIMARY KEY (subscription_id, segment_id)",
                )
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="assignment",
                    name="pk",
                    field=models.CompositePrimaryKey(
                        "subscription_id",
                        "segment_id",
                        "bucket",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
            ],
        ),
        migrations.AlterField(
            model_name="operation",
            name="kind",
            field=models.CharField(max_length=8),
        ),
        migrations.AlterField(
            model_name="subscription",
            name="type",
            field=models.CharField(
                choices=[("STREAM", "STREAM"), ("QUEUE", "QUEUE"), ("CHECKPOINT", "CHECKPOINT")],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("session_grace_seconds", None), ("session_grace_seconds__gte", 0), _connector="OR"
                ),
                name="namespace_session_grace",
            ),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("retention_seconds", None), ("retention_seconds__gte", -1), _connector="OR"
                ),
                name="namespace_retention",
            ),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.CheckConstraint(
                condition=models.Q(("key_shared", False), ("type", "STREAM"), _connector="OR"),
                name="subscription_key_shared",
            ),
        ),
        migrations.AddConstraint(
            model_name="topic",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("session_grace_seconds", None), ("session_grace_seconds__gte", 0), _connector="OR"
                ),
                name="topic_session_grace",
            ),
        ),
        migrations.AddConstraint(
            model_name="topic",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("retention_seconds", None), ("retention_seconds__gte", -1), _connector="OR"
                ),
                name="topic_retention",
            ),
        ),
        migrations.AddField(
            model_name="prunedsegment",
            name="topic",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="pruned_segments",
                to="scalable.topic",
            ),
        ),
        migrations.AddConstraint(
            model_name="prunedsegment",
            constraint=models.UniqueConstraint(fields=("topic", "segment_id"), name="pruned_segment_unique"),
        ),
    ]
