"""Answers of the planner as fragments: would this job start, why does that one wait."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.forms import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.amounts import duration, moment
from controlplane.common.errors import ApplicationError, ConflictError, UnavailableError
from controlplane.common.looks import reason_short
from queues.forms.submit import SubmitForm
from queues.models import Job
from queues.selectors.jobs import job_of
from queues.selectors.waiting import Said
from queues.services.validation import validate_job
from queues.specs import JobSpec
from queues.views.submit import bound_form, queues_open_to
from scheduler.selectors.bookings import booking_of
from scheduler.services.whatif import (
    Ahead,
    Check,
    Counterfactual,
    Explanation,
    Likely,
    Simulation,
    explain,
    simulate,
)
from tenants.access import Actor
from tenants.views.shell import page


@require_POST
@page
def job_verdict(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What would become of the job in the form, were it sent now. Nothing is stored."""
    now = timezone.now()
    form, _offer = bound_form(request, actor, queues_open_to(actor))
    context: dict[str, Any] = {}
    spec = _spec(actor, form, now)
    if spec is None:
        context["faults"] = _faults(form)
    else:
        try:
            context |= _shown(simulate(actor, spec, now), spec, now)
        except UnavailableError as error:
            context["error"] = error
    return render(request, "scheduler/_verdict.html", context)


def _spec(actor: Actor, form: SubmitForm, now: datetime) -> JobSpec | None:
    """The job that the form asks for; None with the reasons in the form."""
    if not form.is_valid():
        return None
    try:
        return validate_job(actor, form.payload(), now)
    except ApplicationError as error:
        form.add_refusal(error)
        return None


def _faults(form: SubmitForm) -> list[tuple[BoundField | Mapping[str, str], str]]:
    """Fields that are missing or wrong, with the first thing to say of each."""
    found: list[tuple[BoundField | Mapping[str, str], str]] = []
    for name, errors in form.errors.items():
        field = form[name] if name in form.fields else {"label": "", "html_name": "queue"}
        found.append((field, str(errors[0])))
    return found


def _shown(found: Simulation, spec: JobSpec, now: datetime) -> dict[str, Any]:
    """The verdict in the template's words; nodes grouped under their lowest domain."""
    domains: dict[str, dict[str, int]] = {}
    for seat in found.seats:
        lowest = seat.domains.get("nvlink") or seat.domains.get("leaf") or ""
        nodes = domains.setdefault(lowest, {})
        nodes[seat.node] = nodes.get(seat.node, 0) + seat.gpus
    after = found.quota_after
    limit = timedelta(seconds=spec.max_runtime_seconds) if spec.max_runtime_seconds else None
    begins = found.starts_at if found.verdict != "never" else None
    return {
        "found": found,
        "others": _others(found),
        "shape": " + ".join(f"{r.replicas} × {r.gpus_per_replica}" for r in spec.roles),
        "domains": [(name, sorted(nodes.items())) for name, nodes in sorted(domains.items())],
        "limit": moment((begins or now) + limit) if limit and begins else "",
        "quota_own": after.used - after.borrowed if after else 0,
    }


def _others(found: Simulation) -> list[Said]:
    """What else is in the way on the flavor that the first reason speaks of."""
    if not found.reasons:
        return []
    flavor = found.reasons[0].numbers.get("flavor")
    return [said for said in found.reasons[1:] if said.numbers.get("flavor") in (None, flavor)]


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """A rung of the ladder: one check that does not hold, or those in a row that do (or were not made)."""

    word: str
    ok: bool | None
    said: str = ""


@dataclass(frozen=True, slots=True)
class ShownAhead:
    """A job that goes before; without a name when it is hidden."""

    job: str
    name: str
    gpus: int
    expected_end: datetime | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A change that the planner has tried, in words."""

    words: str
    verdict: str
    starts_at: datetime | None
    likely: Likely | None
    href: str


@require_safe
@page
def job_explanation(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """The ladder of checks, who goes before, and what would make it start."""
    job = job_of(actor, job_id)
    try:
        found = explain(actor, job)
    except UnavailableError as error:
        again = reverse("job-explain", args=[job.pk])
        return render(request, "scheduler/_no_verdict.html", {"error": error, "again": again})
    except ConflictError:
        return HttpResponse("")
    return render(request, "scheduler/_explain.html", _explained(found, job))


def _explained(found: Explanation, job: Job) -> dict[str, Any]:
    jobs = Job.objects.filter(pk__in=[ahead.job for ahead in found.ahead if ahead.job])
    names = dict(jobs.values_list("pk", "name"))
    return {
        "checks": _rungs(found.checks),
        "ahead": [_ahead(ahead, names) for ahead in found.ahead[:8]],
        "trials": [_trial(trial, job) for trial in found.counterfactuals],
        "tried_at": found.tried_at,
        "booking": booking_of(job),
    }


def _ahead(ahead: Ahead, names: Mapping[str, str]) -> ShownAhead:
    name = names.get(ahead.job, "")
    return ShownAhead(ahead.job, name, ahead.gpus, ahead.expected_end)


def _rungs(checks: Sequence[Check]) -> list[ShownCheck]:
    """The ladder in the planner's order. What holds is told in few words; what does not, each by itself."""
    rungs: list[ShownCheck] = []
    for ok, group in groupby(checks, key=lambda check: check.ok):
        members = list(group)
        if ok is False:
            rungs += [ShownCheck(_check_word(check), ok, _missing(check)) for check in members]
        else:
            rungs.append(ShownCheck(", ".join(_check_word(check) for check in members), ok))
    return rungs


