"""Alerts: what somebody should know, and what people answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.looks import Look
from controlplane.common.pages import seek_page
from queues.models import Job
from queues.selectors.jobs import jobs_visible_to
from scheduler.alert_kinds import KINDS
from scheduler.forms.alerts import AcknowledgeForm, ResolveForm, SilenceForm
from scheduler.models import Alert, AlertState, Severity
from scheduler.selectors.alerts import UNRESOLVED, alerts_visible_to, runbook, sentence, title
from scheduler.services.alerts import acknowledge, resolve, silence
from tenants.access import Actor, Right, may
from tenants.views.shell import Frame, page, render_page

SEVERITIES = {each.value: Look(each.value, each.label) for each in Severity}
STATES = {
    AlertState.OPEN: Look("pending", AlertState.OPEN.label),
    AlertState.ACKNOWLEDGED: Look("acknowledged", AlertState.ACKNOWLEDGED.label),
    AlertState.SILENCED: Look("silenced", AlertState.SILENCED.label),
    AlertState.RESOLVED: Look("succeeded", AlertState.RESOLVED.label),
}
TABS: Mapping[str, tuple[str | Promise, list[AlertState]]] = {
    "open": (gettext_lazy("Open"), [AlertState.OPEN]),
    "answered": (gettext_lazy("Answered"), [AlertState.ACKNOWLEDGED, AlertState.SILENCED]),
    "over": (gettext_lazy("Over"), [AlertState.RESOLVED]),
}


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert with its words and looks."""

    alert: Alert
    title: str
    sentence: str
    severity: Look
    state: Look
    runbook: str


def row_of(alert: Alert) -> AlertRow:
    """An alert as the pages show it."""
    return AlertRow(
        alert,
        title(alert),
        sentence(alert),
        SEVERITIES[alert.severity],
        STATES[AlertState(alert.state)],
        runbook(alert),
    )


@require_safe
@page
def alert_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Those that wait for somebody, newest first; `?view=answered|over` for the others."""
    view = request.GET.get("view", "open")
    view = view if view in TABS else "open"
    filters = {key: request.GET.get(key, "").strip()[:253] for key in ("severity", "kind", "node")}
    visible = _filtered(alerts_visible_to(actor), filters)
    shown, pages = seek_page(request, visible.filter(state__in=TABS[view][1]), ("-pk",))
    context = {
        "rows": [row_of(alert) for alert in shown],
        "page": pages,
        "view": view,
        "tabs": _tabs(visible, view),
        "filters": filters,
        "filtered": any(filters.values()),
        "choices": _choices(filters),
        "may_answer": may(actor, Right.ANSWER_ALERTS),
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_alerts.html", context)
    frame = Frame("alerts", topics=("alerts",))
    return render_page(request, actor, "scheduler/alerts.html", context, frame)


def _filtered(alerts: QuerySet[Alert], filters: Mapping[str, str]) -> QuerySet[Alert]:
    return alerts.filter(**{key: value for key, value in filters.items() if value})


def _tabs(visible: QuerySet[Alert], view: str) -> list[dict[str, Any]]:
    """With how many there are; of those that are over only the first thousand are counted."""
    return [
        {
            "key": key,
            "text": text,
            "here": key == view,
            "count": visible.filter(state__in=states).order_by()[:1000].count(),
        }
        for key, (text, states) in TABS.items()
    ]


def _choices(filters: Mapping[str, str]) -> list[dict[str, Any]]:
    kinds = sorted(((key, str(kind.title)) for key, kind in KINDS.items()), key=lambda k: k[1])
    return [
        {
            "name": "severity",
            "label": _("Any severity"),
            "options": [(key, look.word) for key, look in SEVERITIES.items()],
            "value": filters["severity"],
        },
        {"name": "kind", "label": _("Any kind"), "options": kinds, "value": filters["kind"]},
    ]


@require_safe
@page
def alert_page(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """One alert: what was found, who answered, what helps; and the forms to answer."""
    return _shown(request, actor, _alert_of(actor, pk), {})


def _alert_of(actor: Actor, pk: int) -> Alert:
    found = alerts_visible_to(actor).filter(pk=pk).first()
    if found is None:
        raise NotVisibleError(_("There is no such alert."))
    return found


def _shown(
    request: HttpRequest, actor: Actor, alert: Alert, sent: Mapping[str, forms.Form]
) -> HttpResponse:
    blank = {key: form(auto_id=f"{key}_%s") for key, (form, _act) in ANSWERS.items()}
    context = {
        "row": row_of(alert),
        "alert": alert,
        "job": _job(actor, alert.job),
        "numbers": sorted(alert.numbers.items()),
        "forms": blank | dict(sent),
        "may_answer": alert.state in UNRESOLVED and may(actor, Right.ANSWER_ALERTS, alert.tenant),
    }
    frame = Frame("alerts", topics=("alerts",))
    return render_page(request, actor, "scheduler/alert.html", context, frame)


def _job(actor: Actor, job_id: str) -> Job | None:
    return jobs_visible_to(actor).filter(pk=job_id).first() if job_id else None


@require_POST
@page
def answer_alert(request: HttpRequest, actor: Actor, pk: int, answer: str) -> HttpResponse:
    """Acknowledge, silence or resolve; a form with faults comes back with them."""
    if answer not in ANSWERS:
        raise Http404
    alert = _alert_of(actor, pk)
    make, act = ANSWERS[answer]
    form = make(request.POST, auto_id=f"{answer}_%s")
    if not form.is_valid():
        return _shown(request, actor, alert, {answer: form})
    try:
        act(actor, alert, form)
    except ApplicationError as error:
        messages.error(request, error.sentence)
    else:
        messages.success(request, str(DONE[answer]))
    return redirect("alert", pk)


def _acknowledge(actor: Actor, alert: Alert, form: Any) -> None:
    acknowledge(actor, alert, form.cleaned_data["note"], timezone.now())


def _silence(actor: Actor, alert: Alert, form: Any) -> None:
    now = timezone.now()
    silence(actor, alert, now + form.lasts, form.cleaned_data["reason"], now)


def _resolve(actor: Actor, alert: Alert, form: Any) -> None:
    resolve(actor, alert, form.cleaned_data["reason"], timezone.now())


ANSWERS: Mapping[str, tuple[type[forms.Form], Callable[[Actor, Alert, Any], None]]] = {
    "acknowledge": (AcknowledgeForm, _acknowledge),
    "silence": (SilenceForm, _silence),
    "resolve": (ResolveForm, _resolve),
}
DONE: Mapping[str, str | Promise] = {
    "acknowledge": gettext_lazy("The alert is yours."),
    "silence": gettext_lazy("The alert is silenced."),
    "resolve": gettext_lazy("The alert is over."),
}
