import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

# One row for each topic whose segments are not fixed. The first evaluation comes one interval of PIP-483's after the
# topic, whoever inserts it.
ROWS = """
CREATE FUNCTION scalable_topic_evaluation() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO scalable_evaluation (topic_id, due_at, not_before)
    SELECT NEW.id, clock_timestamp() + interval '60 seconds', clock_timestamp()
      FROM scalable_namespace WHERE id = NEW.namespace_id AND tenant <> 'system';
    RETURN NULL;
END
$$;

CREATE TRIGGER topic_evaluation
AFTER INSERT ON scalable_topic FOR EACH ROW EXECUTE FUNCTION scalable_topic_evaluation();

INSERT INTO scalable_evaluation (topic_id, due_at, not_before)
SELECT topic.id, coalesce(topic.next_evaluation_at, clock_timestamp()), clock_timestamp()
  FROM scalable_topic AS topic JOIN scalable_namespace AS namespace ON namespace.id = topic.namespace_id
 WHERE namespace.tenant <> 'system';
"""
NO_ROWS = """
DROP TRIGGER topic_evaluation ON scalable_topic;
DROP FUNCTION scalable_topic_evaluation();
"""


class Migration(migrations.Migration):
    """The autoscaler follows what changed: each topic has a row that says when it is looked at next."""

    dependencies = [("scalable", "0018_due_floor")]

    operations = [
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                (
                    "topic",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="evaluation",
                        serialize=False,
                        to="scalable.topic",
                    ),
                ),
                ("due_at", models.DateTimeField(db_index=True)),
                ("not_before", models.DateTimeField()),
                ("marks", models.BigIntegerField(db_default=1)),
                ("evaluated_at", models.DateTimeField(null=True)),
                ("failures", models.IntegerField(db_default=0)),
                ("decision_key", models.TextField(null=True)),
                ("load_known", models.BooleanField(null=True)),
                ("stale_after_seconds", models.FloatField(db_default=0)),
                ("wants_tiles", models.BooleanField(db_default=False)),
                ("auto_splits", models.BigIntegerField(db_default=0)),
                ("auto_merges", models.BigIntegerField(db_default=0)),
                ("auto_rebuckets", models.BigIntegerField(db_default=0)),
                ("splits_capped", models.BigIntegerField(db_default=0)),
                ("merges_capped", models.BigIntegerField(db_default=0)),
                ("flaps", models.BigIntegerField(db_default=0)),
                ("last_flap_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddIndex(
            "evaluation",
            models.Index(
                fields=["stale_after_seconds"], condition=Q(load_known=True), name="evaluation_load_known"
            ),
        ),
        migrations.AddIndex(
            "evaluation",
            models.Index(
                fields=["stale_after_seconds"], condition=Q(load_known=False), name="evaluation_load_unknown"
            ),
        ),
        migrations.RunSQL(ROWS, NO_ROWS),
        migrations.RemoveField("topic", "next_evaluation_at"),
        migrations.AlterField("decision", "action", models.CharField(max_length=8, null=True)),
    ]
