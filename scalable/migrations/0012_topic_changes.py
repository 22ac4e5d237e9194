from django.db import migrations

# Written by a trigger, so that no way of changing topics can forget it. A row names its transaction: whoever
# keeps the snapshot of an earlier read finds what was committed since, in whatever order it was.
CHANGES = """
CREATE TABLE scalable_topicchange (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace_id bigint NOT NULL,
    name varchar(255) NOT NULL,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX topicchange_by_transaction ON scalable_topicchange (namespace_id, transaction_id);

CREATE FUNCTION scalable_note_topic_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    topic scalable_topic := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO scalable_topicchange (namespace_id, name) VALUES (topic.namespace_id, topic.name);
    RETURN NULL;
END
$$;

CREATE TRIGGER topic_comes_or_goes
AFTER INSERT OR DELETE ON scalable_topic
FOR EACH ROW EXECUTE FUNCTION scalable_note_topic_change();

CREATE TRIGGER topic_properties_change
AFTER UPDATE OF properties ON scalable_topic
FOR EACH ROW WHEN (OLD.properties IS DISTINCT FROM NEW.properties)
EXECUTE FUNCTION scalable_note_topic_change();
"""

NO_CHANGES = """
DROP TRIGGER topic_properties_change ON scalable_topic;
DROP TRIGGER topic_comes_or_goes ON scalable_topic;
DROP FUNCTION scalable_note_topic_change();
DROP TABLE scalable_topicchange;
"""


class Migration(migrations.Migration):
    """Note which topics of a namespace come, go or change their properties, for those who watch it."""

    dependencies = [("scalable", "0010_access")]

    operations = [migrations.RunSQL(CHANGES, NO_CHANGES)]
