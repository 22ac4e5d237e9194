from django.db import migrations, models


class Migration(migrations.Migration):
    """Checkpoints from before a restore of their group can be told from those after it."""

    dependencies = [("scalable", "0007_claims")]

    operations = [
        migrations.AddField(
            model_name="subscription",
            name="restored_generation",
            field=models.BigIntegerField(default=0),
        ),
    ]
