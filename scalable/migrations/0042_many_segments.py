from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema

# One look into the index for each row that changed: its range and the hashes next to it are covered when the parts of the
# active segments there, which are disjoint, add up. Whether the topic is still there is asked only where that matters. By
# the index whatever is known of the table: a plan that was made for a small one would read all of a large one, or of a large
# topic, for each row. So each look is planned for its range, and never as a read of the table.
COVERAGE = """
CREATE OR REPLACE FUNCTION scalable_demand_coverage(topic bigint, first integer, last integer) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    low  CONSTANT integer := greatest(first - 1, 0);
    high CONSTANT integer := least(last + 1, 65535);
BEGIN
    IF (
        SELECT sum(least(hash_end, high) - greatest(hash_start, low) + 1) FROM scalable_segment
        WHERE topic_id = topic AND state = 'ACTIVE'
          AND int4range(hash_start, hash_end, '[]') && int4range(low, high, '[]')
    ) IS DISTINCT FROM high - low + 1 AND EXISTS (SELECT FROM scalable_topic WHERE id = topic) THEN
        RAISE EXCEPTION 'the active segments of topic % do not tile the hash space from % to %', topic, low, high
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_active_ranges_tile', TABLE = 'scalable_segment';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION scalable_segment_tiling() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM scalable_topic WHERE id = OLD.topic_id) THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM scalable_demand_coverage(OLD.topic_id, OLD.hash_start, OLD.hash_end);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM scalable_demand_coverage(NEW.topic_id, NEW.hash_start, NEW.hash_end);
    END IF;
    RETURN NULL;
END
$$;

DROP FUNCTION scalable_hash_is_covered(bigint, integer);
"""

# Nothing else was taken away; the check may stay as it is.
FORMER_COVERAGE = """
CREATE FUNCTION scalable_hash_is_covered(topic bigint, hash integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT hash NOT BETWEEN 0 AND 65535 OR EXISTS (
        SELECT FROM scalable_segment
        WHERE topic_id = topic AND state = 'ACTIVE' AND int4range(hash_start, hash_end, '[]') @> hash
    )
$$;
"""


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=6)


class Migration(migrations.Migration):
    """Make, check and delete many segments at once."""

    dependencies = [("scalable", "0041_quiet_sweeps")]

    operations = [
        migrations.RunPython(install, migrations.RunPython.noop),
        migrations.RunSQL(COVERAGE, FORMER_COVERAGE),
    ]
