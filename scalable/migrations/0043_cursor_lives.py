from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=7)


class Migration(migrations.Migration):
    """Give no incarnation of a cursor twice, whatever is made anew under a name."""

    dependencies = [("scalable", "0042_many_segments")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
