"""The map of a cluster: spines, leaves, nodes, with a table of the same beside it."""

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.amounts import count
from controlplane.common.errors import NotVisibleError
from controlplane.common.svg import (
    LARGE,
    SMALL,
    MapLeaf,
    MapNode,
    MapSpine,
    node_classes,
    note_id,
    spine_svg,
)
from queues.models import Cluster, ClusterMode
from queues.services.catalogue import change_cluster
from scheduler.selectors.node_facts import NodeFacts, flavor_sums, jobs_on_nodes, node_facts
from scheduler.views.zoom import zoomed
from tenants.access import Actor, Right, may
from tenants.views.shell import Frame, page, render_page

# Up to so many nodes have room for a tile with their GPUs; more are plain squares.
MOST_TILES = 160
LONGEST_SHORT = 7


@require_safe
@page
def first_map(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The map of the only cluster, or of the first by name."""
    cluster = Cluster.objects.order_by("name").first()
    if cluster is None:
        context: dict[str, Any] = {"clusters": []}
        return render_page(request, actor, "scheduler/no_cluster.html", context, Frame("map"))
    return redirect("cluster-map", cluster.name)


@require_safe
@page
def cluster_map(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """One cluster's map; names of jobs are fetched for the node under the pointer alone.

    Nodes are patched one by one (docs/live.md); the numbers beside them are what htmx asks for.
    """
    found = cluster_of(cluster)
    facts = node_facts(found)
    levels = list(found.levels.order_by("position").values_list("name", flat=True))
    if wanted := request.GET.get("zoom", ""):
        return _zoom(request, actor, found, zoomed(actor, found, facts, levels, wanted))
    spines = _spines(facts, levels)
    scale = LARGE if len(facts) <= MOST_TILES else SMALL
    notes = [(note_id(s.name), s.note) for s in spines]
    notes += [(note_id(s.name, leaf.name), leaf.note) for s in spines for leaf in s.leaves]
    counts = {"notes": notes, "sums": flavor_sums(facts), "said": _said(facts)}
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_map_counts.html", counts)
    context = counts | {
        "cluster": found,
        "clusters": list(Cluster.objects.order_by("name").values_list("name", flat=True)),
        "spines": [
            {
                "name": s.name,
                "note": s.note,
                "note_id": note_id(s.name),
                "svg": mark_safe(spine_svg(s, scale)),
            }
            for s in spines
        ],
        "levels": levels,
        "tiles": scale.tiles,
        "modes": ClusterMode.choices,
        "may_edit": may(actor, Right.EDIT_CATALOGUE),
    }
    topics = (f"map:{found.name}",)
    return render_page(request, actor, "scheduler/map.html", context, Frame("map", topics=topics))


def _zoom(
    request: HttpRequest, actor: Actor, cluster: Cluster, shown: dict[str, Any]
) -> HttpResponse:
    """One wide domain with its GPUs; the whole map where there is no such domain any more."""
    if not shown:
        return redirect("cluster-map", cluster.name)
    context = shown | {"cluster": cluster}
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_zoom.html", context)
    frame = Frame("map", topics=(f"map:{cluster.name}", "health"))
    return render_page(request, actor, "scheduler/zoom.html", context, frame)


@require_safe
@page
def node_brief(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """A node in two lines: what the map shows beside itself for the node under the pointer."""
    found = cluster_of(cluster)
    facts = next(iter(node_facts(found, [name])), None)
    if facts is None:
        raise NotVisibleError(_("There is no such node."))
    placements = jobs_on_nodes(actor, found, [name]).get(name, [])
    context = {"node": facts, "placements": placements}
    return render(request, "scheduler/_node_brief.html", context)


@require_POST
@page
def set_mode(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """Observe, schedule or pause a cluster; back to its map."""
    found = cluster_of(cluster)
    sent = {"mode": request.POST.get("mode", "")}
    change_cluster(actor, found, sent, None, timezone.now())
    messages.success(request, _("The mode of {name} is changed.").format(name=found.name))
    there = request.GET.get("next", "")
    ours = url_has_allowed_host_and_scheme(there, allowed_hosts={request.get_host()})
    return redirect(there) if ours else redirect("cluster-map", cluster)


def cluster_of(name: str) -> Cluster:
    """The cluster of that name; every signed-in person may know that it exists."""
    found = Cluster.objects.select_related("state").filter(name=name).first()
    if found is None:
        raise NotVisibleError(_("There is no cluster of that name."))
    return found


def map_class(facts: NodeFacts) -> str:
    """The class attribute of a node on the map; the live hub pushes the same."""
    return node_classes(facts.state, facts.used + facts.foreign, facts.capacity)


def _spines(facts: Sequence[NodeFacts], levels: Sequence[str]) -> list[MapSpine]:
    """Nodes under the lowest level, that under the one above; names sort, so places are stable."""
    inner = levels[-1] if levels else ""
    outer = levels[-2] if len(levels) > 1 else ""
    start = shared_start([node.name for node in facts])
    tree: dict[str, dict[str, list[NodeFacts]]] = {}
    for node in facts:
        spine = node.domains.get(outer, "") or (node.flavor if not outer else "")
        leaf = node.domains.get(inner, "") or node.flavor
        tree.setdefault(spine, {}).setdefault(leaf, []).append(node)
    return [
        MapSpine(name or _("no {level}").format(level=outer), _leaves(leaves, start), _note(leaves))
        for name, leaves in sorted(tree.items(), key=lambda item: (not item[0], item[0]))
    ]


def shared_start(names: Sequence[str]) -> str:
    """What all names begin with, up to a separator: "gpu-" of gpu-00017 and gpu-00023."""
    start = commonprefix(list(names))  # noqa: RUF071  characters, not folders, are meant
    return start[: max(start.rfind(each) for each in "-._") + 1]


def _leaves(leaves: dict[str, list[NodeFacts]], start: str) -> list[MapLeaf]:
    return [
        MapLeaf(name or _("no domain"), [_map_node(n, start) for n in nodes], _free(nodes))
        for name, nodes in sorted(leaves.items(), key=lambda item: (not item[0], item[0]))
    ]


def _free(nodes: Sequence[NodeFacts]) -> str:
    return _("{n} free").format(n=count(sum(n.free for n in nodes)))


def _note(leaves: dict[str, list[NodeFacts]]) -> str:
    nodes = [node for members in leaves.values() for node in members]
    whole = sum(1 for n in nodes if n.is_in and n.free == n.capacity and n.capacity)
    return ngettext("{n} whole node free", "{n} whole nodes free", whole).format(n=whole)


def _map_node(facts: NodeFacts, start: str) -> MapNode:
    short = facts.name.removeprefix(start)
    if len(short) > LONGEST_SHORT:
        short = f"…{short[1 - LONGEST_SHORT :]}"
    return MapNode(
        name=facts.name,
        css=facts.state,
        used=facts.used + facts.foreign,
        gpus=facts.capacity,
        label=facts.name,
        href=reverse("node", args=[facts.cluster, facts.name]),
        short=short,
    )


def _said(facts: Sequence[NodeFacts]) -> str:
    used, free = sum(n.used + n.foreign for n in facts), sum(n.free for n in facts)
    out = sum(n.out for n in facts)
    return _("{used} GPUs in use, {free} free, {out} out").format(
        used=count(used), free=count(free), out=count(out)
    )
