"""Whose cordon speaks for a node, and whether somebody outside Muster had cordoned it before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0004_bookings_holds_evictions_cordons")]

    operations = [
        migrations.AddField(
            model_name="cordon",
            name="found_cordoned",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="node",
            name="cordon_source",
            field=models.CharField(blank=True, db_default="", default="", max_length=10),
        ),
    ]
