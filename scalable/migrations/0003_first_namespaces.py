from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils import timezone

FIRST_NAMESPACES = [("public", "default"), ("system", "load")]


def create_namespaces(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the namespaces that always exist, unless they are there."""
    namespaces = apps.get_model("scalable", "Namespace").objects.using(schema_editor.connection.alias)
    for tenant, name in FIRST_NAMESPACES:
        namespaces.get_or_create(tenant=tenant, name=name, defaults={"created_at": timezone.now()})


class Migration(migrations.Migration):
    """Make the namespaces that exist on every system."""

    dependencies = [("scalable", "0002_layout_tiling")]

    operations = [migrations.RunPython(create_namespaces, migrations.RunPython.noop)]
