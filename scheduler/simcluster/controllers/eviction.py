"""Taint-based eviction, and the collection of pods whose node is gone."""

from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal
from scheduler.simcluster.api.deletion import DeleteOptions, delete_object
from scheduler.simcluster.api.podcalls import set_condition
from scheduler.simcluster.clock import Timer, moment_of, stamp
from scheduler.simcluster.kubelet.admission import tolerates
from scheduler.simcluster.store.index import PodsByNode
from scheduler.simcluster.store.resources import NODES, PODS
from scheduler.simcluster.store.store import DELETED, Change, Key, Stored
from scheduler.simcluster.world import Subject, World

Json = dict[str, Any]
ORPHAN_CHECK_SECONDS = 20.0
ORPHAN_SECONDS = 40.0


def mark_disrupted(
    world: World, stored: Stored, reason: str, message: str, phase: str = ""
) -> Stored:
    """Puts the DisruptionTarget condition on a pod, and perhaps a phase."""
    status = stored.body.get("status") or {}
    condition = {
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
        "lastTransitionTime": stamp(world.clock.now()), "reason": reason, "message": message,
    }  # fmt: skip
    new = {**status, "conditions": set_condition(status.get("conditions") or [], condition)}
    if phase:
        new["phase"] = phase
    return world.store.put(PODS, {**stored.body, "status": new})


class TaintEviction:
    """Deletes pods that do not tolerate a NoExecute taint of their node, when their time is up."""

    def __init__(self, world: World, pods: PodsByNode) -> None:
        self._world, self._pods = world, pods
        self._timers: dict[str, Timer] = {}
        world.store.listen(NODES, self._on_node)
        world.store.listen(PODS, self._on_pod)

    def _on_node(self, change: Change) -> None:
        before = [] if change.before is None else no_execute(change.before.body)
        after = [] if change.type == DELETED else no_execute(change.now.body)
        if before != after:
            name = change.now.key[1]
            self._world.timers.after(0, lambda: self._judge_node(name))

    def _on_pod(self, change: Change) -> None:
        if change.type == DELETED:
            self._cancel(change.now.body["metadata"]["uid"])
            return
        node = change.now.body["spec"].get("nodeName")
        before = None if change.before is None else change.before.body["spec"].get("nodeName")
        if node and node != before:
            key = change.now.key
            self._world.timers.after(0, lambda: self._judge_pod(key, node))

    def _judge_node(self, name: str) -> None:
        for stored in self._pods.on(name):
            self._judge_pod(stored.key, name)

    def _judge_pod(self, key: Key, node_name: str) -> None:
        stored, node = (
            self._world.store.get(PODS, *key),
            self._world.store.get(NODES, "", node_name),
        )
        if stored is None:
            return
        uid = stored.body["metadata"]["uid"]
        self._cancel(uid)
        taints = [] if node is None else no_execute(node.body)
        if not taints or "deletionTimestamp" in stored.body["metadata"]:
            return
        due = _eviction_time(stored.body["spec"], taints, self._world.clock.now())
        if due is not None:
            self._timers[uid] = self._world.timers.at(due, lambda: self._evict(key, uid))

    def _cancel(self, uid: str) -> None:
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    def _evict(self, key: Key, uid: str) -> None:
        self._timers.pop(uid, None)
        stored = self._world.store.get(PODS, *key)
        if stored is None or stored.body["metadata"]["uid"] != uid or is_terminal(stored.body):
            return
        subject = Subject("Pod", key[1], key[0], uid)
        text = f"Marking for deletion Pod {key[0]}/{key[1]}"
        source = {"component": "taint-eviction-controller"}
        self._world.record(subject, "Normal", "TaintManagerEviction", text, source)
        stored = mark_disrupted(
            self._world, stored, "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )  # fmt: skip
        delete_object(self._world, PODS, stored, DeleteOptions(uid=uid))


def no_execute(body: Json) -> list[Json]:
    """The NoExecute taints of a node."""
    return [t for t in (body.get("spec") or {}).get("taints") or [] if t["effect"] == "NoExecute"]


def _eviction_time(spec: Json, taints: list[Json], now: float) -> float | None:
    """When a pod must go; None when it may stay for ever."""
    due: float | None = None
    for taint in taints:
        matching = [item for item in spec.get("tolerations") or [] if tolerates(item, taint)]
        if not matching:
            return now
        limits = [item["tolerationSeconds"] for item in matching if "tolerationSeconds" in item]
        if limits:
            added = taint.get("timeAdded")
            start = moment_of(added) if added else now
            end = start + max(0, min(limits))
            due = end if due is None else min(due, end)
    return due


class OrphanedPods:
    """PodGC: pods whose node has been gone for 40 s fail and are removed by force."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, float] = {}
        world.timers.after(ORPHAN_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        now = self._world.clock.now()
        nodes = self._world.store.collection(NODES).objects
        pods = self._world.store.collection(PODS).objects
        missing: set[str] = set()
        for stored in list(pods.values()):
            node = stored.body["spec"].get("nodeName")
            if not node or ("", node) in nodes:
                continue
            missing.add(node)
            if now - self._since.setdefault(node, now) >= ORPHAN_SECONDS:
                self._collect(stored)
        self._since = {node: since for node, since in self._since.items() if node in missing}
        self._world.timers.after(ORPHAN_CHECK_SECONDS, self._check)

    def _collect(self, stored: Stored) -> None:
        uid = stored.body["metadata"]["uid"]
        if not is_terminal(stored.body):
            stored = mark_disrupted(
                self._world, stored, "DeletionByPodGC", "PodGC: node no longer exists", "Failed"
            )
        delete_object(self._world, PODS, stored, DeleteOptions(grace_seconds=0, uid=uid))
