from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils import timezone


def create_topic(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the topic that load samples are published to, with one segment and its store, unless it is there.

    A data plane outside this database gets its store from the sweep that makes missing ones.
    """
    using = schema_editor.connection.alias
    now = timezone.now()
    namespace = apps.get_model("scalable", "Namespace").objects.using(using).get(tenant="system", name="load")
    topic, created = (
        apps.get_model("scalable", "Topic")
        .objects.using(using)
        .get_or_create(
            namespace=namespace,
            name="samples",
            defaults={"epoch": 0, "next_segment_id": 1, "created_at": now},
        )
    )
    if not created:
        return
    apps.get_model("scalable", "Segment").objects.using(using).create(
        topic=topic,
        segment_id=0,
        hash_start=0,
        hash_end=65535,
        state="ACTIVE",
        created_epoch=0,
        created_at=now,
    )
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT segment_create(%s, 0, 0, 65535, '{}', NULL, NULL)", [topic.pk])


class Migration(migrations.Migration):
    """Make `topic://system/load/samples`, the beginning of the load pipeline."""

    dependencies = [("scalable", "0004_segment_log")]

    operations = [migrations.RunPython(create_topic, migrations.RunPython.noop)]
