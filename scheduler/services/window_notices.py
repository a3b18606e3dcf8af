"""Owners hear ahead of time that a window will stop their jobs, and when it will not: by event, mail and webhook."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import override

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Job
from queues.selectors.answers import time_text
from scheduler.maintenance.recurrence import Span
from scheduler.models import Occurrence
from scheduler.services.departures import Leaver
from tenants.models import Tenant, User
from tenants.services.outbox import Letter, post_mail, post_webhooks

KIND = "window.noticed"
KIND_OFF = "window.called_off"
Json = dict[str, Any]


def to_be_told(each: Occurrence, found: Iterable[Leaver]) -> list[Job]:
    """Jobs that will not have ended by the start, and whose owners were not told yet."""
    told = frozenset(each.told)
    jobs = [leaver.attempt.job for leaver in found if _is_hit(leaver, each)]
    return [job for job in jobs if job.pk not in told]


def post_notices(each: Occurrence, jobs: Sequence[Job], now: datetime) -> None:
    """Tell the owners of these jobs, and remember it. Call inside `log.writing()`."""
    if not jobs:
        return
    told = [*each.told, *(job.pk for job in jobs)]
    Occurrence.objects.filter(pk=each.pk).update(told=told)
    each.told = told
    log.record(*(_event("job.maintenance_ahead", each, job, now) for job in jobs))
    _tell(each, jobs, now, KIND, {"running_jobs": each.window.running_jobs}, _letter_ahead)


def post_called_off(each: Occurrence, instead: Span | None, now: datetime) -> None:
    """Tell those who had been told that it does not happen then; `instead`: when it does. Inside `log.writing()`."""
    rows = Job.objects.filter(pk__in=each.told).exclude(phase=Phase.FINISHED)
    jobs = list(rows.select_related("tenant").order_by("pk"))
    if not jobs:
        return
    numbers = {
        "new_starts_at": time_text(instead.starts_at) if instead else None,
        "new_ends_at": time_text(instead.ends_at) if instead else None,
    }
    kind = "job.maintenance_moved" if instead else "job.maintenance_off"
    log.record(*(_event(kind, each, job, now, numbers) for job in jobs))

    def letter(each: Occurrence, jobs: Sequence[Job], key: str) -> Letter:
        return _letter_off(each, instead, jobs, key)

    _tell(each, jobs, now, KIND_OFF, numbers, letter)


def _is_hit(leaver: Leaver, each: Occurrence) -> bool:
    return leaver.runner.ends_at is None or leaver.runner.ends_at > each.starts_at


def _event(
    kind: str, each: Occurrence, job: Job, now: datetime, more: Json | None = None
) -> log.NewEvent:
    return log.NewEvent(
        kind=kind,
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
            **(more or {}),
        },
    )


def _tell(
    each: Occurrence,
    jobs: Sequence[Job],
    now: datetime,
    kind: str,
    more: Json,
    letter: Callable[[Occurrence, Sequence[Job], str], Letter],
) -> None:
    """A webhook to each tenant, a mail to each owner."""
    by_tenant: dict[Tenant, list[Job]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant].append(job)
    with override(settings.LANGUAGE_CODE):
        for tenant, theirs in by_tenant.items():
            _tell_tenant(each, tenant, theirs, now, kind, more, letter)


def _tell_tenant(  # noqa: PLR0913  as above, of one tenant
    each: Occurrence,
    tenant: Tenant,
    jobs: Sequence[Job],
    now: datetime,
    kind: str,
    more: Json,
    letter: Callable[[Occurrence, Sequence[Job], str], Letter],
) -> None:
    window = each.window
    # Each job is told once of each occurrence as the window then was: so its first tells the batches apart.
    when = f"{each.starts_at:%Y%m%dT%H%M%SZ}/{window.version}"
    key = f"{kind}/{window.pk}/{when}/{jobs[0].pk}"
    details = {
        "window": window.pk,
        "title": window.title,
        "kind": window.kind,
        "cluster": window.cluster.name,
        "starts_at": time_text(each.starts_at),
        "ends_at": time_text(each.ends_at),
        **more,
        "jobs": [job.pk for job in jobs],
    }
    post_webhooks(tenant, kind, key, details, now)
    owners: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        owners[job.user_id].append(job)
    for user in _readers(owners):
        post_mail([user], letter(each, owners[user.pk], key), tenant=tenant, now=now)


def _readers(owners: Iterable[int]) -> Iterable[User]:
    """Owners, but for those who chose to get no mail."""
    silent = Q(mail_choice__alerts="none")
    return User.objects.filter(pk__in=list(owners)).exclude(silent).order_by("pk")


def _letter_ahead(each: Occurrence, jobs: Sequence[Job], key: str) -> Letter:
    window = each.window
    subject = _("[Muster] {title}: your jobs stop before {at}").format(
        title=window.title, at=_utc(each.starts_at)
    )
    ways = {
        "finish": _("Jobs may finish first; what still runs at the latest time is stopped."),
        "checkpoint": _("Each job is stopped after its last checkpoint before the start."),
        "evict": _("Jobs are stopped at the start."),
    }
    lines = [
        _said(each),
        str(ways[window.running_jobs]),
        _("They go back to their queue and start again elsewhere, or afterwards."),
    ]
    return Letter(KIND, key, subject, _body(lines, jobs))


def _letter_off(each: Occurrence, instead: Span | None, jobs: Sequence[Job], key: str) -> Letter:
    title, at = each.window.title, _utc(each.starts_at)
    if instead is None:
        subject = _("[Muster] {title}: called off").format(title=title)
        lines = [_said(each), _("It does not take place; your jobs run on.")]
    else:
        new = _utc(instead.starts_at)
        subject = _("[Muster] {title}: now {at}").format(title=title, at=new)
        lines = [
            _said(each),
            _("It does not take place at {at}; the next time is {new} to {end}.").format(
                at=at, new=new, end=_utc(instead.ends_at)
            ),
        ]
    return Letter(KIND_OFF, key, subject, _body(lines, jobs))


def _said(each: Occurrence) -> str:
    return _("Maintenance window “{title}” on {cluster}, {start} to {end} UTC.").format(
        title=each.window.title,
        cluster=each.window.cluster.name,
        start=f"{each.starts_at:%Y-%m-%d %H:%M}",
        end=f"{each.ends_at:%Y-%m-%d %H:%M}",
    )


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _body(lines: Sequence[str], jobs: Iterable[Job]) -> str:
    links = [f"{job.name}: {settings.PUBLIC_URL}/jobs/{job.pk}/" for job in jobs]
    return "\n".join([*lines, "", *links]) + "\n"