def _check_word(check: Check) -> str:
    return str(CHECK_WORDS.get(check.name, (check.name.replace("_", " "), ""))[0])


def _missing(check: Check) -> str:
    """What is missing, for which flavor."""
    reason = CHECK_WORDS.get(check.name, ("", ""))[1]
    said = reason_short(reason, check.numbers) if reason and check.numbers else ""
    flavor = check.numbers.get("flavor")
    return f"{flavor}: {said}" if flavor and said else said


# The planner's checks (scheduler.whatif.explain): their words, and the reason whose numbers they give.
CHECK_WORDS: Mapping[str, tuple[str | Promise, str]] = {
    "cluster": (gettext_lazy("Cluster"), "cluster_paused"),
    "queue": (gettext_lazy("Queue"), "queue_held"),
    "dependencies": (gettext_lazy("Dependencies"), "waiting_for_dependency"),
    "begin_time": (gettext_lazy("Begin time"), "begin_time"),
    "backoff": (gettext_lazy("Back-off"), "backoff"),
    "kubernetes": (gettext_lazy("Kubernetes"), "refused_by_kubernetes"),
    "quota_ceiling": (gettext_lazy("Quota ceiling"), "exceeds_quota_for_ever"),
    "cluster_size": (gettext_lazy("Cluster size"), "exceeds_cluster_for_ever"),
    "limits": (gettext_lazy("Limits"), "user_limit"),
    "quota": (gettext_lazy("Quota"), "waiting_for_quota"),
    "fair_share": (gettext_lazy("Fair share"), "waiting_for_fair_share"),
    "driver": (gettext_lazy("Driver"), "waiting_for_driver"),
    "health": (gettext_lazy("Health"), "unhealthy_nodes"),
    "nodes": (gettext_lazy("Nodes"), "waiting_for_nodes"),
    "topology": (gettext_lazy("Topology"), "waiting_for_topology"),
    "reservations": (gettext_lazy("Reservations"), "waiting_for_reservation"),
    "maintenance": (gettext_lazy("Maintenance"), "waiting_for_maintenance"),
    "priority": (gettext_lazy("Priority"), "higher_priority_ahead"),
    "bookings": (gettext_lazy("Bookings"), "waiting_for_booking"),
}


def _trial(trial: Counterfactual, job: Job) -> Trial:
    """With a link to the form that has the change filled in; a job of several roles is no form's."""
    words = ", ".join(_change(key, value) for key, value in trial.change.items())
    query = urlencode({"from": job.pk, "change": json.dumps(dict(trial.change))})
    href = f"{reverse('job-new')}?{query}" if job.roles.count() == 1 else ""
    return Trial(words, trial.verdict, trial.starts_at, trial.likely, href)


def _change(key: str, value: Any) -> str:
    """One changed field of the contract, in words."""
    if key == "preemptible":
        return _("preemptible")
    if key == "max_runtime_seconds":
        return _("time limit of {span}").format(span=duration(value))
    if key == "topology":
        if isinstance(value, Mapping) and "slice" in value:
            return _("without slices")
        level = value.get("level") if isinstance(value, Mapping) else value
        mode = value.get("mode", "") if isinstance(value, Mapping) else ""
        required = mode == "required"
        text = _("one {level} required") if required else _("one {level} preferred")
        return text.format(level=level) if level else _("no topology")
    if key == "checkpoint" and isinstance(value, Mapping):
        span = duration(value.get("interval_seconds", 0))
        return _("checkpoints every {span}").format(span=span)
    if key == "gpu_model":
        models = value if isinstance(value, str) else ", ".join(map(str, value))
        return _("GPU model {models}").format(models=models)
    if not value and key in _WITHOUT:
        return str(_WITHOUT[key])
    known = _CHANGES.get(key)
    return str(known).format(value=value) if known else f"{key.replace('_', ' ')} {value}"


_WITHOUT: Mapping[str, Promise] = {
    "min_cuda": gettext_lazy("any CUDA version"),
    "node_selector": gettext_lazy("any node labels"),
    "exclude_nodes": gettext_lazy("no nodes excluded"),
}
_CHANGES: Mapping[str, Promise] = {
    "replicas": gettext_lazy("{value} replicas"),
    "min_replicas": gettext_lazy("at least {value} replicas"),
    "priority": gettext_lazy("priority {value}"),
    "min_cuda": gettext_lazy("CUDA {value}"),
}
