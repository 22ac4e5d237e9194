from django.db import migrations, models

# Append-only by the database: whoever may delete old rows (the sweep) may not touch young ones.
RULES = """
CREATE FUNCTION scalable_keep_audit() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.at < clock_timestamp() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'events of the audit are neither changed nor deleted'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_append_only';
END
$$;

CREATE TRIGGER audit_rows_stay
BEFORE UPDATE OR DELETE ON scalable_auditevent
FOR EACH ROW EXECUTE FUNCTION scalable_keep_audit();

CREATE TRIGGER audit_stays
BEFORE TRUNCATE ON scalable_auditevent
FOR EACH STATEMENT EXECUTE FUNCTION scalable_keep_audit();
"""

NO_RULES = """
DROP TRIGGER audit_stays ON scalable_auditevent;
DROP TRIGGER audit_rows_stay ON scalable_auditevent;
DROP FUNCTION scalable_keep_audit();
"""


class Migration(migrations.Migration):
    dependencies = [("scalable", "0012_topic_changes")]

    operations = [
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=300)),
                ("action", models.CharField(max_length=64)),
                ("target", models.CharField(max_length=1024)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("request_id", models.CharField(blank=True, default="", max_length=64)),
                ("outcome", models.CharField(max_length=64)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["at"], name="audit_by_time"),
                    models.Index(fields=["target", "-id"], name="audit_by_target"),
                    models.Index(fields=["actor", "-id"], name="audit_by_actor"),
                ],
            },
        ),
        migrations.RunSQL(RULES, NO_RULES),
    ]
