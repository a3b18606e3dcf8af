"""A node as seen → the columns of its row: flavor, amounts, domains, why it is out. Pure.

Called by `nodes`. What the columns mean is in `scheduler.models.Node`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.inputs.cluster import OutCause
from scheduler.kube.nodes import OUT_TAINT
from scheduler.kube.seen import NodeSeen, PodSeen, TaintSeen

# A GPU on the PCI bus, whatever Kubernetes is told of it: NFD's labels for NVIDIA and AMD.
PCI_LABELS = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-1002.present",
    "feature.node.kubernetes.io/pci-0380_1002.present",
)
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# The node controller's marks, and ours, for what other columns say already.
MARKS = frozenset(
    {
        UNSCHEDULABLE,
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        OUT_TAINT,
    }
)


@dataclass(frozen=True, slots=True)
class FlavorRule:
    """How a node is recognised as of a flavor."""

    id: int
    resource: str
    label: str
    model: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What a platform admin says of a cluster: mode, managed nodes, levels (name → label)."""

    mode: str
    selector: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    flavors: tuple[FlavorRule, ...] = ()

    @property
    def may_act(self) -> bool:
        """False while Muster only looks."""
        return self.mode != "observe"

    @property
    def may_start(self) -> bool:
        """True while gangs may start."""
        return self.mode == "schedule"


def flavor_of(node: NodeSeen, flavors: Iterable[FlavorRule]) -> FlavorRule | None:
    """The flavor whose model label the node bears; with its resource before without."""
    matching = [f for f in flavors if node.labels.get(f.label) == f.model]
    with_resource = [f for f in matching if f.resource in node.capacity_devices]
    return next(iter(with_resource or matching), None)


def is_managed(node: NodeSeen, policy: Policy) -> bool:
    """True when the node bears all labels of the cluster's selector."""
    return all(node.labels.get(name) == value for name, value in policy.selector.items())


def columns_of(node: NodeSeen, policy: Policy) -> dict[str, Any]:
    """All observed columns of a node's row (not what people want of it)."""
    flavor = flavor_of(node, policy.flavors)
    return {
        "uid": node.uid,
        "boot_id": node.boot_id[:64],
        "flavor_id": flavor.id if flavor else None,
        "managed": is_managed(node, policy),
        "gpus_capacity": node.capacity_devices.get(flavor.resource, 0) if flavor else 0,
        "gpus_allocatable": node.allocatable_devices.get(flavor.resource, 0) if flavor else 0,
        "cpu_millis": node.cpu_millis,
        "memory_mib": node.memory_mib,
        "pods": node.pods,
        "domains": {
            level: node.labels[label]
            for level, label in policy.levels.items()
            if node.labels.get(label)
        },
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        "conditions": _conditions(node),
        "driver": (node.driver or "")[:32],
        "cuda": (node.cuda or "")[:8],
        "ready": node.ready,
        "ready_changed_at": node.ready_since,
        "unschedulable": node.unschedulable,
        "out_causes": out_causes(node, flavor),
        "gone_at": None,
    }


def _conditions(node: NodeSeen) -> dict[str, dict[str, str]]:
    return {
        c.type: {
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "since": c.since.isoformat() if c.since else "",
        }
        for c in node.conditions
    }


def out_causes(node: NodeSeen, flavor: FlavorRule | None) -> list[dict[str, Any]]:
    """Why the node takes no job, the weightiest cause first; empty when it takes jobs."""
    causes: list[dict[str, Any]] = []
    if _has_unseen_gpus(node, flavor):
        causes.append(_cause(OutCause.NO_DEVICE_PLUGIN))
    if not node.ready:
        since = node.ready_since
        causes.append(_cause(OutCause.NOT_READY, since=since.isoformat() if since else None))
    if node.unschedulable or node.deleting:
        causes.append(_cause(OutCause.CORDONED, **_since(cordon_taint(node))))
    keeping_off = next((t for t in node.taints if _keeps_off(t, flavor)), None)
    if keeping_off is not None:
        causes.append(_cause(OutCause.TAINT, taint=_shown(keeping_off), **_since(keeping_off)))
    return causes


def cordon_taint(node: NodeSeen) -> TaintSeen | None:
    """What Kubernetes adds when somebody cordons: it bears the time."""
    return next((t for t in node.taints if t.key == UNSCHEDULABLE), None)


def _since(taint: TaintSeen | None) -> dict[str, str]:
    """Numbers of a cause: since when, where Kubernetes noted it."""
    return {"since": taint.added_at.isoformat()} if taint and taint.added_at else {}


def _cause(code: OutCause, **numbers: Any) -> dict[str, Any]:
    return {"code": code.value, "numbers": numbers}


def _has_unseen_gpus(node: NodeSeen, flavor: FlavorRule | None) -> bool:
    if flavor is not None:
        return flavor.resource not in node.allocatable_devices
    has_gpu = any(node.labels.get(label) == "true" for label in PCI_LABELS)
    return has_gpu and not any(node.allocatable_devices.values())


def _keeps_off(taint: TaintSeen, flavor: FlavorRule | None) -> bool:
    if taint.effect == "PreferNoSchedule" or taint.key in MARKS:
        return False
    # Our pods tolerate the mark that keeps others off GPU nodes.
    return flavor is None or taint.key != flavor.resource


def _shown(taint: TaintSeen) -> str:
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else (f"{taint.key}:{taint.effect}")
    )


def gpus_of(pod: PodSeen, node: NodeSeen | None, policy: Policy) -> int:
    """How many units of its node's flavor a pod takes; of any flavor's resource, on a node
    that is not known."""
    flavor = flavor_of(node, policy.flavors) if node is not None else None
    resources = {flavor.resource} if flavor else {f.resource for f in policy.flavors}
    return sum(amount for name, amount in pod.requests.devices.items() if name in resources)
