from django.db import migrations, models

# A segment's row goes with its topic, or sealed and into the history, from which its id never comes back. Ids, epochs and
# revisions of a topic only rise. Asked at commit, for a topic is deleted row by row.
LIFE = """
CREATE FUNCTION scalable_segment_goes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM scalable_topic WHERE id = OLD.topic_id) THEN
        RETURN NULL;
    END IF;
    IF OLD.state = 'ACTIVE' OR NOT EXISTS (
        SELECT FROM scalable_prunedsegment WHERE topic_id = OLD.topic_id AND segment_id = OLD.segment_id
    ) THEN
        RAISE EXCEPTION 'segment % of topic % goes neither with its topic nor sealed and into the history',
            OLD.segment_id, OLD.topic_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_goes_into_history', TABLE = 'scalable_segment';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION scalable_segment_comes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM scalable_prunedsegment WHERE topic_id = NEW.topic_id AND segment_id = NEW.segment_id
    ) OR EXISTS (
        SELECT FROM scalable_topic WHERE id = NEW.topic_id AND next_segment_id <= NEW.segment_id
    ) THEN
        RAISE EXCEPTION 'segment % of topic % has an id that was pruned or never given out',
            NEW.segment_id, NEW.topic_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'segment_id_given_once', TABLE = 'scalable_segment';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION scalable_topic_counts_up() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch < OLD.epoch OR NEW.revision < OLD.revision OR NEW.next_segment_id < OLD.next_segment_id THEN
        RAISE EXCEPTION 'epoch, revision and next segment id of topic % only rise', OLD.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'topic_counts_up', TABLE = 'scalable_topic';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION scalable_namespace_takes_topics() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT deleting FROM scalable_namespace WHERE id = NEW.namespace_id FOR SHARE) THEN
        RAISE EXCEPTION 'namespace % is being deleted and takes no topics', NEW.namespace_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'namespace_takes_topics', TABLE = 'scalable_topic';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER namespace_takes_topics BEFORE INSERT OR UPDATE OF namespace_id ON scalable_topic
FOR EACH ROW EXECUTE FUNCTION scalable_namespace_takes_topics();

CREATE CONSTRAINT TRIGGER segment_goes_into_history AFTER DELETE ON scalable_segment
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION scalable_segment_goes();

CREATE CONSTRAINT TRIGGER segment_id_given_once AFTER INSERT OR UPDATE OF topic_id, segment_id ON scalable_segment
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION scalable_segment_comes();

CREATE TRIGGER topic_counts_up BEFORE UPDATE OF epoch, revision, next_segment_id ON scalable_topic
FOR EACH ROW EXECUTE FUNCTION scalable_topic_counts_up();
"""

NO_LIFE = """
DROP TRIGGER namespace_takes_topics ON scalable_topic;
DROP FUNCTION scalable_namespace_takes_topics();
DROP TRIGGER topic_counts_up ON scalable_topic;
DROP TRIGGER segment_id_given_once ON scalable_segment;
DROP TRIGGER segment_goes_into_history ON scalable_segment;
DROP FUNCTION scalable_topic_counts_up();
DROP FUNCTION scalable_segment_comes();
DROP FUNCTION scalable_segment_goes();
"""


class Migration(migrations.Migration):
    """Segments go into a history and no id comes back; topics know when they are swept next."""

    dependencies = [("scalable", "0006_consumers_complete")]

    operations = [
        migrations.AddField("topic", "next_sweep_at", models.DateTimeField(db_index=True, null=True)),
        migrations.RunSQL(LIFE, NO_LIFE),
        # An hour of samples is more than the load pipeline ever looks back on.
        migrations.RunSQL(
            "UPDATE scalable_namespace SET retention_seconds = 3600"
            " WHERE tenant = 'system' AND name = 'load' AND retention_seconds IS NULL",
            migrations.RunSQL.noop,
        ),
    ]
