"""One time of a recurring window may be skipped or moved; who was told ahead of a window is remembered."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0008_drift")]

    operations = [
        migrations.AddField(
            model_name="maintenancewindow",
            name="exceptions",
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name="occurrence",
            name="told",
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
    ]
