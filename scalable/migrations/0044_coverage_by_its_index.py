from django.db import migrations

# What the planner knows of a table that was nearly empty when it was looked at makes any index of a topic's segments look
# as good as the one of ranges: 65,536 rows would be read for each of 65,536 hashes. This index alone answers the question
# as the function asks it, which says the state in a way of its own: another index of what is active could be read whole.
INDEX = """
CREATE INDEX segment_active_place ON scalable_segment
    USING gist (int8range(topic_id, topic_id, '[]'), int8range(hash_start, hash_end, '[]'))
    WHERE (state || '') = 'ACTIVE';
"""
FUNCTION = """
CREATE OR REPLACE FUNCTION scalable_demand_coverage(topic bigint, first integer, last integer) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    low  CONSTANT integer := greatest(first - 1, 0);
    high CONSTANT integer := least(last + 1, 65535);
BEGIN
    IF (
        SELECT sum(least(hash_end, high) - greatest(hash_start, low) + 1) FROM scalable_segment
        WHERE {place}
    ) IS DISTINCT FROM high - low + 1 AND EXISTS (SELECT FROM scalable_topic WHERE id = topic) THEN
        RAISE EXCEPTION 'the active segments of topic % do not tile the hash space from % to %', topic, low, high
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_active_ranges_tile', TABLE = 'scalable_segment';
    END IF;
END
$$;
"""
BY_THE_INDEX = FUNCTION.format(
    place="(state || '') = 'ACTIVE' AND int8range(topic_id, topic_id, '[]') && int8range(topic, topic, '[]')"
    " AND int8range(hash_start, hash_end, '[]') && int8range(low, high, '[]')"
)
BY_ANY = FUNCTION.format(
    place="state = 'ACTIVE' AND topic_id = topic AND int4range(hash_start, hash_end, '[]') && int4range(low, high, '[]')"
)


class Migration(migrations.Migration):
    """Check the layout of many segments by one index, whatever is known of the table."""

    dependencies = [("scalable", "0043_cursor_lives")]

    operations = [
        migrations.RunSQL(INDEX + BY_THE_INDEX, BY_ANY + "DROP INDEX segment_active_place;"),
    ]
