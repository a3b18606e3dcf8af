"""A simulated kubelet: admits pods, keeps their runs, reports their status and the node's."""

from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal, pod_amounts
from scheduler.simcluster.api.deletion import DeleteOptions, delete_object
from scheduler.simcluster.clock import micro_stamp, stamp
from scheduler.simcluster.kubelet.admission import Refusal, refusal_of
from scheduler.simcluster.kubelet.behaviour import behaviour_of
from scheduler.simcluster.kubelet.run import PodRun
from scheduler.simcluster.nodes.build import status_of
from scheduler.simcluster.nodes.machine import Machine
from scheduler.simcluster.profiles.model import Profile
from scheduler.simcluster.store.index import PodsByNode
from scheduler.simcluster.store.resources import LEASES, NODES, PODS
from scheduler.simcluster.store.store import Key, Stored
from scheduler.simcluster.world import Subject, World

Json = dict[str, Any]
LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_SECONDS = 40
STATUS_SECONDS = 300.0


class Kubelet:
    """The kubelet of one machine."""

    def __init__(self, world: World, machine: Machine, profile: Profile, pods: PodsByNode) -> None:
        self.world, self.machine, self._profile, self._pods = world, machine, profile, pods
        self.runs: dict[str, PodRun] = {}
        self.by_key: dict[Key, PodRun] = {}
        self.used: dict[str, int] = {}
        self.missed = False
        """Whether pods changed while it could not hear of it."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.machine.name

    # Pods.

    def sync(self, key: Key) -> None:
        """Looks at one pod and does what its state asks for."""
        if not self.machine.reachable:
            self.missed = True
            return
        stored = self.world.store.get(PODS, *key)
        known = self.by_key.get(key)
        if known is not None and (stored is None or stored.body["metadata"]["uid"] != known.uid):
            self._forget(known)
            known = None
        if stored is None or stored.body["spec"].get("nodeName") != self.name:
            return
        going = "deletionTimestamp" in stored.body["metadata"]
        if known is None:
            self._meet(stored, going=going)
        elif going:
            self._let_go(known, stored)

    def _meet(self, stored: Stored, *, going: bool) -> None:
        if going:
            self._delete_now(stored)
        elif not is_terminal(stored.body):
            self._admit(stored)

    def _let_go(self, run: PodRun, stored: Stored) -> None:
        run.deleting = True
        if run.done:
            self.finish_deletion(run)
        else:
            run.stop(float(stored.body["metadata"].get("deletionGracePeriodSeconds", 30)))

    def _admit(self, stored: Stored) -> None:
        node = self.world.store.get(NODES, "", self.name)
        if node is None:
            return
        found = refusal_of(stored.body, node.body, self.machine, self.used)
        if isinstance(found, Refusal):
            self._refuse(stored, found)
            return
        draw = self.world.identities.stable("pod", *stored.key, self.name)
        run = PodRun(self, stored.key, stored.body, behaviour_of(stored.body, self._profile, draw))
        self.runs[run.uid] = self.by_key[stored.key] = run
        self.machine.held[run.uid] = found
        self._count(run, 1)
        run.begin()

    def _refuse(self, stored: Stored, refusal: Refusal) -> None:
        now = stamp(self.world.clock.now())
        old = stored.body.get("status") or {}
        status = {
            **old, "phase": "Failed", "reason": refusal.reason,
            "message": f"Pod was rejected: {refusal.message}", "startTime": now,
        }  # fmt: skip
        metadata = stored.body["metadata"]
        subject = Subject("Pod", stored.key[1], stored.key[0], metadata["uid"])
        source = {"component": "kubelet", "host": self.name}
        self.world.record(subject, "Warning", refusal.reason, refusal.message, source)
        self.world.store.put(PODS, {**stored.body, "status": status})

    def _count(self, run: PodRun, sign: int) -> None:
        for name, amount in {**pod_amounts(run.spec), "pods": 1000}.items():
            self.used[name] = self.used.get(name, 0) + sign * amount

    def released(self, run: PodRun) -> None:
        """Gives back what a pod held."""
        if self.machine.held.pop(run.uid, None) is not None:
            self._count(run, -1)

    def _forget(self, run: PodRun) -> None:
        """A pod that is gone from the API: its containers are killed."""
        run.vanish()
        self.released(run)
        self.runs.pop(run.uid, None)
        if self.by_key.get(run.key) is run:
            del self.by_key[run.key]

    def publish(self, run: PodRun) -> None:
        """Writes a run's status, if the API can be reached and the pod is still that pod."""
        if not self.machine.reachable:
            self.missed = True
            return
        stored = self.world.store.get(PODS, *run.key)
        if stored is None or stored.body["metadata"]["uid"] != run.uid:
            return
        old = stored.body.get("status") or {}
        status = run.status(old)
        if status != old:
            self.world.store.put(PODS, {**stored.body, "status": status})

    def finish_deletion(self, run: PodRun) -> None:
        """The last delete, with grace 0, a little after the containers have ended."""
        self.world.timers.after(0.05, lambda: self._remove(run))

    def _remove(self, run: PodRun) -> None:
        if not self.machine.reachable:
            self.missed = True
            return
        stored = self.world.store.get(PODS, *run.key)
        if stored is not None and stored.body["metadata"]["uid"] == run.uid:
            self._delete_now(stored)

    def _delete_now(self, stored: Stored) -> None:
        uid = stored.body["metadata"]["uid"]
        options = DeleteOptions(grace_seconds=0, uid=uid)
        delete_object(self.world, PODS, stored, options)

    def find(self, key: Key) -> PodRun | None:
        """The run of a pod, or None."""
        return self.by_key.get(key)

    # The node.

    def post_status(self) -> None:
        """Writes the Node's status as the machine is now."""
        if not self.machine.reachable:
            return
        stored = self.world.store.get(NODES, "", self.name)
        if stored is None:
            return
        now = self.world.clock.now() + self.machine.clock_skew_seconds
        status = status_of(self.machine, stored.body.get("status") or {}, now)
        self.world.store.put(NODES, {**stored.body, "status": status})

    def renew_lease(self) -> None:
        """The heartbeat: the node's Lease."""
        if not self.machine.reachable:
            return
        node = self.world.store.get(NODES, "", self.name)
        if node is None:
            return
        now = self.world.clock.now() + self.machine.clock_skew_seconds
        spec = {
            "holderIdentity": self.name, "leaseDurationSeconds": LEASE_DURATION_SECONDS,
            "renewTime": micro_stamp(now),
        }  # fmt: skip
        stored = self.world.store.get(LEASES, LEASE_NAMESPACE, self.name)
        if stored is not None:
            self.world.store.put(LEASES, {**stored.body, "spec": spec})
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name,
                 "uid": node.body["metadata"]["uid"]}  # fmt: skip
        metadata = {
            "name": self.name, "namespace": LEASE_NAMESPACE, "uid": self.world.identities.uid(),
            "creationTimestamp": self.world.now_text(), "ownerReferences": [owner],
        }  # fmt: skip
        self.world.store.put(LEASES, {"metadata": metadata, "spec": spec})

    def power_off(self) -> None:
        """The machine goes dark: every container is gone, and nothing is written."""
        self.machine.powered = False
        for run in self.runs.values():
            run.vanish()

    def catch_up(self, *, rebooted: bool) -> None:
        """The kubelet hears of the API again: posts what it knows and looks at all its pods."""
        if rebooted:
            for run in [run for run in self.runs.values() if not run.done]:
                run.lost()
        self.post_status()
        self.renew_lease()
        self.missed = False
        for run in list(self.runs.values()):
            self.publish(run)
        keys = {stored.key for stored in self._pods.on(self.name)}
        for key in sorted(keys | set(self.by_key)):
            self.sync(key)
