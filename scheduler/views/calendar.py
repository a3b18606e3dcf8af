"""The calendar of maintenance windows and reservations, the page of one, and the form that makes and changes them."""

from calendar import Calendar
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import pgettext, pgettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.looks import Look
from queues.models import Cluster, Flavor
from scheduler.forms.windows import OccurrenceForm, WindowForm, field_of
from scheduler.maintenance.recurrence import Span
from scheduler.models import MaintenanceWindow, OccurrenceState
from scheduler.selectors.overlaps import full_answers
from scheduler.selectors.topology import domain_names
from scheduler.selectors.windows import (
    recurrence_of,
    spans_of,
    window_answers,
    windows_visible_to,
)
from scheduler.services.departures import outlook_answer
from scheduler.services.proposals import propose
from scheduler.services.window_exceptions import change_occurrence
from scheduler.services.windows import (
    cancel_window,
    change_window,
    create_window,
    finish_window,
    preview_window,
    window_of,
)
from scheduler.views.weeks import HOUR, Happening, bounds_of, columns_of, week_of
from tenants.access import Actor, Right, may, require
from tenants.views.shell import Frame, page, render_page

KINDS = {
    "maintenance": Look("maintenance", pgettext_lazy("window", "maintenance")),
    "reserved": Look("reserved", pgettext_lazy("window", "reserved")),
}
STATES = {
    OccurrenceState.PLANNED: Look("pending", OccurrenceState.PLANNED.label),
    OccurrenceState.NOTICED: Look("placed", OccurrenceState.NOTICED.label),
    OccurrenceState.DRAINING: Look("draining", OccurrenceState.DRAINING.label),
    OccurrenceState.OPEN: Look("maintenance", OccurrenceState.OPEN.label),
    OccurrenceState.CHECKING: Look("starting", OccurrenceState.CHECKING.label),
    OccurrenceState.OVER: Look("succeeded", OccurrenceState.OVER.label),
    OccurrenceState.CANCELLED: Look("cancelled", OccurrenceState.CANCELLED.label),
}
MOST_WINDOWS = 200
WAYS = {
    "ends": pgettext_lazy("departure", "ends by itself"),
    "checkpoint": pgettext_lazy("departure", "leaves after a checkpoint"),
    "evicted": pgettext_lazy("departure", "is made to leave"),
    "stays": pgettext_lazy("departure", "stays as long as it likes"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One occurrence on one day. starts: False where it went on from the day before."""

    window: MaintenanceWindow
    look: Look
    starts_at: datetime
    ends_at: datetime
    starts: bool


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the calendar."""

    date: date
    inside: bool
    today: bool
    entries: Sequence[Entry]


@require_safe
@page
def calendar_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """A month, `?month=2026-11`, or the week of a day, `?day=2026-11-29`. On a narrow screen the days with something on
    them, or that one day."""
    now = timezone.now()
    today = timezone.localdate(now)
    rows = list(_in_force(windows_visible_to(actor))[:MOST_WINDOWS])
    day = _day(request.GET.get("day", ""))
    shown = _week(rows, day, now) if day else _whole_month(request, rows, today)
    context = {
        **shown,
        "today": today,
        "windows": _rows(actor, rows, now),
        "may_operate": may(actor, Right.OPERATE_WINDOWS),
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_calendar.html", context)
    frame = Frame("calendar", topics=("windows",))
    return render_page(request, actor, "scheduler/calendar.html", context, frame)


def _whole_month(
    request: HttpRequest, rows: Sequence[MaintenanceWindow], today: date
) -> dict[str, Any]:
    first = _month(request.GET.get("month", ""), today)
    weeks = Calendar().monthdatescalendar(first.year, first.month)
    return {
        "weeks": _weeks(weeks, rows, first, today),
        "first": first,
        "previous": f"{first - timedelta(days=1):%Y-%m}",
        "next": f"{first + timedelta(days=32):%Y-%m}",
        "near": today if (today.year, today.month) == (first.year, first.month) else first,
    }


def _week(rows: Sequence[MaintenanceWindow], day: date, now: datetime) -> dict[str, Any]:
    days = week_of(day)
    start, end = bounds_of(days)
    happenings = [
        Happening(
            span.starts_at, span.ends_at, row.pk, row.title, which_words(row.nodes),
            KINDS[row.kind], _("moved") if span.moved_from else "",
        )
        for row in rows
        for span in spans_of(row, start, end)
    ]  # fmt: skip
    around = {name: day + timedelta(days=by) for name, by in _STEPS.items()}
    return {
        "columns": columns_of(day, happenings, now),
        "hours": [(hour * HOUR, f"{hour:02}:00") for hour in range(0, 24, 3)],
        "lines": [hour * HOUR for hour in range(1, 24)],
        "height": 24 * HOUR,
        "first": days[0],
        "last": days[-1],
        "day": day,
        **around,
    }


_STEPS = {"week_before": -7, "week_after": 7, "day_before": -1, "day_after": 1}


def _day(asked: str) -> date | None:
    """The day asked for; None where nothing sensible is."""
    try:
        found = date.fromisoformat(asked)
    except ValueError:
        return None
    return found if 2000 < found.year < 2200 else None


def _month(asked: str, today: date) -> date:
    """The first day of the month asked for; of this one where nothing sensible is."""
    try:
        found = datetime.strptime(asked, "%Y-%m").date()  # noqa: DTZ007  a month has no zone
    except ValueError:
        return today.replace(day=1)
    return found if 2000 < found.year < 2200 else today.replace(day=1)


def _in_force(rows: QuerySet[MaintenanceWindow]) -> QuerySet[MaintenanceWindow]:
    return rows.filter(cancelled_at__isnull=True).order_by("starts_at", "pk")


def _weeks(
    weeks: Sequence[Sequence[date]], rows: Sequence[MaintenanceWindow], first: date, today: date
) -> list[list[Day]]:
    """The days of a month, with what happens on each in the reader's zone."""
    zone = timezone.get_current_timezone()
    start = datetime.combine(weeks[0][0], datetime.min.time(), zone)
    end = datetime.combine(weeks[-1][-1], datetime.min.time(), zone) + timedelta(days=1)
    by_day: dict[date, list[Entry]] = {}
    for row in rows:
        for span in spans_of(row, start, end):
            for day, entry in _entries(row, span.starts_at, span.ends_at):
                by_day.setdefault(day, []).append(entry)
    return [
        [
            Day(
                day,
                day.month == first.month,
                day == today,
                sorted(by_day.get(day, ()), key=lambda each: each.starts_at),
            )
            for day in week
        ]
        for week in weeks
    ]


def _entries(
    row: MaintenanceWindow, starts_at: datetime, ends_at: datetime
) -> list[tuple[date, Entry]]:
    """An entry for each day that an occurrence touches, at most a month of them."""
    first = timezone.localtime(starts_at).date()
    last = timezone.localtime(ends_at - timedelta(microseconds=1)).date()
    days = min(42, (last - first).days + 1)
    return [
        (
            first + timedelta(days=number),
            Entry(row, KINDS[row.kind], starts_at, ends_at, number == 0),
        )
        for number in range(days)
    ]


def _rows(actor: Actor, rows: Sequence[MaintenanceWindow], now: datetime) -> list[dict[str, Any]]:
    """Windows with what goes on and what comes next, those that come first on top."""
    shown = [_shown(answer) for answer in window_answers(actor, rows, now, most=2)]
    ahead = [each for each in shown if each["next"]]
    return sorted(ahead, key=lambda each: (each["next"]["starts_at"], each["id"]))


def _shown(answer: Mapping[str, Any]) -> dict[str, Any]:
    occurrences = [_occurrence(each) for each in answer["occurrences"]]
    going = [each for each in occurrences if each["state"] not in ("over", "cancelled")]
    return {
        **answer,
        "look": KINDS[answer["kind"]],
        "occurrences": occurrences,
        "next": going[0] if going else None,
        "where": which_words(answer["nodes"]),
    }


def _occurrence(answer: Mapping[str, Any]) -> dict[str, Any]:
    times = {
        key: datetime.fromisoformat(value)
        for key, value in answer.items()
        if (key.endswith("_at") or key == "occurrence") and value
    }
    checks = {node: check_words(what) for node, what in answer["checks"].items()}
    look = STATES[OccurrenceState(answer["state"])]
    address = _address(times["occurrence"])
    return {**answer, **times, "checks": checks, "look": look, "address": address}


def _address(by_rule: datetime) -> str:
    return f"{by_rule.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def check_words(what: Mapping[str, Any]) -> str:
    """Why a node may not come back yet."""
    words = {
        "not_ready": _("is not ready"),
        "gpus": _("offers {gpus} of {wanted} GPUs"),
        "health": _("its health is worse than before: {health}"),
        "driver_upgrade": _("its driver upgrade is under way: {state}"),
        "unheard": _("was not looked at since the work ended"),
    }
    text = words.get(str(what.get("code")), str(what.get("code")))
    return text.format_map({key: value for key, value in what.items() if key != "code"})


def _with_skipped(shown: Mapping[str, Any], row: MaintenanceWindow, now: datetime) -> list[Any]:
    """All times by their start, those that are skipped among them."""
    ahead = [each["starts_at"] for each in shown["occurrences"]]
    skipped = []
    for each in shown["exceptions"]:
        span = recurrence_of(row).by_rule(datetime.fromisoformat(each["occurrence"]))
        if each["starts_at"] is None and span and span.ends_at > now and ahead:
            skipped.append(
                {
                    "address": _address(span.starts_at),
                    "starts_at": span.starts_at,
                    "ends_at": span.ends_at,
                    "state": "skipped",
                    "look": Look("cancelled", pgettext("window", "skipped")),
                    "told": each["reason"],
                }
            )
    return sorted([*shown["occurrences"], *skipped], key=lambda each: each["starts_at"])


def which_words(nodes: Mapping[str, Any]) -> str:
    """A selector in a few words."""
    parts = [str(each["name"]) for each in nodes.get("domains") or ()]
    names = list(nodes.get("names") or ())
    parts += names[:3] + ([_("{n} more").format(n=len(names) - 3)] if len(names) > 3 else [])
    parts += [f"{key}={value}" for key, value in (nodes.get("labels") or {}).items()]
    parts += [str(nodes["flavor"])] if nodes.get("flavor") else []
    return ", ".join(parts)


@require_safe
@page
def window_page(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """One window: what it asks, each time it happens, how far it is."""
    row = window_of(actor, pk)
    now = timezone.now()
    shown = _shown(full_answers(actor, [row], now, most=12)[0])
    context = {
        "window": row,
        "shown": shown,
        "overlaps": overlaps_in(shown),
        "times": _with_skipped(shown, row, now),
        "changeable": row.rrule and may(actor, Right.OPERATE_WINDOWS) and not row.cancelled_at,
        "going": shown["next"] and shown["next"]["state"] in ("draining", "open"),
        "may_operate": may(actor, Right.OPERATE_WINDOWS) and row.cancelled_at is None,
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_window_live.html", context)
    frame = Frame("calendar", topics=("windows",))
    return render_page(request, actor, "scheduler/window.html", context, frame)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def new_window(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form for a new one; `?cluster=&domain=leaf/leaf-02` fill it."""
    require(actor, Right.OPERATE_WINDOWS)
    form = _form(request, _blank(request))
    if request.method == "POST" and form.is_valid():
        made = _made(request, actor, form)
        if made is not None:
            return redirect("window", made.pk)
    return _form_page(request, actor, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def edit_window(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """The form of one that is there."""
    require(actor, Right.OPERATE_WINDOWS)
    row = window_of(actor, pk)
    form = _form(request, WindowForm.values_of(row))
    if request.method == "POST" and form.is_valid() and _changed(request, actor, row, form):
        return redirect("window", pk)
    return _form_page(request, actor, form, row)


def _form_page(
    request: HttpRequest, actor: Actor, form: WindowForm, row: MaintenanceWindow | None
) -> HttpResponse:
    clusters = [row.cluster] if row else list(Cluster.objects.all())
    context = {"form": form, "window": row, "domain_names": domain_names(clusters)}
    return render_page(request, actor, "scheduler/window_form.html", context, Frame("calendar"))


def _form(request: HttpRequest, initial: Mapping[str, Any]) -> WindowForm:
    return WindowForm(
        request.POST or None,
        initial=dict(initial),
        clusters=list(Cluster.objects.order_by("name").values_list("name", flat=True)),
        flavors=sorted(set(Flavor.objects.values_list("name", flat=True))),
    )


def _blank(request: HttpRequest) -> dict[str, Any]:
    soon = timezone.localtime() + timedelta(days=1)
    return {
        "starts_at": soon.replace(minute=0).strftime("%Y-%m-%dT%H:%M"),
        "lasts": "2h",
        "time_zone": timezone.get_current_timezone_name(),
        "notice_minutes": 60,
        "running_jobs": "checkpoint",
        "crossing": "checkpointable",
        "kind": "maintenance",
        "cluster": request.GET.get("cluster", ""),
        "domains": request.GET.get("domain", ""),
        "names": request.GET.get("node", ""),
    }


def _made(request: HttpRequest, actor: Actor, form: WindowForm) -> MaintenanceWindow | None:
    try:
        row = create_window(actor, form.changes(), timezone.now())
    except ApplicationError as error:
        place_errors(form, error)
        return None
    messages.success(request, _("The window is planned; the planner knows of it from now on."))
    return row


def _changed(request: HttpRequest, actor: Actor, row: MaintenanceWindow, form: WindowForm) -> bool:
    try:
        change_window(actor, row.pk, form.changes(), version_in(request), timezone.now())
    except ApplicationError as error:
        place_errors(form, error)
        return False
    messages.success(request, _("The window is changed."))
    return True


def version_in(request: HttpRequest) -> int | None:
    """The version that the page was made of."""
    version = request.POST.get("version", "")
    return int(version) if version.isascii() and version.isdecimal() else None


def place_errors(form: Any, error: ApplicationError) -> None:
    """Each error at the field of its pointer, the others over the form."""
    for found in error.errors:
        name = field_of(found.pointer)
        form.add_error(name if name in form.fields else None, found.message)
    if not error.errors:
        form.add_error(None, error.sentence)


@require_POST
@page
def window_preview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What the window in the form would do to the jobs that run now. Nothing is stored."""
    require(actor, Right.OPERATE_WINDOWS)
    form = _form(request, {})
    context: dict[str, Any] = {}
    if form.is_valid():
        try:
            found = preview_window(actor, form.changes(), timezone.now())
            context = departures_of(outlook_answer(actor, found))
        except ApplicationError as error:
            place_errors(form, error)
    context["faults"] = faults_of(form)
    return render(request, "scheduler/_departures.html", context)


@require_POST
@page
def window_proposals(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The best times for the nodes and the length in the form, by the planner; a click fills the start in."""
    require(actor, Right.OPERATE_WINDOWS)
    form = _form(request, {})
    form.full_clean()
    sent = form.cleaned_data
    wrong = {"cluster", "domains", "names", "labels", "flavor", "lasts", "time_zone"} & set(
        form.errors
    )
    context: dict[str, Any] = {"faults": [f for f in faults_of(form) if wrong] if wrong else []}
    if not wrong:
        wish = {
            "cluster": sent["cluster"],
            "nodes": form.nodes(),
            "duration_minutes": max(1, (sent["lasts"] or 0) // 60),
            "running_jobs": sent.get("running_jobs") or "checkpoint",
        }
        try:
            found = propose(actor, wish, timezone.now())
            context["times"] = [_proposal(each, sent["time_zone"]) for each in found]
        except ApplicationError as error:
            context["error"] = error
    return render(request, "scheduler/_proposals.html", context)


def _proposal(answer: Mapping[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """A proposed time; `value` is what the form's field takes, on the wall clock of the form's zone."""
    at = datetime.fromisoformat(answer["starts_at"])
    return {
        **answer,
        "at": at,
        "value": at.astimezone(zone).strftime("%Y-%m-%dT%H:%M"),
        "lost": round(answer["lost_gpu_seconds"] / 3600, 1),
    }


def faults_of(form: Any) -> list[tuple[str, str]]:
    """Label and first error of each field that is wrong."""
    return [
        (str(form.fields[name].label) if name in form.fields else "", str(errors[0]))
        for name, errors in form.errors.items()
    ]


def overlaps_in(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The other windows at the same time on the same nodes, their times as moments."""
    return [
        {**each, "starts_at": datetime.fromisoformat(each["starts_at"]),
         "ends_at": datetime.fromisoformat(each["ends_at"])}
        for each in answer["overlaps"]
    ]  # fmt: skip


def departures_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of an outlook in the template's words."""
    jobs = [
        {
            **job,
            "way": WAYS[job["way"]],
            "at": datetime.fromisoformat(job["leaves_at"]) if job["leaves_at"] else None,
            "lost": round(job["lost_gpu_seconds"] / 3600, 1),
        }
        for job in answer["jobs"]
    ]
    empty = answer["empty_at"]
    return {
        "found": answer,
        "overlaps": overlaps_in(answer),
        "jobs": jobs,
        "lost": round(answer["lost_gpu_seconds"] / 3600, 1),
        "empty_at": datetime.fromisoformat(empty) if empty else None,
    }


@require_http_methods(["GET", "HEAD", "POST"])
@page
def occurrence_page(request: HttpRequest, actor: Actor, pk: int, at: str) -> HttpResponse:
    """One time of a series: move it, skip it (`do=skip`), or let it be as the rule says (`do=restore`)."""
    require(actor, Right.OPERATE_WINDOWS)
    row = window_of(actor, pk)
    by_rule = _by_rule(row, at)
    now_at = recurrence_of(row).exceptions.get(by_rule.starts_at, by_rule)
    initial = OccurrenceForm.values_of(row, now_at or by_rule)
    form = OccurrenceForm(request.POST or None, initial=initial, zone=ZoneInfo(row.time_zone))
    if request.method == "POST" and form.is_valid():
        sent = form.changes(request.POST.get("do", ""))
        version = version_in(request)
        try:
            change_occurrence(actor, pk, by_rule.starts_at, sent, version, timezone.now())
            messages.success(request, _("The time is changed; the others of the series stay."))
            return redirect("window", pk)
        except ApplicationError as error:
            place_errors(form, error)
    context = {"window": row, "form": form, "by_rule": by_rule, "is_now": now_at}
    return render_page(request, actor, "scheduler/occurrence.html", context, Frame("calendar"))


def _by_rule(row: MaintenanceWindow, at: str) -> Span:
    """The time that an address names. Raises NotVisibleError."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        moment = None
    found = recurrence_of(row).by_rule(moment) if moment and moment.tzinfo else None
    if found is None or not row.rrule:
        raise NotVisibleError(_("The window has no occurrence that begins then by its rule."))
    return found


@require_POST
@page
def act_on_window(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """`do=cancel` with a reason, or `do=finish` when the work is done before its time."""
    now, version = timezone.now(), version_in(request)
    try:
        if request.POST.get("do") == "finish":
            finish_window(actor, pk, version, now)
            messages.success(request, _("Its nodes are checked and come back."))
        else:
            reason = request.POST.get("reason", "")[:1000]
            cancel_window(actor, pk, version, reason, now)
            messages.success(request, _("The window is cancelled."))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("window", pk)
