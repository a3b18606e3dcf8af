"""One wide domain of the map with every GPU of its nodes, and the jobs that run there. Called by the map's view."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from controlplane.common.looks import node_look
from controlplane.common.svg import ZoomNode, zoom_svg
from queues.models import Cluster
from scheduler.models import Gpu
from scheduler.selectors.gpu_health import gpus_visible_to
from scheduler.selectors.node_facts import NodeFacts, jobs_on_nodes
from tenants.access import Actor

MOST_NODES = 256
CELLS = {"healthy": "", "suspect": "suspect", "unhealthy": "bad", "draining": "bad"}


def zoomed(
    actor: Actor, cluster: Cluster, facts: Sequence[NodeFacts], levels: Sequence[str], name: str
) -> dict[str, Any]:
    """What the page shows of the domain `name` of the level above the lowest; nothing where there is no such one."""
    outer = levels[-2] if len(levels) > 1 else levels[-1] if levels else ""
    inner = levels[-1] if levels else ""
    nodes = [node for node in facts if (node.domains.get(outer) or node.flavor) == name]
    nodes = nodes[:MOST_NODES]
    if not nodes:
        return {}
    names = [node.name for node in nodes]
    gpus: dict[str, dict[int, Gpu]] = {}
    for gpu in gpus_visible_to(actor, cluster.name).filter(node__name__in=names):
        gpus.setdefault(gpu.node.name, {})[gpu.index] = gpu
    leaves: dict[str, list[ZoomNode]] = {}
    for node in nodes:
        leaf = node.domains.get(inner, "") or node.flavor
        leaves.setdefault(leaf, []).append(_node(node, gpus.get(node.name, {})))
    return {
        "zoom": name,
        "leaves": [
            {"name": leaf, "svg": mark_safe(zoom_svg(leaf, members))}
            for leaf, members in sorted(leaves.items())
        ],
        "jobs": _jobs(actor, cluster, names),
        "cut": len(nodes) == MOST_NODES,
    }


def _node(node: NodeFacts, gpus: dict[int, Gpu]) -> ZoomNode:
    """Seats are counted, not GPUs chosen: those in use stand first among the sound ones."""
    bad = {index for index, gpu in gpus.items() if CELLS.get(gpu.state, "bad") == "bad"}
    left = node.used + node.foreign
    cells: list[str] = []
    for index in range(node.capacity):
        css = _cell(index, gpus.get(index), bad, is_in=node.is_in)
        if index not in bad and left > 0:
            css, left = f"on {css}".strip(), left - 1
        cells.append(css or "free")
    said = [f"{node.name}: {node_look(node.state).word}"]
    said += [_("{used} of {n} GPUs in use").format(used=node.used + node.foreign, n=node.capacity)]
    said += [_("GPU {index} is not well").format(index=index) for index in sorted(bad)]
    href = reverse("node", args=[node.cluster, node.name])
    return ZoomNode(node.name, node.state, cells, ", ".join(said), href)


def _cell(index: int, gpu: Gpu | None, bad: set[int], *, is_in: bool) -> str:
    if index in bad:
        return "bad"
    if gpu is not None and gpu.unknown_since is not None:
        return "unknown"
    if gpu is not None and CELLS.get(gpu.state):
        return CELLS[gpu.state]
    return "" if is_in else "out"


def _jobs(actor: Actor, cluster: Cluster, names: Sequence[str]) -> list[dict[str, Any]]:
    """Jobs that hold nodes here, as far as the actor may see them, with the nodes to light up."""
    held: dict[str, dict[str, Any]] = {}
    for node, placements in jobs_on_nodes(actor, cluster, names).items():
        for placement in placements:
            job = placement.attempt.job
            entry = held.setdefault(job.pk, {"job": job, "nodes": [], "gpus": 0})
            entry["gpus"] += placement.gpus
            if node not in entry["nodes"]:
                entry["nodes"].append(node)
    return sorted(held.values(), key=lambda each: (-each["gpus"], each["job"].name))
