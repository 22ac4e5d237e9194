from django.db import migrations

# At commit every hash of the space must lie in an ACTIVE segment of its topic; that none lies in two is the exclusion
# constraint's work. A row is only asked about its own range and the hashes next to it: when that holds for all rows that
# changed, it still holds for those that did not, so a commit costs a few index look-ups for each changed row.
TILING = """
CREATE FUNCTION scalable_hash_is_covered(topic bigint, hash integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT hash NOT BETWEEN 0 AND 65535 OR EXISTS (
        SELECT FROM scalable_segment
        WHERE topic_id = topic AND state = 'ACTIVE' AND int4range(hash_start, hash_end, '[]') @> hash
    )
$$;

CREATE FUNCTION scalable_demand_coverage(topic bigint, first integer, last integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    hash integer;
BEGIN
    IF NOT EXISTS (SELECT FROM scalable_topic WHERE id = topic) THEN
        RETURN;
    END IF;
    FOREACH hash IN ARRAY ARRAY[first - 1, first, last, last + 1] LOOP
        IF NOT scalable_hash_is_covered(topic, hash) THEN
            RAISE EXCEPTION 'the active segments of topic % do not tile the hash space: % is not covered', topic, hash
                USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_active_ranges_tile',
                      TABLE = 'scalable_segment';
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION scalable_segment_tiling() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM scalable_demand_coverage(OLD.topic_id, OLD.hash_start, OLD.hash_end);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM scalable_demand_coverage(NEW.topic_id, NEW.hash_start, NEW.hash_end);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION scalable_topic_tiling() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM scalable_demand_coverage(NEW.id, 0, 65535);
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER segment_active_ranges_tile
AFTER INSERT OR DELETE OR UPDATE OF topic_id, state, hash_start, hash_end ON scalable_segment
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION scalable_segment_tiling();

CREATE CONSTRAINT TRIGGER topic_has_segments
AFTER INSERT ON scalable_topic
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION scalable_topic_tiling();
"""

NO_TILING = """
DROP TRIGGER topic_has_segments ON scalable_topic;
DROP TRIGGER segment_active_ranges_tile ON scalable_segment;
DROP FUNCTION scalable_topic_tiling();
DROP FUNCTION scalable_segment_tiling();
DROP FUNCTION scalable_demand_coverage(bigint, integer, integer);
DROP FUNCTION scalable_hash_is_covered(bigint, integer);
"""


class Migration(migrations.Migration):
    """Let the database refuse a layout whose active segments leave a hole."""

    dependencies = [("scalable", "0001_initial")]

    operations = [migrations.RunSQL(TILING, NO_TILING)]
