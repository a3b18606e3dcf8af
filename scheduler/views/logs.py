"""The log of one replica as a fragment: of the first that failed unless another is named."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from queues.models import Attempt, Job, Placement
from queues.selectors.jobs import job_of
from queues.selectors.placements import first_failed, was_stopped
from scheduler.services.log_tails import log_tail
from tenants.access import Actor
from tenants.views.shell import page

TROUBLES: dict[str, str | Promise] = {
    "gone": _("Nothing was kept of this replica's log: its pod was gone before it could be read."),
    "never_started": _("The replica never started: there is no log."),
    "not_started": _("The replica has not started yet; its log appears here by itself."),
    "unreachable": _("Kubernetes gives no log at the moment; trying again."),
    "": "",
}


@require_safe
@page
def job_log(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """`?attempt=&role=&replica=`; with `lines` only the lines, for the view that follows."""
    job = job_of(actor, job_id)
    attempt = _attempt(job, request.GET.get("attempt", ""))
    placements = _placements(attempt)
    shown = _chosen(placements, request.GET.get("role", ""), request.GET.get("replica", ""))
    if attempt is None or shown is None:
        return render(request, "scheduler/_log_empty.html", {"job": job})
    context = _context(job, attempt, placements, shown)
    if "lines" in request.GET:
        # Bare: whatever stands round the lines would be seen, and pile up at every refresh.
        return HttpResponse(render_to_string("scheduler/_log_lines.html", context, request).strip())
    return render(request, "scheduler/_log.html", context)


def _attempt(job: Job, wanted: str) -> Attempt | None:
    rows = job.attempts.order_by("-number")
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 9:
        return rows.filter(number=int(wanted)).first()
    return rows.first()


def _placements(attempt: Attempt | None) -> list[Placement]:
    return list(attempt.placements.select_related("role").order_by("rank")) if attempt else []


def _chosen(placements: Sequence[Placement], role: str, replica: str) -> Placement | None:
    """The one named, else the first that failed, else rank 0."""
    for p in placements:
        if replica and str(p.replica) == replica and (not role or p.role.name == role):
            return p
    return first_failed(placements) or (placements[0] if placements else None)


def _context(
    job: Job, attempt: Attempt, placements: Sequence[Placement], shown: Placement
) -> dict[str, Any]:
    tail = log_tail(job, shown, attempt.number)
    failed = first_failed(placements)
    query = {"attempt": attempt.number, "role": shown.role.name, "replica": shown.replica}
    here = reverse("job-log", args=[job.pk])
    return {
        "job": job,
        "attempt": attempt,
        "shown": shown,
        "name": f"{shown.role.name}-{shown.replica}",
        "failed": failed,
        "exit": "cancelled" if was_stopped(shown) else "succeeded",
        "failed_name": f"{failed.role.name}-{failed.replica}" if failed else "",
        "replicas": placements[:512],
        "lines": tail.text.splitlines(),
        "tail": tail,
        "trouble": TROUBLES[tail.trouble],
        "again": f"{here}?{urlencode(query | {'lines': 1})}",
        "here": here,
        "raw": f"/api/v1/jobs/{job.pk}/logs/?{urlencode(query)}",
    }
