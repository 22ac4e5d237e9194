from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=3)


class Migration(migrations.Migration):
    """Let a claim that takes a part of what is due leave the rest to be found."""

    dependencies = [("scalable", "0016_lists_and_keys")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
