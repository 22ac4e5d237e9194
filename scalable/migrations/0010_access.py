import django.contrib.postgres.fields
import django.db.models.functions.text
from django.db import migrations, models

# Names are the keys: a namespace and a grant speak of their tenant by its name. Whatever changes who may do what
# changes the stamp, by which nodes notice. A token that was revoked stays so.
RULES = """
ALTER TABLE scalable_namespace ADD CONSTRAINT namespace_has_tenant
FOREIGN KEY (tenant) REFERENCES scalable_tenant (name) DEFERRABLE INITIALLY DEFERRED;

ALTER TABLE scalable_grant ADD CONSTRAINT grant_has_tenant
FOREIGN KEY (tenant) REFERENCES scalable_tenant (name) DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION scalable_access_changes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE scalable_accessstamp SET stamp = gen_random_uuid();
    RETURN NULL;
END
$$;

CREATE TRIGGER access_changes AFTER INSERT OR UPDATE OR DELETE ON scalable_tenant
FOR EACH ROW EXECUTE FUNCTION scalable_access_changes();

CREATE TRIGGER access_changes AFTER INSERT OR UPDATE OR DELETE ON scalable_grant
FOR EACH ROW EXECUTE FUNCTION scalable_access_changes();

CREATE TRIGGER access_changes AFTER UPDATE OR DELETE ON scalable_servicetoken
FOR EACH ROW EXECUTE FUNCTION scalable_access_changes();

CREATE FUNCTION scalable_token_stays() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.token_id, NEW.role, NEW.created_by, NEW.created_at, NEW.expires_at)
        IS DISTINCT FROM (OLD.token_id, OLD.role, OLD.created_by, OLD.created_at, OLD.expires_at)
        OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    THEN
        RAISE EXCEPTION 'token % can only be revoked, once and for ever', OLD.token_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'token_stays', TABLE = 'scalable_servicetoken';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER token_stays BEFORE UPDATE ON scalable_servicetoken
FOR EACH ROW EXECUTE FUNCTION scalable_token_stays();
"""

NO_RULES = """
DROP TRIGGER token_stays ON scalable_servicetoken;
DROP FUNCTION scalable_token_stays();
DROP TRIGGER access_changes ON scalable_servicetoken;
DROP TRIGGER access_changes ON scalable_grant;
DROP TRIGGER access_changes ON scalable_tenant;
DROP FUNCTION scalable_access_changes();
ALTER TABLE scalable_grant DROP CONSTRAINT grant_has_tenant;
ALTER TABLE scalable_namespace DROP CONSTRAINT namespace_has_tenant;
"""


FIRST_TENANTS = """
INSERT INTO scalable_tenant (name, admin_roles, created_at)
SELECT tenant, '{}', min(created_at) FROM scalable_namespace GROUP BY tenant;

INSERT INTO scalable_accessstamp (id, stamp) VALUES (1, gen_random_uuid());
"""


class Migration(migrations.Migration):
    """Tenants, grants and tokens; a tenant for each namespace that there is."""

    dependencies = [("scalable", "0009_restored_generation")]

    operations = [
        migrations.CreateModel(
            name="AccessStamp",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("stamp", models.UUIDField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="access_stamp_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Grant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tenant", models.CharField(max_length=255)),
                ("namespace", models.CharField(blank=True, default="", max_length=255)),
                ("topic", models.CharField(blank=True, default="", max_length=255)),
                ("role", models.CharField(max_length=255)),
                (
                    "actions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=8), size=None
                    ),
                ),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "namespace"], name="grant_by_scope")],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("tenant"),
                        django.db.models.functions.text.MD5(
                            django.db.models.functions.text.Concat(
                                "namespace", models.Value("/"), "topic", models.Value("/"), "role"
                            )
                        ),
                        name="grant_unique",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("actions", []), _negated=True),
                            ("actions__contained_by", ["produce", "consume", "lookup", "admin"]),
                        ),
                        name="grant_actions",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("tenant", ""), _negated=True),
                            models.Q(("role", ""), _negated=True),
                            models.Q(
                                ("topic", ""), models.Q(("namespace", ""), _negated=True), _connector="OR"
                            ),
                        ),
                        name="grant_scope",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("tenant", "system"), _negated=True), name="grant_never_in_system"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ServiceToken",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("token_id", models.CharField(max_length=64, unique=True)),
                ("role", models.CharField(max_length=255)),
                ("created_by", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("revoked_at__isnull", False)),
                        fields=["token_id"],
                        name="revoked_tokens",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("token_id", ""), _negated=True), models.Q(("role", ""), _negated=True)
                        ),
                        name="service_token_named",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("revoked_at", None), ("revoked_at__gte", models.F("created_at")), _connector="OR"
                        ),
                        name="service_token_revoked",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tenant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=255, unique=True)),
                (
                    "admin_roles",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=255), default=list, size=None
                    ),
                ),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="tenant_named"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("name", "system"), _negated=True), ("admin_roles", []), _connector="OR"
                        ),
                        name="tenant_system_has_no_admins",
                    ),
                ],
            },
        ),
        migrations.RunSQL(FIRST_TENANTS, migrations.RunSQL.noop),
        migrations.RunSQL(RULES, NO_RULES),
    ]
