"""Node objects of simulated machines, as their kubelets register and report them."""

from typing import Any

from scheduler.simcluster.clock import stamp
from scheduler.simcluster.nodes.labels import node_labels
from scheduler.simcluster.nodes.machine import Machine

Json = dict[str, Any]
KUBELET_VERSION = "v1.34.3"
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_FIXED_INFO = {
    "kernelVersion": "6.8.0-90-generic", "osImage": "Ubuntu 24.04.3 LTS",
    "containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": KUBELET_VERSION,
    "kubeProxyVersion": KUBELET_VERSION, "operatingSystem": "linux",
}  # fmt: skip
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def amounts(machine: Machine) -> tuple[Json, Json]:
    """`capacity` and `allocatable` of a node now."""
    group = machine.group
    memory_kib = group.memory_gib * 1024 * 1024
    plugin_capacity, plugin_allocatable = machine.counts()
    capacity: Json = {
        "cpu": str(group.cpu), "ephemeral-storage": "1833298756Ki", "hugepages-1Gi": "0",
        "hugepages-2Mi": "0", "memory": f"{memory_kib}Ki", "pods": str(group.pods),
    }  # fmt: skip
    allocatable: Json = {
        "cpu": f"{group.cpu * 1000 - 500}m", "ephemeral-storage": "1689568131871",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": f"{memory_kib - 8 * 1024 * 1024}Ki",
        "pods": str(group.pods),
    }  # fmt: skip
    capacity |= {name: str(count) for name, count in plugin_capacity.items()}
    allocatable |= {name: str(count) for name, count in plugin_allocatable.items()}
    return capacity, allocatable


def ready_condition(machine: Machine, now: float) -> Json:
    """What the kubelet says of itself."""
    if machine.ready_problem:
        return {"type": "Ready", "status": "False", "lastHeartbeatTime": stamp(now),
                "lastTransitionTime": stamp(now), "reason": "KubeletNotReady",
                "message": machine.ready_problem}  # fmt: skip
    return {"type": "Ready", "status": "True", "lastHeartbeatTime": stamp(now),
            "lastTransitionTime": stamp(now), "reason": "KubeletReady",
            "message": "kubelet is posting ready status"}  # fmt: skip


def conditions(machine: Machine, old: list[Json], now: float) -> list[Json]:
    """A node's conditions now; foreign ones stay, transition times too where nothing changed."""
    text = stamp(now)
    fresh = [
        {"type": type_, "status": "False", "lastHeartbeatTime": text, "lastTransitionTime": text,
         "reason": reason, "message": message}
        for type_, reason, message in _PRESSURES
    ]  # fmt: skip
    fresh.append(ready_condition(machine, now))
    before = {condition["type"]: condition for condition in old}
    for condition in fresh:
        earlier = before.pop(condition["type"], None)
        if earlier is not None and earlier["status"] == condition["status"]:
            condition["lastTransitionTime"] = earlier.get("lastTransitionTime", text)
    return [*fresh, *before.values()]


def status_of(machine: Machine, old: Json, now: float) -> Json:
    """A node's whole status as its kubelet posts it."""
    capacity, allocatable = amounts(machine)
    arch = machine.gpus[0].model.arch if machine.gpus else "amd64"
    return {
        **old,
        "capacity": capacity,
        "allocatable": allocatable,
        "conditions": conditions(machine, old.get("conditions") or [], now),
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": machine.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": machine.machine_id, "systemUUID": machine.system_uuid,
            "bootID": machine.boot_id, **_FIXED_INFO, "architecture": arch,
        },
    }  # fmt: skip


def node_body(machine: Machine, uid: str, region: str, now: float) -> Json:
    """A node that has just joined and is ready."""
    group = machine.group
    taints = [dict(GPU_TAINT)] if group.taint and machine.gpus else []
    cidr = f"10.{100 + machine.ordinal // 256 % 100}.{machine.ordinal % 256}.0/24"
    spec: Json = {
        "podCIDR": cidr, "podCIDRs": [cidr], "providerID": f"sim://{region}/{machine.name}",
    }  # fmt: skip
    if machine.number in group.cordoned:
        spec["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule",
                       "timeAdded": stamp(now)})  # fmt: skip
    if taints:
        spec["taints"] = taints
    return {
        "metadata": {
            "name": machine.name, "uid": uid, "creationTimestamp": stamp(now),
            "labels": node_labels(machine, region, now),
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": spec,
        "status": status_of(machine, {}, now),
    }  # fmt: skip
