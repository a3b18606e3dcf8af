"""Running attempts are found by their token: each heartbeat asks."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("queues", "0007_health_of_attempts_and_queues")]

    operations = [
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=Q(ended_at__isnull=True), fields=["token_hash"], name="attempt_by_token"
            ),
        ),
    ]
