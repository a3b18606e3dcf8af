"""What runs now and then in the background: retention. Celery's beat sends it; nothing depends on its arriving."""

import time

from celery import shared_task
from django.utils import timezone

from queues.services.retention import prune

# A run ends by itself long before the next one; what is left is for that one.
BUDGET_SECONDS = 300


@shared_task
def prune_old_rows() -> dict[str, int]:
    """Delete what is older than is kept (DESIGN section 9), in batches, for five minutes at most."""
    deadline = time.monotonic() + BUDGET_SECONDS
    return prune(timezone.now(), has_time=lambda: time.monotonic() < deadline)
