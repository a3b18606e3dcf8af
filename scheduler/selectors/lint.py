"""The rows of a cluster's nodes as the lint reads them. Called by the cluster page and its REST door."""

from typing import Any

from queues.models import Cluster
from scheduler.lint.findings import Finding
from scheduler.lint.run import lint
from scheduler.lint.sheet import DRIVER_LABEL, PRODUCT_LABEL, LintNode, Sheet
from scheduler.models import Node, NodeWatch

# Kubernetes' own marks and ours speak of states that other pages show; GPU taints are tolerated.
OWN_TAINTS = ("node.kubernetes.io/", "muster.dev/", "nvidia.com/gpu", "amd.com/gpu")
COLUMNS = (
    *("name", "labels", "flavor__name", "gpus_capacity", "gpus_allocatable", "domains"),
    *("driver", "cuda", "out_causes", "ready", "taints"),
)


def lint_sheet(cluster: Cluster) -> Sheet:
    """Managed nodes, levels, flavors and who answers of the exporters: four queries."""
    silent, heard = _exporters(cluster)
    rows = Node.objects.filter(cluster=cluster, managed=True, gone_at__isnull=True).order_by("name")
    return Sheet(
        cluster=cluster.name,
        nodes=[lint_node(row) for row in rows.values(*COLUMNS).iterator(chunk_size=2_000)],
        levels=list(cluster.levels.order_by("position").values_list("name", "node_label")),
        flavors=dict(cluster.flavors.values_list("name", "model")),
        silent=silent,
        heard=heard,
    )


def _exporters(cluster: Cluster) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """(silent, heard) nodes, as the health process last found them; None where it has never looked."""
    rows = NodeWatch.objects.filter(node__cluster=cluster, node__gone_at__isnull=True)
    watches = list(rows.values_list("node__name", "answered_at", "unknown_since"))
    if not watches:
        return None, None
    silent = frozenset(name for name, _, unknown_since in watches if unknown_since)
    heard = frozenset(name for name, answered_at, _ in watches if answered_at)
    return silent, heard - silent


def lint_node(row: dict[str, Any]) -> LintNode:
    """One row's columns as a node of the sheet."""
    return LintNode(
        name=row["name"],
        labels=row["labels"],
        flavor=row["flavor__name"] or "",
        capacity=row["gpus_capacity"],
        allocatable=row["gpus_allocatable"],
        domains=row["domains"],
        driver=row["driver"],
        cuda=row["cuda"],
        unseen=_is_unseen(row),
        ready=row["ready"],
        taints=tuple(_foreign_taints(row["taints"])),
    )


def _is_unseen(row: dict[str, Any]) -> bool:
    """The cluster process says so, or a driver is there and nothing else is known of its GPUs."""
    if any(cause["code"] == "no_device_plugin" for cause in row["out_causes"]):
        return True
    return DRIVER_LABEL in row["labels"] and PRODUCT_LABEL not in row["labels"]


def _foreign_taints(taints: list[dict[str, str]]) -> list[str]:
    return [
        f"{t['key']}={t['value']}:{t['effect']}" if t.get("value") else f"{t['key']}:{t['effect']}"
        for t in taints
        if t["effect"] != "PreferNoSchedule" and not t["key"].startswith(OWN_TAINTS)
    ]


def findings_of(cluster: Cluster) -> list[Finding]:
    """What the lint says of the cluster now."""
    return lint(lint_sheet(cluster))
