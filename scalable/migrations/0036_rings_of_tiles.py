"""Tiles in rings of 1, 10 and 60 minutes; the minutes that there are rolled up, so that their past is kept."""

from django.db import migrations, models
from django.db.models import F, Q

ROLL_UP = """
INSERT INTO scalable_loadtile (topic_id, segment_id, span_minutes, minute, mean, peak, observed_ms)
SELECT topic_id, segment_id, {span}, block, array_agg(mean ORDER BY part), array_agg(peak ORDER BY part),
       max(observed)
FROM (
    SELECT tile.topic_id, tile.segment_id, date_bin('{span} minutes', tile.minute, 'epoch') AS block,
           parts.part, sum(parts.mean * tile.observed_ms) / sum(tile.observed_ms) AS mean,
           max(parts.peak) AS peak, sum(tile.observed_ms) AS observed
    FROM scalable_loadtile tile
    CROSS JOIN LATERAL unnest(tile.mean, tile.peak) WITH ORDINALITY AS parts(mean, peak, part)
    WHERE tile.span_minutes = 1
      AND tile.minute >= date_bin('1 hour', now() - interval '{kept}', 'epoch')
    GROUP BY tile.topic_id, tile.segment_id, block, parts.part
) AS rolled
GROUP BY topic_id, segment_id, block;
"""
FORGET_MINUTES = """
DELETE FROM scalable_loadtile
WHERE span_minutes = 1 AND minute < date_bin('1 hour', now() - interval '2 hours', 'epoch');
"""
ROLL = ROLL_UP.format(span=10, kept="2 days") + ROLL_UP.format(span=60, kept="30 days") + FORGET_MINUTES
FORGET = "DELETE FROM scalable_loadtile WHERE span_minutes > 1"


class Migration(migrations.Migration):
    """Two columns with defaults: no row is rewritten."""

    dependencies = [("scalable", "0034_spark_jobs")]

    operations = [
        migrations.AddField("loadtile", "span_minutes", models.SmallIntegerField(db_default=1)),
        migrations.AddField("loadtile", "observed_ms", models.IntegerField(db_default=60_000)),
        migrations.RemoveConstraint("loadtile", "load_tile_unique"),
        migrations.AddConstraint(
            "loadtile",
            models.UniqueConstraint(
                fields=["topic", "span_minutes", "minute", "segment_id"], name="load_tile_in_its_ring"
            ),
        ),
        migrations.AddConstraint(
            "loadtile",
            models.CheckConstraint(condition=Q(span_minutes__in=[1, 10, 60]), name="load_tile_span"),
        ),
        migrations.AddConstraint(
            "loadtile",
            models.CheckConstraint(
                condition=Q(observed_ms__gt=0, observed_ms__lte=F("span_minutes") * 60_000),
                name="load_tile_observed",
            ),
        ),
        migrations.AddIndex(
            "loadtile", models.Index(fields=["span_minutes", "minute"], name="load_tile_by_age")
        ),
        migrations.RunSQL(ROLL, FORGET),
    ]
