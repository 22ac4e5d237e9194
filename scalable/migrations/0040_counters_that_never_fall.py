"""What rows that go had counted is kept; evaluations tell what caps a topic, and under which settings."""

from django.db import migrations, models
from django.db.models import Q

# Triggers, since rows go in many ways: with their topic, with a subscription, by age. All take one lock first: two
# transactions that each take away rows of several tables would else wait for one another.
KEEP = """
CREATE FUNCTION scalable_keep_counts(names text[], counts numeric[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock('scalable_retiredcount'::regclass::bigint);
    INSERT INTO scalable_retiredcount AS kept (name, count)
    SELECT gone.name, gone.count FROM unnest(names, counts) AS gone(name, count) WHERE gone.count > 0
    ON CONFLICT (name) DO UPDATE SET count = kept.count + excluded.count;
END
$$;
"""
KEEP_NO_MORE = "DROP FUNCTION scalable_keep_counts(text[], numeric[])"

COUNTED = {
    "evaluation": "SELECT 'flaps' AS name, sum(flaps) AS count FROM gone",
    "operation": """
        SELECT 'operations.' || kind || '.' || outcome AS name, count(*) AS count
          FROM gone WHERE outcome IS NOT NULL GROUP BY kind, outcome
    """,
    "topic": "SELECT 'seals' AS name, sum(sealed_segments) AS count FROM gone",
    "prunedsegment": "SELECT 'seals' AS name, count(*) AS count FROM gone",
    "subscription": "SELECT 'assignment_changes' AS name, sum(assignment_generation) AS count FROM gone",
    "controllerlease": "SELECT 'failovers' AS name, sum(greatest(term - 1, 0)) AS count FROM gone",
}
TRIGGER = """
CREATE FUNCTION scalable_{table}_retired() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    names text[];
    counts numeric[];
BEGIN
    SELECT array_agg(told.name), array_agg(told.count) INTO names, counts FROM ({counted}) AS told
     WHERE told.count > 0;
    IF names IS NOT NULL THEN
        PERFORM scalable_keep_counts(names, counts);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER {table}_retired AFTER DELETE ON scalable_{table}
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION scalable_{table}_retired();
"""
NO_TRIGGER = """
DROP TRIGGER {table}_retired ON scalable_{table};
DROP FUNCTION scalable_{table}_retired();
"""


class Migration(migrations.Migration):
    """Columns with defaults: no row is rewritten."""

    dependencies = [("scalable", "0036_rings_of_tiles")]

    operations = [
        migrations.CreateModel(
            name="RetiredCount",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("count", models.BigIntegerField()),
            ],
        ),
        migrations.RunSQL(KEEP, KEEP_NO_MORE),
        *(
            migrations.RunSQL(TRIGGER.format(table=table, counted=counted), NO_TRIGGER.format(table=table))
            for table, counted in COUNTED.items()
        ),
        migrations.AddField("evaluation", "settings_key", models.CharField(max_length=64, null=True)),
        migrations.AddField("evaluation", "is_split_capped", models.BooleanField(db_default=False)),
        migrations.AddField("evaluation", "is_merge_capped", models.BooleanField(db_default=False)),
        migrations.AddIndex(
            "evaluation", models.Index(fields=["settings_key"], name="evaluation_by_settings")
        ),
        migrations.AddIndex(
            "operation",
            models.Index(
                fields=["topic", "finished_at"],
                condition=Q(outcome__in=["FAILED", "ABORTED"]),
                name="operation_in_vain_by_topic",
            ),
        ),
    ]
