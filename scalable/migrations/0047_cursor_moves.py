import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Moves of cursors in a data plane outside the metadata database are noted before they begin."""

    dependencies = [("scalable", "0046_skip_to")]

    operations = [
        migrations.CreateModel(
            name="CursorMove",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("noted_at", models.DateTimeField()),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="cursor_moves",
                        to="scalable.subscription",
                    ),
                ),
            ],
        ),
    ]
