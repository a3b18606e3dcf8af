"""Celery's part: a nudge of the loop, and the retention of logs. Beat sends them; nothing depends on their arriving
(rule 2): the pacemaker would beat a moment later anyway."""

import time

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from scheduler.logstore import LogStore
from scheduler.loop import bell
from scheduler.services.alerts import prune_alerts
from scheduler.services.log_retention import prune_logs

# A run ends by itself long before the next one; what is left is for that one.
BUDGET_SECONDS = 300


@shared_task(name="scheduler.tasks.nudge_clusters", expires=1)
def nudge_clusters() -> None:
    """Make this worker's pulse beat now."""
    bell.ring()


@shared_task
def prune_old_logs() -> int:
    """Remove logs that are older than their tenant keeps them, for five minutes at most."""
    deadline = time.monotonic() + BUDGET_SECONDS
    store = LogStore(settings.LOG_STORE)
    return prune_logs(store, timezone.now(), has_time=lambda: time.monotonic() < deadline)


@shared_task
def prune_old_alerts() -> int:
    """Forget alerts that were over long ago."""
    return prune_alerts(timezone.now())
