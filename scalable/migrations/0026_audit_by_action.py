from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scalable", "0025_deleted_cursors")]

    operations = [
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["action", "-id"], name="audit_by_action"),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["outcome", "-id"], name="audit_by_outcome"),
        ),
    ]
