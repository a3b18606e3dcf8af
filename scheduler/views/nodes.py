"""The table of nodes, and the page of one node."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.looks import NODES, node_look
from controlplane.common.models import Event
from controlplane.common.pages import Page
from queues.models import Cluster
from scheduler.forms.health import ReportForm
from scheduler.models import ForeignPod, HealthPolicy, Node, NodeWatch
from scheduler.selectors.gpu_health import gpus_visible_to, node_timeline, timeline_answers
from scheduler.selectors.lint import findings_of
from scheduler.selectors.node_facts import NodeFacts, jobs_on_nodes, node_facts
from scheduler.services.node_reports import report_node
from scheduler.services.nodes import cordon_node, node_of, uncordon_node
from scheduler.views.health import STATES, gpu_look, shown_lines
from scheduler.views.maps import cluster_of
from tenants.access import Actor, Right, may, require
from tenants.selectors import events_visible_to
from tenants.views.shell import Frame, page, render_page

PAGE = 100


@require_safe
@page
def node_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every node with its counts; filters by cluster, state, flavor, domain and name."""
    clusters = list(Cluster.objects.order_by("name"))
    wanted = request.GET.get("cluster", "")
    chosen = [c for c in clusters if not wanted or c.name == wanted]
    facts = [f for c in chosen for f in node_facts(c)]
    filters = {
        k: request.GET.get(k, "").strip() for k in ("cluster", "state", "flavor", "search", "lint")
    }
    names = _found_by_lint(chosen, filters["lint"])
    found = [f for f in facts if _matches(f, filters) and (names is None or f.name in names)]
    shown, pages = _page(request, found)
    jobs = {c.name: jobs_on_nodes(actor, c, [f.name for f in shown]) for c in chosen}
    context = {
        "rows": [(f, _jobs_of(jobs[f.cluster].get(f.name, []))) for f in shown],
        "page": pages,
        "filters": filters,
        "filtered": any(filters.values()),
        "choices": _choices(clusters, facts, filters),
        "total": len(facts),
        "matching": len(found),
    }
    topics = tuple(f"map:{c.name}" for c in chosen[:8])
    return render_page(
        request, actor, "scheduler/nodes.html", context, Frame("nodes", topics=topics)
    )


def _found_by_lint(clusters: Sequence[Cluster], code: str) -> set[str] | None:
    """Names of the nodes that the lint's rule of this code speaks of; None where no rule is asked for."""
    if not code:
        return None
    found = [each for c in clusters for each in findings_of(c) if each.code == code]
    return {name for each in found for name in each.nodes}


def _matches(node: NodeFacts, filters: dict[str, str]) -> bool:
    search = filters["search"].lower()
    named = [node.name.lower(), *(str(d).lower() for d in node.domains.values())]
    return (
        (not filters["state"] or node.state == filters["state"])
        and (not filters["flavor"] or node.flavor == filters["flavor"])
        and (not search or any(search in name for name in named))
    )


def _page(request: HttpRequest, nodes: Sequence[NodeFacts]) -> tuple[list[NodeFacts], Page]:
    """At most a hundred, after the (cluster, name) that `?after=` gives."""
    after = tuple(request.GET.get("after", "").split("/", 1))
    rest = [n for n in nodes if (n.cluster, n.name) > after] if len(after) == 2 else list(nodes)
    shown = rest[:PAGE]
    query = {k: v for k, v in request.GET.items() if k != "after"}
    more = len(rest) > PAGE
    following = (
        urlencode(query | {"after": f"{shown[-1].cluster}/{shown[-1].name}"}) if more else ""
    )
    return shown, Page(
        said=_("{n} of {total} nodes").format(n=len(shown), total=len(nodes)),
        previous=f"?{urlencode(query)}" if len(after) == 2 else "",
        next=f"?{following}" if following else "",
    )


def _jobs_of(placements: Sequence[Any]) -> list[Any]:
    """The different jobs of these placements, in order."""
    return list({p.attempt.job_id: p.attempt.job for p in placements}.values())


