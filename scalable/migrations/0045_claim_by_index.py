from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=8)


class Migration(migrations.Migration):
    """Claim messages by indexes, whatever statistics say."""

    dependencies = [("scalable", "0044_coverage_by_its_index")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
