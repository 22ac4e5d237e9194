from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema, remove_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=1)


def remove(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    remove_schema(editor.connection)


class Migration(migrations.Migration):
    """Make the tables of the embedded segment log, which know nothing of the metadata beside them."""

    dependencies = [("scalable", "0003_first_namespaces")]

    operations = [migrations.RunPython(install, remove)]
