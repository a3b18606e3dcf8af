"""Clusters: how fresh our knowledge is, what Muster does there, what is wrong with the nodes, what does not match."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from controlplane.common.looks import Look
from queues.models import Cluster, ClusterMode
from scheduler.lint.findings import SEVERITIES, Finding
from scheduler.lint.run import lint
from scheduler.lint.versions import version_sums
from scheduler.models import Drift, ForeignPod, Node
from scheduler.selectors.lint import lint_sheet
from scheduler.selectors.node_facts import flavor_sums, node_facts
from scheduler.views.maps import cluster_of
from tenants.access import Actor, Right, may
from tenants.selectors import tenants_visible_to
from tenants.views.shell import Frame, page, render_page

PODS_SHOWN = 50
HEALED_SHOWN = 10
NODES_SHOWN = 24
SEVERITY_LOOKS = {
    "error": Look("failed", SEVERITIES["error"]),
    "warning": Look("warning", SEVERITIES["warning"]),
    "advice": Look("info", SEVERITIES["advice"]),
}
WATCH_LOOKS = {
    "never": Look("off", _("never seen")),
    "live": Look("succeeded", _("live")),
    "catching_up": Look("starting", _("catching up")),
    "unreachable": Look("node_failure", _("unreachable")),
}
MODES: dict[str, str | Promise] = {
    ClusterMode.OBSERVE: _("Muster only looks: it starts nothing, changes nothing in Kubernetes."),
    ClusterMode.SCHEDULE: _("Muster starts jobs, and makes Kubernetes agree with its rows."),
    ClusterMode.PAUSED: _("Nothing starts; what runs goes on and is looked after to its end."),
}


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster in the list."""

    cluster: Cluster
    watch: Look
    nodes: int
    gpus: int
    out: int


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """A finding with its looks, and the first of its nodes."""

    finding: Finding
    look: Look
    nodes: Sequence[str]
    more: int
    href: str

    @property
    def key(self) -> str:
        """The same for the same finding at the next look, so that what is open stays open."""
        numbers = self.finding.numbers
        where = [
            str(numbers.get(k)) for k in ("domain", "model", "flavor", "state", "taint", "level")
        ]
        return f"{self.finding.code}-{crc32(':'.join(where).encode()):x}"


@require_safe
@page
def cluster_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every cluster with its state; two queries."""
    out = Q(nodes__gone_at__isnull=True) & ~Q(nodes__out_causes=[])
    here = Q(nodes__gone_at__isnull=True)
    clusters = (
        Cluster.objects.select_related("state")
        .annotate(
            n=Count("nodes", filter=here),
            n_gpus=Sum("nodes__gpus_capacity", filter=here, default=0),
            n_out=Count("nodes", filter=out),
        )
        .order_by("name")
    )
    rows = [ClusterRow(c, watch_look(c), c.n, c.n_gpus, c.n_out) for c in clusters]
    return render_page(request, actor, "scheduler/clusters.html", {"rows": rows}, Frame("clusters"))


def watch_look(cluster: Cluster) -> Look:
    """How fresh what is known of the cluster is."""
    state = getattr(cluster, "state", None)
    return WATCH_LOOKS[state.watch if state is not None else "never"]


@require_safe
@page
def cluster_page(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """One cluster; only its changing part where htmx asks for it."""
    found = cluster_of(cluster)
    context = _live_part(actor, found)
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_cluster_live.html", context)
    context |= {
        "modes": [(value, label, MODES[value]) for value, label in ClusterMode.choices],
        "may_edit": may(actor, Right.EDIT_CATALOGUE),
    }
    frame = Frame("clusters", topics=(f"cluster:{found.name}",))
    return render_page(request, actor, "scheduler/cluster.html", context, frame)


def _live_part(actor: Actor, cluster: Cluster) -> dict[str, Any]:
    sheet = lint_sheet(cluster)
    findings = lint(sheet)
    levels = [
        (name, label, len({n.domains[name] for n in sheet.gpu_nodes if n.domains.get(name)}))
        for name, label in sheet.levels
    ]
    return {
        "cluster": cluster,
        "state": getattr(cluster, "state", None),
        "watch": watch_look(cluster),
        "sums": flavor_sums(node_facts(cluster)),
        "unmanaged": Node.objects.filter(
            cluster=cluster, managed=False, gone_at__isnull=True
        ).count(),
        "findings": [_shown(cluster, each) for each in findings],
        "tally": _tally(findings),
        "versions": version_sums(sheet),
        "levels": levels,
        "gpu_nodes": len(sheet.gpu_nodes),
        "drifts": _drifts(actor, cluster),
    } | _strangers(actor, cluster)


def _shown(cluster: Cluster, finding: Finding) -> ShownFinding:
    href = f"{reverse('node-list')}?cluster={cluster.name}&lint={finding.code}"
    shown = finding.nodes[:NODES_SHOWN]
    more = len(finding.nodes) - len(shown)
    return ShownFinding(finding, SEVERITY_LOOKS[finding.severity], shown, more, href)


def _tally(findings: Sequence[Finding]) -> list[tuple[Look, int]]:
    """How many findings of each severity there are, the gravest first."""
    counts = Counter(finding.severity for finding in findings)
    return [(look, counts[key]) for key, look in SEVERITY_LOOKS.items() if counts[key]]


def _drifts(actor: Actor, cluster: Cluster) -> list[Drift]:
    """What differs between rows and Kubernetes, and what was healed lately; for those who see all tenants."""
    if not actor.sees_all_tenants:
        return []
    rows = Drift.objects.filter(cluster=cluster)
    open_ones = list(rows.filter(healed_at__isnull=True)[:PODS_SHOWN])
    return open_ones + list(rows.filter(healed_at__isnull=False)[:HEALED_SHOWN])


def _strangers(actor: Actor, cluster: Cluster) -> dict[str, Any]:
    """Pods that no placement explains: those with our labels by name, all others in numbers."""
    rows = ForeignPod.objects.filter(cluster=cluster)
    unclaimed = rows.filter(unclaimed=True).order_by("namespace", "name")
    if not may(actor, Right.OPERATE_NODES):
        unclaimed = unclaimed.filter(tenant__in=tenants_visible_to(actor))
    sums = rows.filter(gpus__gt=0, unclaimed=False).aggregate(n=Count("pk"), gpus=Sum("gpus"))
    return {
        "unclaimed": list(unclaimed.select_related("tenant")[:PODS_SHOWN]),
        "foreign_pods": sums["n"],
        "foreign_gpus": sums["gpus"] or 0,
    }
