"""The columns that `kubectl get` shows: one function per kind from an object to its cells."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.clock import moment_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: name, type and whether only `-o wide` shows it."""

    name: str
    type: str = "string"
    wide: bool = False
    format: str = ""

    def definition(self) -> Json:
        """As a TableColumnDefinition."""
        return {
            "name": self.name, "type": self.type, "format": self.format, "description": self.name,
            "priority": 1 if self.wide else 0,
        }  # fmt: skip


NAME = Column("Name", format="name")
AGE = Column("Age")
NONE = "<none>"


def age(stamp_text: str | None, now: float) -> str:
    """A duration as kubectl writes it: 5s, 2m3s, 5h, 3d4h."""
    if not stamp_text:
        return "<unknown>"
    seconds = max(0, int(now - moment_of(stamp_text)))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def created(body: Json, now: float) -> str:
    """The age of an object."""
    return age(body["metadata"].get("creationTimestamp"), now)


def node_cells(body: Json, now: float) -> list[Any]:
    """Name, status, roles, age, version, addresses, OS, kernel, runtime."""
    status, spec = body.get("status") or {}, body.get("spec") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "")
    shown = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if ready else "Unknown")
    if spec.get("unschedulable"):
        shown += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = body["metadata"].get("labels") or {}
    roles = sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    info = status.get("nodeInfo") or {}
    return [
        body["metadata"]["name"], shown, ",".join(roles) or NONE, created(body, now),
        info.get("kubeletVersion", ""), addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE), info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


def pod_reason(body: Json) -> str:
    """The STATUS column of a pod."""
    status = body.get("status") or {}
    reason = str(status.get("reason") or status.get("phase", ""))
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for item in reversed(status.get("containerStatuses") or []):
        state = item.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended:
            reason = ended.get("reason") or (
                f"Signal:{ended['signal']}"
                if ended.get("signal")
                else f"ExitCode:{ended['exitCode']}"
            )
    if "deletionTimestamp" in body["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def pod_cells(body: Json, now: float) -> list[Any]:
    """Name, ready, status, restarts, age, IP, node, nominated node, readiness gates."""
    status, spec = body.get("status") or {}, body.get("spec") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(1 for item in containers if item.get("ready"))
    restarts = sum(item.get("restartCount", 0) for item in containers)
    return [
        body["metadata"]["name"], f"{ready}/{len(spec.get('containers') or [])}",
        pod_reason(body), str(restarts), created(body, now), status.get("podIP") or NONE,
        spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE, NONE,
    ]  # fmt: skip


def event_cells(body: Json, now: float) -> list[Any]:
    """Last seen, type, reason, object, …"""
    involved, source = body.get("involvedObject") or {}, body.get("source") or {}
    last = (
        body.get("lastTimestamp")
        or body.get("eventTime")
        or body["metadata"].get("creationTimestamp")
    )
    first = body.get("firstTimestamp") or last
    component = source.get("component") or body.get("reportingComponent", "")
    shown = ", ".join(filter(None, (component, source.get("host", ""))))
    return [
        age(last, now), body.get("type", ""), body.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""), shown, (body.get("message") or "").strip(),
        age(first, now), body.get("count", 1), body["metadata"]["name"],
    ]  # fmt: skip


def namespace_cells(body: Json, now: float) -> list[Any]:
    """Name, status, age."""
    return [
        body["metadata"]["name"],
        (body.get("status") or {}).get("phase", ""),
        created(body, now),
    ]


def service_cells(body: Json, now: float) -> list[Any]:
    """Name, type, cluster IP, external IP, ports, age, selector."""
    spec = body.get("spec") or {}
    ports = ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or [])
    selector = ",".join(f"{k}={v}" for k, v in sorted((spec.get("selector") or {}).items()))
    return [
        body["metadata"]["name"], spec.get("type", ""), spec.get("clusterIP", NONE), NONE,
        ports or NONE, created(body, now), selector or NONE,
    ]  # fmt: skip


def quota_cells(body: Json, now: float) -> list[Any]:
    """Name, requests and limits as used/hard, age."""
    status = body.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    shown = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [text for key, text in shown.items() if key.startswith("limits.")]
    requests = [text for key, text in shown.items() if not key.startswith("limits.")]
    return [body["metadata"]["name"], ", ".join(requests), ", ".join(limits), created(body, now)]


