"""Plan: what the planner intends on an axis of time, what fits now, and who had to leave for whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy
from django.views.decorators.http import require_safe

from controlplane.common.amounts import NONE, duration, exact, moment
from controlplane.common.looks import Look
from controlplane.common.pages import seek_page
from controlplane.common.svg import span_axis, span_bar
from queues.models import Cluster, Job
from queues.selectors.jobs import job_of
from scheduler.models import Eviction, EvictionRule
from scheduler.selectors.evictions import eviction_answers, evictions_of, evictions_visible_to
from scheduler.selectors.forecasts import accuracy_of
from scheduler.selectors.gangs import LevelGang, level_gangs
from scheduler.selectors.node_facts import node_facts
from scheduler.selectors.outlook import Bar, outlook
from scheduler.views.health import RULE_WORDS
from tenants.access import Actor
from tenants.views.shell import Frame, page, render_page

# Hours that the axis may show; without a wish the shortest that holds most of what there is.
SPANS = (0.25, 1, 6, 24, 168)
MOST_BARS = 0.75
DAY_HOURS = 24
TICKS = (180, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
MOST_TICKS = 7
BAR_LOOKS = {
    "window": Look("maintenance", pgettext_lazy("plan", "window")),
    "reserved": Look("reserved", pgettext_lazy("plan", "reserved")),
    "booking": Look("pending", pgettext_lazy("plan", "booked")),
    "running": Look("running", pgettext_lazy("plan", "runs")),
    "stopping": Look("stopping", pgettext_lazy("plan", "leaves")),
}
EVICTION_LOOKS = {
    "ordered": Look("pending", pgettext_lazy("eviction", "ordered")),
    "stopping": Look("stopping", pgettext_lazy("eviction", "leaving")),
    "ended": Look("preempted", pgettext_lazy("eviction", "left")),
    "withdrawn": Look("cancelled", pgettext_lazy("eviction", "withdrawn")),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """The time shown: from `start` to `end`, with ticks at whole hours."""

    start: datetime
    end: datetime

    def share(self, at: datetime) -> float:
        """Where on the axis, 0 to 1; beyond either end it is cut off."""
        place = (at - self.start) / (self.end - self.start)
        return min(1.0, max(0.0, place))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Share and words of each tick."""
        span = (self.end - self.start).total_seconds()
        step = next((s for s in TICKS if span / s <= MOST_TICKS), TICKS[-1])
        local = timezone.localtime(self.start)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        past = (local - midnight).total_seconds()
        at = midnight + timedelta(seconds=(past // step + 1) * step)
        found = []
        while at < self.end:
            words = f"{at:%d.%m.}" if step >= 86_400 else f"{at:%H:%M}"
            found.append((self.share(at), words))
            at += timedelta(seconds=step)
        return found


@dataclass(frozen=True, slots=True)
class ShownBar:
    """A bar with its look, words and drawing."""

    bar: Bar
    look: Look
    href: str
    said: str
    svg: SafeString


@require_safe
@page
def plan_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """`?hours=0.25|1|6|24|168`; only the changing part where htmx asks for it."""
    now = timezone.now()
    asked = request.GET.get("hours", "")
    wished = next((span for span in SPANS if f"{span:g}" == asked), None)
    found = outlook(actor, now, now + timedelta(hours=wished or DAY_HOURS))
    bars = [*found.windows, *found.bookings, *found.running]
    hours = wished or fitting_hours(bars, now, SPANS[:-1])
    axis = Axis(now, now + timedelta(hours=hours))
    bars = [bar for bar in bars if bar.starts_at < axis.end]
    context: dict[str, Any] = {
        "hours": f"{hours:g}",
        "spans": [(f"{each:g}", _span_words(each)) for each in SPANS],
        "axis": mark_safe(span_axis(axis.ticks)),
        "bars": [shown_bar(bar, axis) for bar in bars],
        "found": found,
        "gangs": _gangs(),
        "estimates": [
            (cluster, accuracy)
            for cluster in Cluster.objects.order_by("name")
            if (accuracy := accuracy_of(cluster)).starts
        ],
        "evictions": _evictions(
            actor, list(evictions_visible_to(actor).filter(Eviction.OPEN)[:20])
        ),
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_plan.html", context)
    frame = Frame("plan", topics=("plan",))
    return render_page(request, actor, "scheduler/plan.html", context, frame)


def fitting_hours(bars: Sequence[Bar], now: datetime, spans: Sequence[float]) -> float:
    """The shortest of `spans` (rising) in which most of the bars come to their end; the longest when none does."""
    ends = sorted(bar.ends_at for bar in bars if bar.ends_at)
    if not ends:
        return spans[-1]
    most = ends[int((len(ends) - 1) * MOST_BARS)]
    return next((hours for hours in spans if most <= now + timedelta(hours=hours)), spans[-1])


def _span_words(hours: float) -> str:
    if hours < 1:
        return _("{n} min").format(n=round(hours * 60))
    if hours < DAY_HOURS:
        return _("{n} h").format(n=round(hours))
    days = round(hours) // DAY_HOURS
    return ngettext("{n} day", "{n} days", days).format(n=days)


def shown_bar(bar: Bar, axis: Axis) -> ShownBar:
    """A bar on the axis; what never ends reaches its end."""
    look = BAR_LOOKS[bar.kind]
    start, end = axis.share(bar.starts_at), axis.share(bar.ends_at) if bar.ends_at else 1.0
    until = moment(bar.ends_at) if bar.ends_at else _("no end")
    said = f"{moment(bar.starts_at)} – {until}"
    title = f"{bar.name}: {exact(bar.starts_at)} – {exact(bar.ends_at) if bar.ends_at else until}"
    shares = [share for share, _words in axis.ticks]
    svg = span_bar(start, end, f"b-{bar.kind}", shares, title)
    return ShownBar(bar, look, _href(bar), said, mark_safe(svg))


def _href(bar: Bar) -> str:
    if bar.kind in ("window", "reserved"):
        return reverse("window", args=[bar.key])
    return reverse("job", args=[bar.key])


def _gangs() -> list[tuple[Cluster, list[LevelGang]]]:
    found = []
    for cluster in Cluster.objects.order_by("name"):
        levels = list(cluster.levels.order_by("position").values_list("name", flat=True))
        found.append((cluster, level_gangs(node_facts(cluster), levels)))
    return found


@require_safe
@page
def eviction_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Who had to leave, for whom, by which rule, at what cost; newest first."""
    rule = request.GET.get("rule", "")
    rows = evictions_visible_to(actor)
    if rule in EvictionRule.values:
        rows = rows.filter(rule=rule)
    shown, pages = seek_page(request, rows, ("-pk",))
    context = {
        "evictions": _evictions(actor, shown),
        "page": pages,
        "rule": rule,
        "rules": EvictionRule.choices,
    }
    frame = Frame("plan", topics=("plan",))
    return render_page(request, actor, "scheduler/evictions.html", context, frame)


@require_safe
@page
def job_evictions(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    """The evictions of one job and those made for it, as a part of its page; nothing where there are none."""
    job = job_of(actor, job_id)
    answers = evictions_of(actor, job)
    context = {"job": job, "evictions": [_shown(each, job) for each in answers]}
    return render(request, "scheduler/_job_evictions.html", context)


def _evictions(actor: Actor, rows: Sequence[Eviction]) -> list[dict[str, Any]]:
    return [_shown(each) for each in eviction_answers(actor, rows)]


def _shown(answer: dict[str, Any], job: Job | None = None) -> dict[str, Any]:
    """An eviction's answer with looks; `own`: it is this job that leaves."""
    leaver = answer["job"] or {}
    return answer | {
        "look": EVICTION_LOOKS[answer["state"]],
        "rule_word": EvictionRule(answer["rule"]).label,
        "own": job is not None and leaver.get("job") == job.pk,
        "at": _time(answer["ordered_at"]),
        "latest": _time(answer["latest_at"]),
        "facts": _facts(answer["numbers"]),
    }


def _facts(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers that decided, at that moment: those of who leaves against those of who comes, then the others.

    A side that the reader may not see is left open.
    """
    found = []
    left = dict(numbers)
    for key, label in SIDES.items():
        leaves, comes = left.pop(f"victim_{key}", None), left.pop(f"preemptor_{key}", None)
        if leaves is not None or comes is not None:
            sides = {"leaves": _open(leaves), "comes": _open(comes)}
            found.append((str(label), _("{leaves} against {comes}").format(**sides)))
    for key, value in left.items():
        if value is not None and key not in TOLD_ELSEWHERE:
            found.append((str(FACTS.get(key, key.replace("_", " "))), _fact(key, value)))
    return found


def _open(value: Any) -> str:
    return NONE if value is None else str(value)


def _fact(key: str, value: Any) -> str:
    if key.endswith("_seconds"):
        return duration(value)
    if key.endswith("_at"):
        return moment(datetime.fromisoformat(value))
    if key == "rule":
        return str(RULE_WORDS.get(value, value))
    return str(value)


# Numbers of an eviction (scheduler.core.preemption.rules, services): of both sides, and of its own kind.
SIDES: Mapping[str, Any] = {
    "tenant": gettext_lazy("Tenant"),
    "priority": gettext_lazy("Priority"),
    "used_gpus": gettext_lazy("GPUs in use"),
    "nominal_gpus": gettext_lazy("Nominal quota"),
}
TOLD_ELSEWHERE = ("window", "victim_gpus")
FACTS: Mapping[str, Any] = {
    "flavor": gettext_lazy("Flavor"),
    "ran_seconds": gettext_lazy("Had run"),
    "starts_at": gettext_lazy("Window starts"),
    "node": gettext_lazy("Node"),
    "rule": gettext_lazy("Health rule"),
    "xid": gettext_lazy("XID"),
    "from_replicas": gettext_lazy("Replicas before"),
    "to_replicas": gettext_lazy("Replicas after"),
    "gain_seconds": gettext_lazy("Gains"),
}


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
