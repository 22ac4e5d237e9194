from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=5)


class Migration(migrations.Migration):
    """Let a deleted cursor leave nothing that was claimed or acknowledged meanwhile."""

    dependencies = [("scalable", "0019_inherit")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
