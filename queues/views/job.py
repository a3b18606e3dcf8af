"""The page of one job: where it stands, why, where its replicas run, what happened, what can be done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.amounts import duration
from controlplane.common.errors import ApplicationError
from controlplane.common.models import Event
from queues.forms.job import ChangeForm
from queues.lifecycle import Phase
from queues.models import Attempt, Job, Placement
from queues.selectors.jobs import job_of
from queues.selectors.placements import first_failed, was_stopped
from queues.selectors.waiting import waiting_of
from queues.services.jobs import change_job
from queues.views.jobs import ACTIONS
from queues.views.rows import JobRow, gpus_of, job_rows, shape_of
from tenants.access import Actor, may_act_on
from tenants.selectors import events_visible_to
from tenants.views.shell import Frame, page, render_page

EVENTS_SHOWN = 100
FOLDED_FROM = 4
# The end of a pod that was stopped, and gone before it said how it ended (scheduler.reconcile.placements).
STOPPED = "Stopped"
RELEASED, TOGETHER = "placement.released", timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job's way. state: done, now or ahead; css colours the present one."""

    word: str
    said: str
    state: str
    css: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """One replica in the grid of ranks, and as a row of the pods' table."""

    placement: Placement
    key: str
    word: str
    failed_first: bool

    @property
    def name(self) -> str:
        """`main-3`."""
        return f"{self.placement.role.name}-{self.placement.replica}"


@dataclass(frozen=True, slots=True)
class Domain:
    """The replicas in one topology domain."""

    name: str
    ranks: Sequence[Rank]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline. `earlier`: reasons that the job had waited for just before, folded away."""

    event: Event
    earlier: Sequence[Event] = ()

    @property
    def first(self) -> Event:
        """The oldest of what is folded away."""
        return self.earlier[-1]


@require_safe
@page
def job_page(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """The whole page."""
    job = job_of(actor, job_id)
    context = _live_part(request, actor, job) | {
        "roles": list(job.roles.all()),
        "spec": _spec(job),
        "api_href": f"/api/v1/jobs/{job.pk}/",
    }
    frame = Frame("queue", tenant=job.tenant, topics=(f"job:{job.pk}",))
    return render_page(request, actor, "queues/job.html", context, frame)


@require_safe
@page
def job_live(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """What changes by itself on the page; fetched again at every nudge."""
    job = job_of(actor, job_id)
    return render(request, "queues/_job_live.html", _live_part(request, actor, job))


@require_POST
@page
def act_on_job(request: HttpRequest, actor: Actor, job_id: str, action: str) -> HttpResponse:
    """Cancel, hold, release; back to the job's page."""
    if action not in ACTIONS:
        raise Http404
    job = job_of(actor, job_id)
    ACTIONS[action](actor, job, request.POST.get("reason", "")[:500], timezone.now())
    messages.success(request, str(_DONE[action]))
    return redirect("job", job.pk)


