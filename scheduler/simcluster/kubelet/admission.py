"""Kubelet admission: what a node refuses though a scheduler has bound it there.

After kubernetes pkg/kubelet/lifecycle/predicate.go and cm/devicemanager. An extended resource that
the node has never heard of is dropped from the request: the pod is admitted without it.
"""

from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.admission.amounts import pod_amounts
from scheduler.simcluster.nodes.machine import Device, Machine
from scheduler.simcluster.quantities import milli
from scheduler.simcluster.store.selectors import expression_holds

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod is not admitted."""

    reason: str
    message: str


def refusal_of(
    body: Json, node: Json, machine: Machine, used: dict[str, int]
) -> Refusal | list[Device]:
    """The reason to refuse a pod, or the devices that it gets.

    `used` is what admitted, unfinished pods on the node request, in milli-units.
    """
    spec = body["spec"]
    misplaced = _placement_refusal(spec, node)
    if misplaced is not None:
        return misplaced
    status = node.get("status") or {}
    allocatable: dict[str, str] = status.get("allocatable") or {}
    wanted = {**pod_amounts(spec), "pods": 1000}
    for name in sorted(wanted, key=lambda item: (item != "pods", item)):
        amount = wanted[name]
        if "/" in name and name not in allocatable:
            continue
        capacity = milli(allocatable.get(name, "0"))
        if amount and used.get(name, 0) + amount > capacity:
            return _out_of(name, amount, used.get(name, 0), capacity)
    return _allocate(wanted, machine)


def _out_of(name: str, wanted: int, used: int, capacity: int) -> Refusal:
    scale = 1 if name == "cpu" else 1000
    return Refusal(
        f"OutOf{name}",
        f"Node didn't have enough resource: {name}, requested: {wanted // scale}, "
        f"used: {used // scale}, capacity: {capacity // scale}",
    )


def _allocate(wanted: dict[str, int], machine: Machine) -> Refusal | list[Device]:
    devices: list[Device] = []
    for name, amount in wanted.items():
        if not name.startswith("nvidia.com/"):
            continue
        if (
            not any(device.resource == name for device in machine.devices())
            or machine.plugin == "missing"
        ):
            continue
        count = amount // 1000
        shared = machine.group.time_slices > 1 and machine.group.fail_requests_above_one
        if shared and count > 1:
            return Refusal(
                "UnexpectedAdmissionError",
                "Allocate failed due to rpc error: code = Unknown desc = request for "
                f"'{name}: {count}' too large: maximum request size for shared resources is 1, "
                "which is unexpected",
            )
        free = machine.free_devices(name)
        if count > len(free):
            return Refusal(
                "UnexpectedAdmissionError",
                f"Allocate failed due to requested number of devices unavailable for {name}. "
                f"Requested: {count}, Available: {len(free)}, which is unexpected",
            )
        devices += free[:count]
    return devices


def _placement_refusal(spec: Json, node: Json) -> Refusal | None:
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()) or not affinity_holds(
        spec, labels, metadata["name"]
    ):
        return Refusal(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        )
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["effect"] == "NoExecute" and not tolerated(taint, spec):
            return Refusal(
                "TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taint"
            )
    return None


def affinity_holds(spec: Json, labels: dict[str, str], name: str) -> bool:
    """Whether a node meets a pod's required node affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required.get("nodeSelectorTerms") or []
    return any(_term_holds(term, labels, name) for term in terms)


def _term_holds(term: Json, labels: dict[str, str], name: str) -> bool:
    expressions, on_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not on_fields:
        return False
    fields = {"metadata.name": name}
    return all(expression_holds(item, labels) for item in expressions) and all(
        expression_holds(item, fields) for item in on_fields
    )


def tolerated(taint: Json, spec: Json) -> bool:
    """Whether a pod tolerates a taint."""
    return any(tolerates(item, taint) for item in spec.get("tolerations") or [])


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether one toleration meets one taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key")
    if not key:
        return toleration.get("operator") == "Exists"
    if key != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))
