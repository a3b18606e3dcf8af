"""The node lifecycle controller: heartbeats into conditions, conditions into taints.

A node whose Lease has not changed for the grace period gets Ready=Unknown; nodes that are not ready
or unreachable are tainted, and their pods lose Ready. The controller goes by when *it* saw a lease
change, so that a node with a wrong clock stays ready.
"""

from typing import Any

from scheduler.simcluster.clock import stamp
from scheduler.simcluster.store.index import PodsByNode
from scheduler.simcluster.store.resources import LEASES, NODES, PODS
from scheduler.simcluster.store.store import DELETED, Change, Stored
from scheduler.simcluster.world import Subject, World

Json = dict[str, Any]
CHECK_SECONDS = 5.0
LEASE_NAMESPACE = "kube-node-lease"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OWN_KEYS = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()}
SOURCE = {"component": "node-controller"}


class NodeLifeController:
    """Watches nodes and leases."""

    def __init__(self, world: World, pods: PodsByNode, grace_seconds: float) -> None:
        self._world, self._pods, self._grace = world, pods, grace_seconds
        self._seen: dict[str, float] = {}
        self._due: set[str] = set()
        world.store.listen(NODES, self._on_node)
        world.store.listen(LEASES, self._on_lease)
        world.timers.after(CHECK_SECONDS, self._check_all)

    def _on_lease(self, change: Change) -> None:
        if change.now.key[0] == LEASE_NAMESPACE and change.type != DELETED:
            self._seen[change.now.key[1]] = self._world.clock.now()

    def _on_node(self, change: Change) -> None:
        name = change.now.key[1]
        if change.type == DELETED:
            self._seen.pop(name, None)
            return
        if change.before is None:
            self._seen[name] = self._world.clock.now()
        if change.before is not None and _heartbeat(change.before.body) != _heartbeat(
            change.now.body
        ):
            self._seen[name] = self._world.clock.now()
        if name not in self._due and _wanted_taints(change.now.body) != _own_taints(
            change.now.body
        ):
            self._due.add(name)
            self._world.timers.after(0.05, lambda: self._set_taints(name))

    def _check_all(self) -> None:
        oldest = self._world.clock.now() - self._grace
        for name in [name for name, seen in self._seen.items() if seen < oldest]:
            self._mark_unknown(name)
        self._world.timers.after(CHECK_SECONDS, self._check_all)

    def _mark_unknown(self, name: str) -> None:
        stored = self._world.store.get(NODES, "", name)
        if stored is None or _ready(stored.body) == "Unknown":
            return
        now = stamp(self._world.clock.now())
        status = stored.body.get("status") or {}
        conditions = [
            {
                **condition, "status": "Unknown", "lastTransitionTime": now,
                "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.",
            }
            if condition["type"] in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
            else condition
            for condition in status.get("conditions") or []
        ]  # fmt: skip
        self._world.store.put(
            NODES, {**stored.body, "status": {**status, "conditions": conditions}}
        )

    def _set_taints(self, name: str) -> None:
        self._due.discard(name)
        stored = self._world.store.get(NODES, "", name)
        if stored is None:
            return
        wanted, present = _wanted_taints(stored.body), _own_taints(stored.body)
        if wanted == present:
            return
        was_ready = not any(key in (NOT_READY, UNREACHABLE) for key, _ in present)
        is_ready = not any(key in (NOT_READY, UNREACHABLE) for key, _ in wanted)
        self._write_taints(stored, wanted)
        if was_ready and not is_ready:
            self._pods_not_ready(name)
        if was_ready != is_ready:
            self._tell(stored, ready=is_ready)

    def _write_taints(self, stored: Stored, wanted: set[tuple[str, str]]) -> None:
        spec = stored.body.get("spec") or {}
        now = stamp(self._world.clock.now())
        kept = [
            taint for taint in spec.get("taints") or []
            if taint["key"] not in _OWN_KEYS or (taint["key"], taint["effect"]) in wanted
        ]  # fmt: skip
        present = {(taint["key"], taint["effect"]) for taint in kept}
        for key, effect in sorted(wanted - present):
            kept.append({"key": key, "effect": effect, "timeAdded": now})
        new = {name: value for name, value in spec.items() if name != "taints"}
        if kept:
            new["taints"] = kept
        self._world.store.put(NODES, {**stored.body, "spec": new})

    def _pods_not_ready(self, name: str) -> None:
        now = stamp(self._world.clock.now())
        for stored in self._pods.on(name):
            status = stored.body.get("status") or {}
            conditions = status.get("conditions") or []
            if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                continue
            changed = [
                {**c, "status": "False", "lastTransitionTime": now} if c["type"] == "Ready" else c
                for c in conditions
            ]
            body = {**stored.body, "status": {**status, "conditions": changed}}
            self._world.store.put(PODS, body)
            subject = Subject("Pod", stored.key[1], stored.key[0], stored.body["metadata"]["uid"])
            self._world.record(subject, "Warning", "NodeNotReady", "Node is not ready", SOURCE)

    def _tell(self, stored: Stored, *, ready: bool) -> None:
        name = stored.key[1]
        reason = "NodeReady" if ready else "NodeNotReady"
        text = f"Node {name} status is now: {reason}"
        subject = Subject("Node", name, uid=stored.body["metadata"]["uid"])
        self._world.record(subject, "Normal", reason, text, SOURCE)


def _heartbeat(body: Json) -> str:
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Ready":
            return str(condition.get("lastHeartbeatTime", ""))
    return ""


def _ready(body: Json) -> str:
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Ready":
            return str(condition["status"])
    return ""


def _own_taints(body: Json) -> set[tuple[str, str]]:
    taints = (body.get("spec") or {}).get("taints") or []
    return {(taint["key"], taint["effect"]) for taint in taints if taint["key"] in _OWN_KEYS}


def _wanted_taints(body: Json) -> set[tuple[str, str]]:
    wanted: set[tuple[str, str]] = set()
    ready = _ready(body)
    if ready == "False":
        wanted |= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    elif ready != "True":
        wanted |= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    if (body.get("spec") or {}).get("unschedulable"):
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    for condition in (body.get("status") or {}).get("conditions") or []:
        key = _PRESSURES.get(condition["type"])
        if key and condition["status"] == "True":
            wanted.add((key, "NoSchedule"))
    return wanted
