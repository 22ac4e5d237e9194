from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=4)


class Migration(migrations.Migration):
    """Hand marks on to a child in one statement."""

    dependencies = [("scalable", "0020_evaluations")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
