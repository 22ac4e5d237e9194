from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Upper

FIGURES = """
UPDATE scalable_topic AS topic
   SET active_segments = found.active, sealed_segments = found.sealed, msg_rate_in = coalesce(found.rate, 0)
  FROM (
        SELECT segment.topic_id,
               count(*) FILTER (WHERE segment.state = 'ACTIVE') AS active,
               count(*) FILTER (WHERE segment.state = 'SEALED') AS sealed,
               sum(load.msg_rate_in) FILTER (WHERE segment.state = 'ACTIVE') AS rate
          FROM scalable_segment AS segment
          LEFT JOIN scalable_segmentload AS load
            ON load.topic_id = segment.topic_id AND load.segment_id = segment.segment_id
         GROUP BY segment.topic_id
       ) AS found
 WHERE found.topic_id = topic.id
"""


class Migration(migrations.Migration):
    dependencies = [("scalable", "0015_audit")]

    operations = [
        TrigramExtension(),
        migrations.CreateModel(
            name="IdempotentRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("role", models.CharField(max_length=255)),
                ("key", models.CharField(max_length=255)),
                ("fingerprint", models.CharField(max_length=64)),
                ("status", models.IntegerField(null=True)),
                ("body", models.TextField(default="")),
                ("headers", models.JSONField(default=dict)),
                ("expires_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.AddConstraint(
            model_name="idempotentrequest",
            constraint=models.UniqueConstraint(fields=["role", "key"], name="idempotent_request_unique"),
        ),
        migrations.AddConstraint(
            model_name="idempotentrequest",
            constraint=models.CheckConstraint(
                condition=Q(status=None) | Q(status__gte=200, status__lt=500),
                name="idempotent_request_status",
            ),
        ),
        migrations.AddField("topic", "active_segments", models.IntegerField(db_default=0)),
        migrations.AddField("topic", "sealed_segments", models.IntegerField(db_default=0)),
        migrations.AddField("topic", "msg_rate_in", models.FloatField(db_default=0)),
        migrations.RunSQL(FIGURES, migrations.RunSQL.noop),
        migrations.AddIndex(
            "topic", GinIndex(OpClass(Upper("name"), name="gin_trgm_ops"), name="topic_name_parts")
        ),
        migrations.AddIndex(
            "topic", models.Index(fields=["namespace", "created_at", "name"], name="topic_by_creation")
        ),
        migrations.AddIndex(
            "topic", models.Index(fields=["namespace", "active_segments", "name"], name="topic_by_segments")
        ),
        migrations.AddIndex(
            "topic", models.Index(fields=["namespace", "msg_rate_in", "name"], name="topic_by_rate")
        ),
    ]
