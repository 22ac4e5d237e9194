from django.db import migrations, models


class Migration(migrations.Migration):
    """Moves of cursors in a data plane outside the metadata database are noted before they begin."""

    dependencies = [("scalable", "0046_skip_to")]

    operations = [
        migrations.AddField(
            model_name="subscription",
            name="moving_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(
                condition=models.Q(("moving_since__isnull", False)),
                fields=["moving_since"],
                name="subscription_moving",
            ),
        ),
    ]