def _choices(
    clusters: Sequence[Cluster], facts: Sequence[NodeFacts], filters: dict[str, str]
) -> list[dict[str, Any]]:
    states = sorted({f.state for f in facts})
    flavors = sorted({f.flavor for f in facts if f.flavor})
    shown: list[dict[str, Any]] = [
        {
            "name": "state",
            "label": _("Any state"),
            "options": [(s, NODES[s].word if s in NODES else s) for s in states],
        },
        {"name": "flavor", "label": _("Any flavor"), "options": [(f, f) for f in flavors]},
    ]
    if len(clusters) > 1:
        names = [(c.name, c.name) for c in clusters]
        shown.insert(0, {"name": "cluster", "label": _("Any cluster"), "options": names})
    return [choice | {"value": filters[choice["name"]]} for choice in shown]


@require_safe
@page
def node_page(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """One node: state and cause, what runs there, what it is made of, what happened to it."""
    found = cluster_of(cluster)
    row = Node.objects.filter(cluster=found, name=name).select_related("flavor").first()
    if row is None:
        raise NotVisibleError(_("There is no such node."))
    facts = next(iter(node_facts(found, [name])), None)
    placements = jobs_on_nodes(actor, found, [name]).get(name, [])
    seen = sum(p.gpus for p in placements)
    context = {
        "cluster": found,
        "node": facts,
        "cause": f"{node_look(facts.state).word}: {facts.cause}" if facts and facts.cause else "",
        "row": row,
        "placements": placements,
        "hidden_gpus": max(0, facts.used - seen) if facts else 0,
        "foreign": _foreign(actor, found, name),
        "events": _events(actor, found, name),
        "may_operate": may(actor, Right.OPERATE_NODES),
        "report_form": ReportForm(),
        "has_burn_in": HealthPolicy.objects.filter(cluster=found)
        .exclude(burn_in_image="")
        .exists(),
    } | _health(actor, row)
    frame = Frame("nodes", topics=(f"map:{found.name}",))
    return render_page(request, actor, "scheduler/node.html", context, frame)


def _health(actor: Actor, row: Node) -> dict[str, Any]:
    """How its GPUs are, what befell it, what it waits for."""
    gpus = gpus_visible_to(actor).filter(node=row).order_by("index")
    lines = timeline_answers(actor, list(node_timeline(actor, row)[:40]))
    return {
        "gpus": [(gpu, gpu_look(gpu)) for gpu in gpus],
        "watch": NodeWatch.objects.filter(node=row).first(),
        "health_look": STATES[row.health],
        "lines": shown_lines(lines),
    }


@require_POST
@page
def report(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """An operator reports what was seen of a node; back to its page."""
    require(actor, Right.OPERATE_NODES)
    form = ReportForm(request.POST)
    found = node_of(cluster, name)
    try:
        report_node(actor, found, form.changes() if form.is_valid() else {}, timezone.now())
        messages.success(request, _("Reported; the rules judge it with the rest."))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("node", cluster, name)


@require_POST
@page
def cordon(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """Cordon or uncordon, with the reason; back to the node's page."""
    act = uncordon_node if request.POST.get("do") == "uncordon" else cordon_node
    act(actor, node_of(cluster, name), request.POST.get("reason", ""), timezone.now())
    messages.success(request, _("Done; Kubernetes follows within a second."))
    return redirect("node", cluster, name)


def _foreign(actor: Actor, cluster: Cluster, node: str) -> list[ForeignPod]:
    """Pods of others by name, for operators; everyone else sees their GPUs only."""
    if not may(actor, Right.OPERATE_NODES):
        return []
    return list(ForeignPod.objects.filter(cluster=cluster, node=node).order_by("namespace")[:100])


def _events(actor: Actor, cluster: Cluster, node: str) -> list[Event]:
    rows = events_visible_to(actor).filter(cluster=cluster.name, node=node)
    rows = rows.exclude(kind="node.usage")
    return list(rows.order_by("-seq")[:40])
