"""Node rows and pods of strangers → `core.Node`. Called by `scheduler.snapshot.warm`.

A node's `foreign` amount has two parts: pods that match no placement (`ForeignPod` rows), and leftovers, which
are placements of an ended attempt that nobody has seen released yet.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.core.inputs.cluster import Node, OutCause
from scheduler.core.resources import NOTHING, Amount
from scheduler.models import ForeignPod
from scheduler.models import Node as NodeRow
from scheduler.selectors.asks import version_pair

_KNOWN_CAUSES = {cause.value: cause for cause in OutCause}

_NODE_FIELDS = (
    "name",
    "flavor_id",
    "managed",
    "gpus_capacity",
    "gpus_allocatable",
    "cpu_millis",
    "memory_mib",
    "pods",
    "domains",
    "labels",
    "cuda",
    "out_causes",
    "cordon_wanted",
    "cordon_source",
    "health",
    "health_closed",
)

# States of health in which a node takes no new pod; the rest of what closes it is in `health_closed`.
_HEALTH_OUT = frozenset({"unhealthy", "draining", "repairing", "burn_in", "joining"})

# What a cordon of ours is to the planner, by who wants it most.
_CAUSE_OF_CORDON = {
    "window": OutCause.WINDOW,
    "health": OutCause.UNHEALTHY,
    "drain": OutCause.DRAINING,
}


@dataclass(frozen=True, slots=True)
class Strangers:
    """What pods without a placement use on one node. `by_tenant` are GPUs in tenants' namespaces."""

    amount: Amount = NOTHING
    by_tenant: tuple[tuple[str, int], ...] = ()


NO_STRANGERS = Strangers()


def read_nodes(
    cluster_id: int, flavor_names: Mapping[int, str], names: Collection[str] | None = None
) -> dict[str, Node]:
    """Nodes that exist, by name, without foreign amounts; only those in `names` where given."""
    rows = NodeRow.objects.filter(cluster_id=cluster_id, gone_at__isnull=True)
    if names is not None:
        rows = rows.filter(name__in=names)
    return {
        row[0]: _node(dict(zip(_NODE_FIELDS, row, strict=True)), flavor_names)
        for row in rows.values_list(*_NODE_FIELDS)
    }


def read_strangers(cluster_id: int, names: Collection[str] | None = None) -> dict[str, Strangers]:
    """What strangers use, by node name."""
    rows = ForeignPod.objects.filter(cluster_id=cluster_id)
    if names is not None:
        rows = rows.filter(node__in=names)
    pods: dict[str, list[tuple[Amount, str | None]]] = defaultdict(list)
    for node, gpus, cpu_millis, memory_mib, tenant in rows.values_list(
        "node", "gpus", "cpu_millis", "memory_mib", "tenant__slug"
    ):
        pods[node].append((Amount(gpus, cpu_millis, memory_mib, pods=1), tenant))
    return {node: _strangers(found) for node, found in pods.items()}


def _strangers(pods: Iterable[tuple[Amount, str | None]]) -> Strangers:
    total = NOTHING
    by_tenant: dict[str, int] = defaultdict(int)
    for amount, tenant in pods:
        total = total + amount
        if tenant is not None and amount.gpus:
            by_tenant[tenant] += amount.gpus
    return Strangers(total, tuple(sorted(by_tenant.items())))


def _node(row: Mapping[str, Any], flavor_names: Mapping[int, str]) -> Node:
    return Node(
        name=row["name"],
        flavor=flavor_names.get(row["flavor_id"]),
        capacity=Amount(
            gpus=row["gpus_allocatable"],
            cpu_millis=row["cpu_millis"],
            memory_mib=row["memory_mib"],
            pods=row["pods"],
        ),
        domains=tuple(sorted(row["domains"].items())),
        outs=out_causes(
            row["out_causes"],
            managed=row["managed"],
            cordon=row["cordon_wanted"],
            source=row["cordon_source"],
            health="unhealthy" if row["health_closed"] else row["health"],
        ),
        labels=tuple(sorted(row["labels"].items())),
        cuda=version_pair(row["cuda"]),
        inventory_gpus=row["gpus_capacity"],
    )


def out_causes(
    stored: list[dict[str, Any]],
    *,
    managed: bool,
    cordon: bool | None,
    source: str = "",
    health: str = "healthy",
) -> tuple[OutCause, ...]:
    """Why a node takes no job: as observed, and at once when somebody has asked for a cordon.

    source: whose cordon speaks; that Kubernetes shows it as a cordon says nothing more. health: its state; a suspect
    node takes no new gang of several nodes.
    """
    causes = {_KNOWN_CAUSES.get(cause["code"], OutCause.UNHEALTHY): None for cause in stored}
    if cordon:
        ours = _CAUSE_OF_CORDON.get(source, OutCause.CORDONED)
        if ours is not OutCause.CORDONED:
            causes.pop(OutCause.CORDONED, None)
        causes.setdefault(ours)
    if health in _HEALTH_OUT:
        causes.setdefault(OutCause.UNHEALTHY)
    elif health == "suspect":
        causes.setdefault(OutCause.SUSPECT)
    if not managed:
        causes.setdefault(OutCause.UNMANAGED)
    return tuple(causes)
