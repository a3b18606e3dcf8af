"""A cluster's topology levels: edited by platform admins, with presets and what they would make of the nodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError
from controlplane.common.form_errors import add_refusal
from queues.lifecycle import Phase
from queues.models import Cluster, JobRole
from queues.services.catalogue import change_cluster
from scheduler.forms.levels import LevelsForm
from scheduler.lint import topology
from scheduler.lint.conventions import (
    CLIQUE,
    CONVENTIONS,
    ZONE,
    Convention,
    Levels,
    fitting,
    preview,
)
from scheduler.lint.findings import Finding
from scheduler.lint.sheet import LintNode, Sheet
from scheduler.selectors.lint import lint_sheet
from scheduler.views.maps import cluster_of
from tenants.access import Actor, Right, require
from tenants.views.shell import Frame, page, render_page

LABELS_OFFERED = 60
# Labels of which every node has its own value, or all the same machine facts, name no place.
PLACELESS = ("nvidia.com/", "feature.node.kubernetes.io/", "beta.kubernetes.io/", "kubernetes.io/")


@dataclass(frozen=True, slots=True)
class Offer:
    """A convention, and on how many GPU nodes its labels are found."""

    convention: Convention
    levels: Levels
    nodes: int


@require_http_methods(["GET", "HEAD", "POST"])
@page
def cluster_levels(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """The form; `?preset=` fills it with what fits of a convention."""
    require(actor, Right.EDIT_CATALOGUE)
    found = cluster_of(cluster)
    sheet = lint_sheet(found)
    chosen = next((c for c in CONVENTIONS if c.key == request.GET.get("preset")), None)
    levels = fitting(sheet.nodes, chosen) if chosen else sheet.levels
    form = LevelsForm(
        request.POST or None, initial=LevelsForm.values_of(levels), suggestions="labels"
    )
    if request.method == "POST" and form.is_valid() and _saved(request, actor, found, form):
        return redirect("cluster", cluster)
    shown = form.levels if form.is_bound and form.is_valid() else levels
    context = {
        "cluster": found,
        "form": form,
        "offers": offers(sheet.nodes),
        "chosen": chosen,
        "labels": _labels(sheet.nodes),
    } | _previewed(found, sheet, shown)
    return render_page(request, actor, "scheduler/levels.html", context, Frame("clusters"))


@require_POST
@page
def preview_levels(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """The domains that the levels in the form would make. Nothing is stored."""
    require(actor, Right.EDIT_CATALOGUE)
    found = cluster_of(cluster)
    form = LevelsForm(request.POST)
    levels = form.levels if form.is_valid() else []
    context = _previewed(found, lint_sheet(found), levels)
    return render(request, "scheduler/_levels_preview.html", context)


def _saved(request: HttpRequest, actor: Actor, cluster: Cluster, form: LevelsForm) -> bool:
    version = request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdecimal() else None
    try:
        change_cluster(actor, cluster, form.changes(), seen, timezone.now())
    except ApplicationError as error:
        _place_errors(form, error)
        return False
    messages.success(request, _("The levels are saved; nodes follow within seconds."))
    return True


def _place_errors(form: LevelsForm, error: ApplicationError) -> None:
    for found in error.errors:
        form.add_error(form.pointer_field(found.pointer) or None, found.message)
    if not error.errors:
        add_refusal(form, error)


def offers(nodes: Sequence[LintNode]) -> list[Offer]:
    """Conventions whose labels any GPU node bears, those on the most nodes first."""
    found = []
    for convention in CONVENTIONS:
        levels = fitting(nodes, convention)
        labels = {label for _name, label in levels}
        # A zone or a clique alone is borne under every convention.
        labels -= {ZONE[1], CLIQUE[1]} if convention.key != "kubernetes" else set()
        bearing = sum(1 for node in nodes if node.has_gpu and labels & node.labels.keys())
        if bearing:
            found.append(Offer(convention, levels, bearing))
    return sorted(found, key=lambda offer: (-len(offer.levels), -offer.nodes))


def _labels(nodes: Sequence[LintNode]) -> list[str]:
    """Labels that may name places, those on the most nodes first."""
    borne = Counter(
        label for node in nodes if node.has_gpu for label in node.labels if _names_places(label)
    )
    return [label for label, _n in borne.most_common(LABELS_OFFERED)]


def _names_places(label: str) -> bool:
    return label == "nvidia.com/gpu.clique" or not label.startswith(PLACELESS)


def _previewed(cluster: Cluster, sheet: Sheet, levels: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Domains by level, what the lint would say of them, and who asks for a level that goes."""
    gone = {name for name, _label in sheet.levels} - {name for name, _label in levels}
    return {
        "levels": preview(sheet.nodes, levels),
        "gpu_nodes": len(sheet.gpu_nodes),
        "wrong": _would_find(sheet, levels),
        "asking": _asking(cluster, gone),
    }


def _would_find(sheet: Sheet, levels: Sequence[tuple[str, str]]) -> list[Finding]:
    """What the lint says of the topology, were these the levels."""
    nodes = [
        replace(node, domains={name: node.labels.get(label, "") for name, label in levels})
        for node in sheet.nodes
    ]
    would = replace(sheet, nodes=nodes, levels=levels)
    checks = (topology.missing, topology.clashes, topology.uneven)
    return [finding for check in checks for finding in check(would)]


def _asking(cluster: Cluster, gone: set[str]) -> list[tuple[str, int]]:
    """How many waiting jobs ask for each level that would be gone."""
    if not gone:
        return []
    waiting = JobRole.objects.filter(
        job__queue__cluster=cluster,
        job__phase__in=[Phase.PENDING, Phase.HELD],
        topology_level__in=gone,
        topology_mode="required",
    )
    counts = Counter(waiting.values_list("topology_level", flat=True))
    return sorted(counts.items())
