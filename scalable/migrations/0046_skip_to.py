from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from scalable.segments.schema import install_schema


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    install_schema(editor.connection, up_to=9)


class Migration(migrations.Migration):
    """Skip up to a place without moving back."""

    dependencies = [("scalable", "0045_claim_by_index")]

    operations = [migrations.RunPython(install, migrations.RunPython.noop)]
