from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=2)


class Migration(migrations.Migration):
    """Give cursors of the segment log claims and single acknowledgements, and batches their times."""

    dependencies = [("scalable", "0008_segment_life")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
