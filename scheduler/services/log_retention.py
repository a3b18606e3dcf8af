"""How long logs are kept: as many days after the end of their attempt as the tenant says. Called by `tasks`."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import islice

from django.db.models import Q

from queues.models import Attempt
from scheduler.logstore import LogStore
from tenants.models import Tenant

ATTEMPTS_PER_QUERY = 500


def prune_logs(store: LogStore, now: datetime, has_time: Callable[[], bool] = lambda: True) -> int:
    """Remove the logs of attempts that ended too long ago, while `has_time`; returns of how many attempts.

    Logs without a row (the row was pruned) go by when they were written.
    """
    removed = 0
    for tenant, days in Tenant.objects.values_list("slug", "log_retention_days"):
        until = now - timedelta(days=days)
        old = ((job, n) for job, n, written in store.lives(tenant) if written < until)
        while has_time() and (batch := set(islice(old, ATTEMPTS_PER_QUERY))):
            for job, number in batch - _still_kept(batch, until):
                store.remove_attempt(tenant, job, number)
                removed += 1
    return removed


def _still_kept(lives: Iterable[tuple[str, int]], until: datetime) -> set[tuple[str, int]]:
    """Those of (job, attempt number) that go on, or ended after `until`."""
    recent = Q(ended_at=None) | Q(ended_at__gte=until)
    rows = Attempt.objects.filter(recent, job__in={job for job, _number in lives})
    return set(rows.values_list("job_id", "number"))
