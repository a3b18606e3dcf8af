"""Now: the first page. Capacity, one's own jobs, and what needs somebody's attention."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from controlplane.common.amounts import duration
from controlplane.common.svg import span_axis
from queues.lifecycle import ACTIVE_PHASES, Outcome, Phase
from queues.models import Cluster, Job
from queues.selectors.jobs import jobs_visible_to
from queues.views.rows import job_rows, with_row_parts
from scheduler.selectors.node_facts import FlavorSum, NodeFacts, flavor_sums, node_facts
from scheduler.selectors.outlook import outlook
from scheduler.views.plan import Axis, fitting_hours, shown_bar
from tenants.access import Actor, Right, may
from tenants.views.shell import Frame, page, render_page

SHOWN = 12
AHEAD = (0.25, 1, 6)
AHEAD_SHOWN = 8
# A planner that has said nothing for so long is a thing to look at (a cycle runs every second).
SILENT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs a person: a glyph, a sentence, and where to go."""

    glyph: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """One cluster's flavors, and the cluster itself."""

    cluster: Cluster
    sums: list[FlavorSum]
    facts: list[NodeFacts]


@require_safe
@page
def now_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The whole page, or its changing part where htmx asks."""
    now = timezone.now()
    jobs = jobs_visible_to(actor)
    clusters = [_cluster_now(c) for c in Cluster.objects.select_related("state").order_by("name")]
    phases = _phases(jobs)
    mine = list(
        with_row_parts(jobs.filter(user=actor.user).exclude(phase=Phase.FINISHED)).order_by("-pk")[
            :SHOWN
        ]
    )
    recent = list(
        with_row_parts(jobs.filter(user=actor.user, phase=Phase.FINISHED)).order_by(
            "-finished_at", "-pk"
        )[:6]
    )
    context: dict[str, Any] = {
        "clusters": clusters,
        "waiting": phases.get(Phase.PENDING, 0),
        "held": phases.get(Phase.HELD, 0),
        "active": sum(phases.get(p, 0) for p in ACTIVE_PHASES),
        "oldest": jobs.filter(phase=Phase.PENDING).aggregate(at=Min("submitted_at"))["at"],
        "rows": job_rows(actor, mine),
        "recent": job_rows(actor, recent),
        "table_css": "compact" if len(actor.memberships) > 1 else "compact one-tenant",
        "needs": _needs(actor, jobs, clusters, now),
        "ahead": _ahead(actor, now),
        "may_submit": any(member.role != "viewer" for member in actor.memberships),
    }
    partial = request.headers.get("HX-Request") == "true"
    topics = ("jobs", *(f"map:{c.cluster.name}" for c in clusters[:4]))
    frame = Frame("now", topics=() if partial else topics)
    template = "scheduler/_now.html" if partial else "scheduler/now.html"
    return render_page(request, actor, template, context, frame)


def _ahead(actor: Actor, now: datetime) -> dict[str, Any]:
    """Windows, bookings and planned ends of the next hours, the first few of them on one axis."""
    until = now + timedelta(hours=AHEAD[-1])
    found = outlook(actor, now, until, most_running=AHEAD_SHOWN)
    soon = [bar for bar in found.running if bar.ends_at and bar.ends_at < until]
    bars = [*found.windows, *found.bookings, *soon][:AHEAD_SHOWN]
    axis = Axis(now, now + timedelta(hours=fitting_hours(bars, now, AHEAD)))
    bars = [bar for bar in bars if bar.starts_at < axis.end]
    return {
        "axis": mark_safe(span_axis(axis.ticks)),
        "bars": [shown_bar(bar, axis) for bar in bars],
    }


def _cluster_now(cluster: Cluster) -> ClusterNow:
    facts = node_facts(cluster)
    return ClusterNow(cluster, flavor_sums(facts), facts)


def _phases(jobs: QuerySet[Job]) -> dict[str, int]:
    unfinished = jobs.exclude(phase=Phase.FINISHED).order_by()
    return dict(unfinished.values_list("phase").annotate(n=Count("pk")))


def _needs(
    actor: Actor, jobs: QuerySet[Job], clusters: Iterable[ClusterNow], now: datetime
) -> list[Need]:
    """What is wrong, worst first; empty when nothing is."""
    found = [need for c in clusters for need in _cluster_needs(c, now)]
    found += _failed(actor, jobs, now) + _never(actor, jobs)
    if may(actor, Right.OPERATE_NODES):
        found += [need for c in clusters for need in _node_needs(c)]
    return found


def _cluster_needs(c: ClusterNow, now: datetime) -> list[Need]:
    state, name = getattr(c.cluster, "state", None), c.cluster.name
    href, found = reverse("cluster-map", args=[name]), []
    if state is None or state.watch == "never":
        text = _("Cluster {name} has not been seen yet: its cluster process is not running.")
        found.append(Need("unplugged", text.format(name=name), href))
    elif state.watch == "unreachable":
        text = _("Cluster {name} does not answer. Running jobs go on; none start.")
        found.append(Need("node_failure", text.format(name=name), href))
    if c.cluster.mode == "paused":
        text = _("Cluster {name} is paused: nothing starts there.")
        found.append(Need("held", text.format(name=name), href))
    if state is not None and state.considered_at and now - state.considered_at > SILENT:
        text = _("The planner of {name} has been silent for {time}.")
        said = text.format(name=name, time=duration(now - state.considered_at))
        found.append(Need("timed_out", said, href))
    return found


def _failed(actor: Actor, jobs: QuerySet[Job], now: datetime) -> list[Need]:
    """One's own jobs that failed within a day."""
    bad = [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.NODE_FAILURE, Outcome.INFEASIBLE]
    since = now - timedelta(days=1)
    n = jobs.filter(user=actor.user, outcome__in=bad, finished_at__gte=since).count()
    if not n:
        return []
    text = ngettext("{n} of your jobs failed today.", "{n} of your jobs failed today.", n)
    return [Need("failed", text.format(n=n), f"{reverse('job-list')}?view=finished&mine=1")]


def _never(actor: Actor, jobs: QuerySet[Job]) -> list[Need]:
    """One's own waiting jobs that no waiting will start."""
    codes = ("exceeds_quota_for_ever", "exceeds_cluster_for_ever")
    stuck = jobs.filter(user=actor.user, phase=Phase.PENDING, reason_code__in=codes)
    return [
        Need(
            "infeasible",
            _("{name} can never start as asked.").format(name=job.name),
            f"{reverse('job', args=[job.pk])}#why",
        )
        for job in stuck.order_by("-pk")[:3]
    ]


def _node_needs(c: ClusterNow) -> list[Need]:
    """Nodes that are out though nobody asked for it, counted by state."""
    needs = []
    for state in ("faulty", "not_ready", "unplugged"):
        n = sum(node.state == state for node in c.facts)
        if n:
            text = {
                "faulty": ngettext("{n} node is faulty.", "{n} nodes are faulty.", n),
                "not_ready": ngettext("{n} node is not ready.", "{n} nodes are not ready.", n),
                "unplugged": ngettext(
                    "{n} node has GPUs that Kubernetes cannot see.",
                    "{n} nodes have GPUs that Kubernetes cannot see.",
                    n,
                ),
            }[state]
            href = f"{reverse('node-list')}?cluster={c.cluster.name}&state={state}"
            needs.append(
                Need(
                    {"faulty": "failed", "not_ready": "node_failure"}.get(state, state),
                    text.format(n=n),
                    href,
                )
            )
    return needs
