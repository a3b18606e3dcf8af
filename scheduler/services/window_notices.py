"""Owners hear ahead of time that a window will stop their jobs: an event on each job, mail, and a webhook a tenant."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import override

from controlplane.common import log
from queues.models import Job
from queues.selectors.answers import time_text
from scheduler.models import Occurrence
from scheduler.services.departures import Leaver
from tenants.models import Tenant, User
from tenants.services.outbox import Letter, post_mail, post_webhooks

KIND = "window.noticed"


def post_notices(each: Occurrence, found: Iterable[Leaver], now: datetime) -> int:
    """Tell of every job that will not have ended by the start; returns how many jobs. Call inside `log.writing()`."""
    hit = [leaver.attempt.job for leaver in found if _is_hit(leaver, each)]
    by_tenant: dict[Tenant, list[Job]] = defaultdict(list)
    for job in hit:
        by_tenant[job.tenant].append(job)
        log.record(_event(each, job, now))
    with override(settings.LANGUAGE_CODE):
        for tenant, jobs in by_tenant.items():
            _tell(each, tenant, jobs, now)
    return len(hit)


def _is_hit(leaver: Leaver, each: Occurrence) -> bool:
    return leaver.runner.ends_at is None or leaver.runner.ends_at > each.starts_at


def _event(each: Occurrence, job: Job, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="job.maintenance_ahead",
        at=now,
        tenant=job.tenant.slug,
        job=job.pk,
        cluster=each.window.cluster.name,
        actor="scheduler",
        message=each.window.title,
        numbers={
            "window": each.window_id,
            "starts_at": time_text(each.starts_at),
            "ends_at": time_text(each.ends_at),
            "running_jobs": each.window.running_jobs,
        },
    )


def _tell(each: Occurrence, tenant: Tenant, jobs: list[Job], now: datetime) -> None:
    window = each.window
    key = f"{KIND}/{window.pk}/{each.starts_at:%Y%m%dT%H%M%SZ}/{tenant.pk}"
    details = {
        "window": window.pk,
        "title": window.title,
        "kind": window.kind,
        "cluster": window.cluster.name,
        "starts_at": time_text(each.starts_at),
        "ends_at": time_text(each.ends_at),
        "running_jobs": window.running_jobs,
        "jobs": [job.pk for job in jobs],
    }
    post_webhooks(tenant, KIND, key, details, now)
    owners: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        owners[job.user_id].append(job)
    for user in _readers(owners):
        post_mail([user], _letter(each, owners[user.pk], key), tenant=tenant, now=now)


def _readers(owners: Iterable[int]) -> Iterable[User]:
    """Owners, but for those who chose to get no mail."""
    silent = Q(mail_choice__alerts="none")
    return User.objects.filter(pk__in=list(owners)).exclude(silent).order_by("pk")


def _letter(each: Occurrence, jobs: list[Job], key: str) -> Letter:
    window = each.window
    subject = _("[Muster] {title}: your jobs stop before {at}").format(
        title=window.title, at=f"{each.starts_at:%Y-%m-%d %H:%M} UTC"
    )
    ways = {
        "finish": _("Jobs may finish first; what still runs at the latest time is stopped."),
        "checkpoint": _("Each job is stopped after its last checkpoint before the start."),
        "evict": _("Jobs are stopped at the start."),
    }
    lines = [
        _("Maintenance window “{title}” on {cluster}, {start} to {end} UTC.").format(
            title=window.title,
            cluster=window.cluster.name,
            start=f"{each.starts_at:%Y-%m-%d %H:%M}",
            end=f"{each.ends_at:%Y-%m-%d %H:%M}",
        ),
        str(ways[window.running_jobs]),
        _("They go back to their queue and start again elsewhere, or afterwards."),
        "",
        *(f"{job.name}: {settings.PUBLIC_URL}/jobs/{job.pk}/" for job in jobs),
    ]
    return Letter(KIND, key, subject, "\n".join(lines) + "\n")