@require_POST
@page
def change_asked(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """Another priority or time limit; back to the job's page, with what was refused said there."""
    job = job_of(actor, job_id)
    form = ChangeForm(request.POST)
    if not form.is_valid():
        for errors in form.errors.values():
            messages.error(request, str(errors[0]))
        return redirect("job", job.pk)
    try:
        change_job(actor, job, form.changes(), form.cleaned_data["version"], timezone.now())
        messages.success(request, _("The job is changed."))
    except ApplicationError as error:
        messages.error(request, error.lines)
    return redirect("job", job.pk)


def _live_part(request: HttpRequest, actor: Actor, job: Job) -> dict[str, Any]:
    attempts = list(job.attempts.order_by("-number")[:20])
    shown = _chosen(attempts, request.GET.get("attempt", ""))
    placements = _placements(shown)
    ranks = _ranks(placements)
    waiting = waiting_of(actor, [job]).get(job.pk)
    row = job_rows(actor, [job])[0]
    return {
        "job": job,
        "row": row,
        "shape": shape_of(job),
        "gpus": gpus_of(job),
        "steps": _steps(job, shown, placements),
        "attempts": attempts,
        "attempt": shown,
        "ranks": ranks,
        "domains": _by_domain(ranks),
        "first_failed": next((r for r in ranks if r.failed_first), None),
        "others": waiting.reasons[1:] if waiting else (),
        "lines": _lines(_events(actor, job)),
        "change_form": ChangeForm(initial=ChangeForm.values_of(job)),
        "may_act": may_act_on(actor, job.tenant, job.user_id),
        "limit_said": _limit(job),
        "sentence": _sentence(job, row),
    }


def _chosen(attempts: Sequence[Attempt], wanted: str) -> Attempt | None:
    """The attempt named by `?attempt=`, else the last one."""
    asked = next((a for a in attempts if str(a.number) == wanted), None)
    return asked or (attempts[0] if attempts else None)


def _placements(attempt: Attempt | None) -> list[Placement]:
    return list(attempt.placements.select_related("role").order_by("rank")) if attempt else []


def _ranks(placements: Sequence[Placement]) -> list[Rank]:
    first = first_failed(placements)
    return [
        Rank(p, *_replica_state(p), failed_first=first is not None and p.pk == first.pk)
        for p in placements
    ]


def _replica_state(p: Placement) -> tuple[str, str]:
    """Glyph and words of a replica, from what was seen of its pod."""
    if p.exit_code is not None:
        word = _("exit {code}").format(code=p.exit_code)
        glyph = "succeeded" if p.exit_code == 0 else "cancelled" if was_stopped(p) else "failed"
        return glyph, word
    if p.end_reason == STOPPED:
        return "cancelled", _("stopped")
    if p.ended_at or p.gone_at:
        return "node_failure", p.end_reason or _("gone")
    if p.delete_requested_at:
        return "stopping", _("stopping")
    if p.started_at:
        return "running", _("running")
    if p.bound_at:
        return "starting", p.waiting_reason or _("starting")
    return "placed", _("created") if p.created_at else _("placed")


def _by_domain(ranks: Sequence[Rank]) -> list[Domain]:
    """Ranks under their lowest domain, in rank order."""
    groups: dict[str, list[Rank]] = {}
    for rank in ranks:
        domains = rank.placement.domains
        name = domains.get("nvlink") or domains.get("leaf") or domains.get("spine") or ""
        groups.setdefault(str(name), []).append(rank)
    return [Domain(name, members) for name, members in groups.items()]


def _steps(job: Job, attempt: Attempt | None, placements: Sequence[Placement]) -> list[Step]:
    """Submitted, placed, starting, running, ended; each with its time or how long it took."""
    created = min((p.created_at for p in placements if p.created_at), default=None)
    placed = attempt.placed_at if attempt else None
    running = attempt.started_at if attempt else None
    ended = job.finished_at
    times = [job.submitted_at, placed, created, running, ended]
    waits = job.phase in (Phase.PENDING, Phase.HELD)
    if waits:  # an earlier attempt's times say nothing of the one to come
        times = [job.submitted_at, None, None, None, None]
    words = [_("Submitted"), _("Placed"), _("Starting"), _("Running"), _("Ended")]
    now_at = _NOW_AT[Phase(job.phase)]
    steps = []
    for index, (word, at) in enumerate(zip(words, times, strict=True)):
        before = next((t for t in reversed(times[:index]) if t), None)
        state = "now" if index == now_at else "done" if at and index < now_at else "ahead"
        steps.append(
            Step(word, _said(at, before, index), state, _css(job) if state == "now" else "")
        )
    return steps


_NOW_AT = {
    Phase.PENDING: 0,
    Phase.HELD: 0,
    Phase.PLACED: 1,
    Phase.STARTING: 2,
    Phase.RUNNING: 3,
    Phase.STOPPING: 3,
    Phase.FINISHED: 4,
}


def _css(job: Job) -> str:
    return f"st-{job.outcome or job.phase}"


def _said(at: datetime | None, before: datetime | None, index: int) -> str:
    if at is None:
        return ""
    local = f"{timezone.localtime(at):%H:%M:%S}"
    return local if before is None or index == 0 else f"{local} (+{duration(at - before)})"


# Events that wake processes, or that tell what another event has told already.
ECHOES = ("attempt.started", "attempt.pods")


def _events(actor: Actor, job: Job) -> list[Event]:
    """What happened, newest first; of two events that tell the same only the fuller one."""
    rows = events_visible_to(actor).filter(job=job.pk).exclude(kind__in=ECHOES)
    told = [event for event in rows.order_by("-seq")[:EVENTS_SHOWN] if not _is_echo(event)]
    stopped_for = ""
    for event in reversed(told):
        if event.kind == "attempt.stopping":
            stopped_for = event.message
        elif event.kind == "attempt.ended" and event.message == stopped_for:
            event.message = ""  # why is told at the stop, and again as the job's end
    return _released_once(told)


def _released_once(events: Sequence[Event]) -> list[Event]:
    """Pods of one attempt go within moments of each other: they are told in one line, the newest."""
    shown: list[Event] = []
    sums: dict[Any, Event] = {}
    for event in events:
        first = sums.get(event.numbers.get("attempt")) if event.kind == RELEASED else None
        if first is not None and first.at - event.at < TOGETHER:
            first.numbers = first.numbers | {
                key: first.numbers.get(key, 0) + event.numbers.get(key, 0)
                for key in ("pods", "gpus")
            }
            continue
        if event.kind == RELEASED:
            sums[event.numbers.get("attempt")] = event
        shown.append(event)
    return shown


def _lines(events: Sequence[Event]) -> list[Line]:
    """Newest first. A busy queue changes a job's reason every few seconds: of such a run one line is shown."""
    lines: list[Line] = []
    for waits, run in groupby(events, key=lambda event: event.kind == "job.reason"):
        members = list(run)
        if waits and len(members) >= FOLDED_FROM:
            lines.append(Line(members[0], members[1:]))
        else:
            lines += [Line(event) for event in members]
    return lines


def _is_echo(event: Event) -> bool:
    """A phase of which `attempt.placed` or `attempt.stopping` tells more."""
    told = (Phase.PLACED, Phase.STOPPING)
    return event.kind == "job.phase" and event.numbers.get("to") in told


def _limit(job: Job) -> str:
    return duration(job.max_runtime_seconds) if job.max_runtime_seconds else _("none")


def _sentence(job: Job, row: JobRow) -> str:
    """One sentence under the title: what is true of the job right now."""
    if job.phase == Phase.HELD:
        return _("Held: it keeps its age but does not start until it is released.")
    if job.phase == Phase.FINISHED:
        return job.message
    if row.place:
        return row.place
    return ""


def _spec(job: Job) -> list[tuple[str | Promise, Any]]:
    """What was asked, as label and value; empty ones are left out."""
    limit = timedelta(seconds=job.max_runtime_seconds) if job.max_runtime_seconds else None
    asked: Mapping[str, Any] = {
        _("GPU model"): ", ".join(job.gpu_model) or _("any that the queue allows"),
        _("Time limit"): duration(limit) if limit else _("none"),
        _("Restarts"): _("{n} of {most} used").format(n=job.restarts_used, most=job.max_restarts)
        if job.max_restarts
        else _("none"),
        _("Preemption"): _preemption(job),
        _("Checkpoints"): duration(job.checkpoint_interval_seconds)
        if job.checkpoint_interval_seconds
        else "",
        _("Grace"): duration(job.grace_seconds),
        _("Least CUDA"): job.min_cuda,
        _("Working folder"): job.working_dir,
        _("Not before"): f"{timezone.localtime(job.begin_at):%Y-%m-%d %H:%M}"
        if job.begin_at
        else "",
        _("External id"): job.external_id or "",
        _("Environment"): ", ".join(sorted({*job.env, *job.secret_env})),
        _("Volumes"): ", ".join(f"{v['claim']} → {v['mount_path']}" for v in job.volumes),
    }
    return [(label, value) for label, value in asked.items() if value]


def _preemption(job: Job) -> str:
    if not job.preemptible:
        return _("never; runs only inside nominal quota")
    return _("waits again") if job.on_preemption == "requeue" else _("ends the job")


_DONE: Mapping[str, str | Promise] = {
    "cancel": gettext_lazy("The job is being cancelled."),
    "hold": gettext_lazy("The job is held."),
    "release": gettext_lazy("The job waits again."),
    "requeue": gettext_lazy("The job stops with grace and waits for another attempt."),
}
