"""All kubelets: tells each of changes to its pods, and sends the nodes' heartbeats."""

from scheduler.simcluster.kubelet.node import STATUS_SECONDS, Kubelet
from scheduler.simcluster.nodes.build import node_body
from scheduler.simcluster.nodes.machine import Machine, make_machine
from scheduler.simcluster.profiles.model import Profile
from scheduler.simcluster.store.index import PodsByNode
from scheduler.simcluster.store.resources import NODES, PODS
from scheduler.simcluster.store.store import DELETED, Change
from scheduler.simcluster.world import World

HEARTBEAT_SLOTS = 10


class Fleet:
    """The simulated machines of a cluster and their kubelets."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world, self.profile = world, profile
        self.kubelets: dict[str, Kubelet] = {}
        self.pods = PodsByNode(world.store)
        self._slot = 0
        self._post_slot = 0

    def join_all(self) -> None:
        """Registers every machine of the profile and starts the heartbeats."""
        ordinal = 0
        for group in self.profile.groups:
            for number in range(group.count):
                self._join(make_machine(group, number, ordinal, self.world.identities))
                ordinal += 1
        self.world.store.listen(PODS, self._on_pod)
        if self.kubelets:
            self.world.timers.after(self.profile.lease_seconds / HEARTBEAT_SLOTS, self._heartbeat)
            self.world.timers.after(STATUS_SECONDS / HEARTBEAT_SLOTS, self._post)

    def add_like(self, other: Machine) -> Machine:
        """One more machine of another's group, under the next free name; it registers at once."""
        prefix = other.group.prefix
        alike = [name for name in self.kubelets if name.startswith(prefix)]
        highest = max(int(name.removeprefix(prefix)) for name in alike)
        number = highest + 1 - other.group.first_index
        machine = make_machine(other.group, number, len(self.kubelets), self.world.identities)
        self._join(machine)
        return machine

    def _join(self, machine: Machine) -> None:
        kubelet = Kubelet(self.world, machine, self.profile, self.pods)
        self.kubelets[machine.name] = kubelet
        self.register(kubelet)

    def register(self, kubelet: Kubelet) -> None:
        """Creates the Node object and Lease of a machine."""
        now, uid = self.world.clock.now(), self.world.identities.uid()
        body = node_body(kubelet.machine, uid, self.profile.region, now)
        self.world.store.put(NODES, body)
        kubelet.renew_lease()

    def _on_pod(self, change: Change) -> None:
        node = change.now.body["spec"].get("nodeName")
        if not node or node not in self.kubelets:
            return
        if not _concerns(change):
            return
        key = change.now.key
        kubelet = self.kubelets[node]
        self.world.timers.after(0.01, lambda: kubelet.sync(key))

    def _heartbeat(self) -> None:
        """Renews a tenth of the leases, so that each is renewed once per `lease_seconds`."""
        self._slot = (self._slot + 1) % HEARTBEAT_SLOTS
        for kubelet in self.kubelets.values():
            if kubelet.machine.ordinal % HEARTBEAT_SLOTS == self._slot:
                kubelet.renew_lease()
        self.world.timers.after(self.profile.lease_seconds / HEARTBEAT_SLOTS, self._heartbeat)

    def _post(self) -> None:
        """Posts the status of a tenth of the nodes, each every five minutes."""
        self._post_slot = (self._post_slot + 1) % HEARTBEAT_SLOTS
        for kubelet in self.kubelets.values():
            if kubelet.machine.ordinal % HEARTBEAT_SLOTS == self._post_slot:
                kubelet.post_status()
        self.world.timers.after(STATUS_SECONDS / HEARTBEAT_SLOTS, self._post)


def _concerns(change: Change) -> bool:
    """Whether a kubelet must look: a pod that came, is going, or is gone."""
    if change.type == DELETED or change.before is None:
        return True
    old, new = change.before.body, change.now.body
    if old["spec"].get("nodeName") != new["spec"].get("nodeName"):
        return True
    return bool(
        old["metadata"].get("deletionTimestamp") != new["metadata"].get("deletionTimestamp")
    )