def lease_cells(body: Json, now: float) -> list[Any]:
    """Name, holder, age."""
    holder = (body.get("spec") or {}).get("holderIdentity", "")
    return [body["metadata"]["name"], holder, created(body, now)]


def budget_cells(body: Json, now: float) -> list[Any]:
    """Name, min available, max unavailable, allowed disruptions, age."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return [
        body["metadata"]["name"], str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")), status.get("disruptionsAllowed", 0),
        created(body, now),
    ]  # fmt: skip


def keyed_cells(body: Json, now: float) -> list[Any]:
    """Name, number of keys, age (config maps)."""
    count = len(body.get("data") or {}) + len(body.get("binaryData") or {})
    return [body["metadata"]["name"], count, created(body, now)]


def secret_cells(body: Json, now: float) -> list[Any]:
    """Name, type, number of keys, age."""
    return [
        body["metadata"]["name"],
        body.get("type", ""),
        len(body.get("data") or {}),
        created(body, now),
    ]


def priority_cells(body: Json, now: float) -> list[Any]:
    """Name, value, global default, age, preemption policy."""
    return [
        body["metadata"]["name"], body.get("value", 0), str(body.get("globalDefault", False)).lower(),
        created(body, now), body.get("preemptionPolicy", ""),
    ]  # fmt: skip


def claim_cells(body: Json, now: float) -> list[Any]:
    """Name, status, volume, capacity, access modes, storage class, age."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return [
        body["metadata"]["name"], status.get("phase", ""), spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", ""), ",".join(spec.get("accessModes") or []),
        spec.get("storageClassName", ""), created(body, now),
    ]  # fmt: skip


def created_at_cells(body: Json, now: float) -> list[Any]:
    """Name and creation time."""
    return [body["metadata"]["name"], body["metadata"].get("creationTimestamp", "")]


def plain_cells(body: Json, now: float) -> list[Any]:
    """Name and age: what every kind without columns of its own shows."""
    return [body["metadata"]["name"], created(body, now)]


Cells = Callable[[Json, float], list[Any]]
PLAIN: tuple[tuple[Column, ...], Cells] = ((NAME, AGE), plain_cells)
BY_KIND: dict[str, tuple[tuple[Column, ...], Cells]] = {
    "Node": (
        (NAME, Column("Status"), Column("Roles"), AGE, Column("Version"),
         Column("Internal-IP", wide=True), Column("External-IP", wide=True),
         Column("OS-Image", wide=True), Column("Kernel-Version", wide=True),
         Column("Container-Runtime", wide=True)), node_cells),
    "Pod": (
        (NAME, Column("Ready"), Column("Status"), Column("Restarts"), AGE,
         Column("IP", wide=True), Column("Node", wide=True), Column("Nominated Node", wide=True),
         Column("Readiness Gates", wide=True)), pod_cells),
    "Event": (
        (Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"),
         Column("Subobject", wide=True), Column("Source", wide=True), Column("Message"),
         Column("First Seen", wide=True), Column("Count", "integer", wide=True),
         Column("Name", wide=True, format="name")), event_cells),
    "Namespace": ((NAME, Column("Status"), AGE), namespace_cells),
    "Service": (
        (NAME, Column("Type"), Column("Cluster-IP"), Column("External-IP"), Column("Port(s)"),
         AGE, Column("Selector", wide=True)), service_cells),
    "ResourceQuota": ((NAME, Column("Request"), Column("Limit"), AGE), quota_cells),
    "Lease": ((NAME, Column("Holder"), AGE), lease_cells),
    "PodDisruptionBudget": (
        (NAME, Column("Min Available"), Column("Max Unavailable"),
         Column("Allowed Disruptions", "integer"), AGE), budget_cells),
    "ConfigMap": ((NAME, Column("Data", "integer"), AGE), keyed_cells),
    "Secret": ((NAME, Column("Type"), Column("Data", "integer"), AGE), secret_cells),
    "PriorityClass": (
        (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE,
         Column("PreemptionPolicy")), priority_cells),
    "PersistentVolumeClaim": (
        (NAME, Column("Status"), Column("Volume"), Column("Capacity"), Column("Access Modes"),
         Column("StorageClass"), AGE), claim_cells),
    "CustomResourceDefinition": ((NAME, Column("Created At")), created_at_cells),
    "LimitRange": ((NAME, Column("Created At")), created_at_cells),
    "Role": ((NAME, Column("Created At")), created_at_cells),
    "ClusterRole": ((NAME, Column("Created At")), created_at_cells),
}  # fmt: skip
