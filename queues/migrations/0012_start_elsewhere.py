"""A start that takes too long is tried elsewhere: such an attempt says so."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("queues", "0011_pods_end_after")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="attempt",
            name="elsewhere",
            field=models.BooleanField(db_default=False, default=False),
        )
    ]
