"""A request that came with an idempotency key is marked in the transaction of its effect."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column with a default: no row is rewritten."""

    dependencies = [("scalable", "0026_audit_by_action")]

    operations = [
        migrations.AddField("idempotentrequest", "is_done", models.BooleanField(db_default=False)),
    ]
