"""A minimal default scheduler: places pods that name `default-scheduler`, one by one.

It filters by readiness, taints, node selector and affinity, resources and volumes, and takes the
node with the most free room; it neither preempts nor spreads.
"""

from collections import Counter
from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal, pod_amounts
from scheduler.simcluster.api.podcalls import PodCalls, set_condition
from scheduler.simcluster.clock import stamp
from scheduler.simcluster.controllers.volumes import SELECTED_NODE, WAITS
from scheduler.simcluster.kubelet.admission import affinity_holds, tolerated
from scheduler.simcluster.quantities import milli
from scheduler.simcluster.store.index import PodsByNode
from scheduler.simcluster.store.resources import CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES
from scheduler.simcluster.store.store import DELETED, Change, Key, Stored
from scheduler.simcluster.world import Subject, World

Json = dict[str, Any]
NAME = "default-scheduler"
FIRST_SECONDS, RETRY_SECONDS = 0.05, 5.0


class DefaultScheduler:
    """Binds pods that nobody else does."""

    def __init__(self, world: World, pods: PodsByNode, calls: PodCalls) -> None:
        self._world, self._pods, self._calls = world, pods, calls
        self._waiting: dict[Key, None] = {}
        self._retrying = False
        world.store.listen(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        key = change.now.key
        if change.type == DELETED:
            self._waiting.pop(key, None)
        elif _is_mine(change.now.body) and key not in self._waiting:
            self._waiting[key] = None
            self._world.timers.after(FIRST_SECONDS, lambda: self._try(key))

    def _retry(self) -> None:
        self._retrying = False
        for key in list(self._waiting):
            self._try(key)

    def _try(self, key: Key) -> None:
        stored = self._world.store.get(PODS, *key)
        if stored is None or not _is_mine(stored.body):
            self._waiting.pop(key, None)
            return
        problem = self._volume_problem(stored)
        counts: Counter[str] = Counter()
        best = None if problem else self._best_node(stored, counts)
        if best is not None:
            self._waiting.pop(key, None)
            self._place(stored, best)
            return
        self._explain(stored, problem or _summary(counts))
        if not self._retrying:
            self._retrying = True
            self._world.timers.after(RETRY_SECONDS, self._retry)

    def _best_node(self, stored: Stored, counts: Counter[str]) -> str | None:
        wanted = {**pod_amounts(stored.body["spec"]), "pods": 1000}
        best: tuple[float, str] | None = None
        for (_, name), node in self._world.store.collection(NODES).objects.items():
            problem, room = self._judge(stored.body["spec"], wanted, node)
            if problem:
                counts[problem] += 1
            elif best is None or (-room, name) < best:
                best = (-room, name)
        return None if best is None else best[1]

    def _judge(self, spec: Json, wanted: dict[str, int], node: Stored) -> tuple[str, float]:
        body, name = node.body, node.key[1]
        labels = body["metadata"].get("labels") or {}
        if (body.get("spec") or {}).get("unschedulable"):
            return "node(s) were unschedulable", 0.0
        for taint in (body.get("spec") or {}).get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not tolerated(taint, spec):
                return (
                    f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}",
                    0.0,
                )
        selector = spec.get("nodeSelector") or {}
        if any(labels.get(key) != value for key, value in selector.items()) or not affinity_holds(
            spec, labels, name
        ):
            return "node(s) didn't match Pod's node affinity/selector", 0.0
        if not self._volumes_allow(spec, labels):
            return "node(s) had volume node affinity conflict", 0.0
        return self._room(wanted, node)

    def _room(self, wanted: dict[str, int], node: Stored) -> tuple[str, float]:
        allocatable = (node.body.get("status") or {}).get("allocatable") or {}
        used: Counter[str] = Counter()
        for pod in self._pods.on(node.key[1]):
            if not is_terminal(pod.body):
                used.update({**pod_amounts(pod.body["spec"]), "pods": 1000})
        shares = []
        for name, amount in wanted.items():
            free = milli(allocatable.get(name, "0")) - used[name]
            if amount > free:
                return ("Too many pods" if name == "pods" else f"Insufficient {name}"), 0.0
            if name in ("cpu", "memory"):
                shares.append((free - amount) / max(1, milli(allocatable[name])))
        return "", sum(shares) / len(shares) if shares else 1.0 / (1 + used["pods"])

    def _claims(self, spec: Json) -> list[str]:
        claims = (v.get("persistentVolumeClaim") for v in spec.get("volumes") or [])
        return [claim["claimName"] for claim in claims if claim]

    def _volume_problem(self, stored: Stored) -> str:
        for name in self._claims(stored.body["spec"]):
            claim = self._world.store.get(CLAIMS, stored.key[0], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if (claim.body.get("status") or {}).get("phase") == "Bound":
                continue
            class_ = self._world.store.get(
                STORAGE_CLASSES, "", claim.body["spec"].get("storageClassName") or ""
            )
            if class_ is None or class_.body.get("volumeBindingMode") != WAITS:
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _volumes_allow(self, spec: Json, labels: dict[str, str]) -> bool:
        for name in self._claims(spec):
            for volume in self._world.store.collection(VOLUMES).objects.values():
                reference = volume.body["spec"].get("claimRef") or {}
                required = (volume.body["spec"].get("nodeAffinity") or {}).get("required")
                if reference.get("name") != name or required is None:
                    continue
                affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
                if not affinity_holds({"affinity": {"nodeAffinity": affinity}}, labels, ""):
                    return False
        return True

    def _place(self, stored: Stored, node: str) -> None:
        for name in self._claims(stored.body["spec"]):
            claim = self._world.store.get(CLAIMS, stored.key[0], name)
            if claim is not None and (claim.body.get("status") or {}).get("phase") != "Bound":
                notes = {**(claim.body["metadata"].get("annotations") or {}), SELECTED_NODE: node}
                metadata = {**claim.body["metadata"], "annotations": notes}
                self._world.store.put(CLAIMS, {**claim.body, "metadata": metadata})
        self._calls.assign(stored, node, {})
        text = f"Successfully assigned {stored.key[0]}/{stored.key[1]} to {node}"
        self._event(stored, "Normal", "Scheduled", text)

    def _explain(self, stored: Stored, text: str) -> None:
        total = len(self._world.store.collection(NODES).objects)
        message = f"0/{total} nodes are available: {text}."
        status = stored.body.get("status") or {}
        condition = {
            "type": "PodScheduled", "status": "False", "lastProbeTime": None,
            "lastTransitionTime": stamp(self._world.clock.now()), "reason": "Unschedulable",
            "message": message,
        }  # fmt: skip
        conditions = set_condition(status.get("conditions") or [], condition)
        if conditions != status.get("conditions"):
            new = {**stored.body, "status": {**status, "conditions": conditions}}
            self._world.store.put(PODS, new)
            self._event(stored, "Warning", "FailedScheduling", message)

    def _event(self, stored: Stored, type_: str, reason: str, text: str) -> None:
        subject = Subject("Pod", stored.key[1], stored.key[0], stored.body["metadata"]["uid"])
        self._world.record(subject, type_, reason, text, {"component": NAME})


def _is_mine(body: Json) -> bool:
    spec = body["spec"]
    return (
        spec.get("schedulerName") == NAME
        and not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and "deletionTimestamp" not in body["metadata"]
        and not is_terminal(body)
    )


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {problem}" for problem, count in sorted(counts.items()))
