"""Topics that keep quiet are swept more and more rarely."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scalable", "0040_counters_that_never_fall")]

    operations = [
        migrations.AddField("topic", "quiet_sweeps", models.PositiveSmallIntegerField(db_default=0)),
    ]
