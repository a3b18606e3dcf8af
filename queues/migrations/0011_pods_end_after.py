"""How long the pods of an attempt may run at most, whatever is asked later."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("queues", "0010_strict_queues")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="attempt",
            name="pods_end_after_seconds",
            field=models.PositiveIntegerField(blank=True, null=True),
        )
    ]
