"""What Kubernetes was last seen to hold: nodes and pods in memory, and what of them has changed.

Pure: fed by the watches through `process`, read by `tick`. Nothing here says "gone" unless a
complete list or a DELETED event said so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from scheduler.kube.burn_in import NAMESPACE as OWN_NAMESPACE
from scheduler.kube.manifests import PLACED_ANNOTATION
from scheduler.kube.seen import OUR_PREFIX, NodeSeen, PodSeen
from scheduler.kube.watching import Changed, Gone, Listed, Observation

AttemptKey = tuple[str, int]
"""(job id, attempt number), as the labels of our pods say."""

REMEMBERED_GONE = 20_000


def attempt_of(pod: PodSeen) -> AttemptKey | None:
    """Which attempt a pod says that it belongs to; None for pods that are not ours."""
    number = pod.labels.get(f"{OUR_PREFIX}attempt", "")
    if not pod.ours or not number.isdigit():
        return None
    return pod.labels[f"{OUR_PREFIX}job"], int(number)


def is_forgotten(pod: PodSeen, placed_at: datetime) -> bool:
    """True for a pod that was made for another attempt of the same number: one that the rows have forgotten,
    as after a restored backup. It bears the moment at which its own attempt was planned."""
    stamp = placed_stamp(pod)
    return stamp is not None and stamp != placed_at


def placed_stamp(pod: PodSeen) -> datetime | None:
    """When the attempt was planned that the pod was made for, if it says so."""
    text = pod.annotations.get(PLACED_ANNOTATION, "")
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


@dataclass(slots=True)
class ClusterView:
    """Nodes by name, pods by uid. `changed_*` collect what a tick has still to look at.
    `node_version` rises with every change of a node."""

    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    node_version: int = 0
    nodes_synced: bool = False
    pods_synced: bool = False
    changed_nodes: set[str] = field(default_factory=set)
    changed_pods: dict[str, AttemptKey | None] = field(default_factory=dict)
    _by_attempt: dict[AttemptKey, set[str]] = field(default_factory=dict)
    _by_node: dict[str, set[str]] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)
    _noted_at: dict[str, datetime] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _gone_order: deque[str] = field(default_factory=deque)

    @property
    def synced(self) -> bool:
        """True once both kinds were listed whole: absence means something from then on."""
        return self.nodes_synced and self.pods_synced

    def take_node(self, observation: Observation[NodeSeen]) -> None:
        """Take in what the watch of nodes said."""
        match observation:
            case Listed(items, _):
                listed = {node.name: node for node in items}
                for name in self.nodes.keys() - listed.keys():
                    self._drop_node(name)
                for node in items:
                    self._put_node(node)
                self.nodes_synced = True
            case Changed(node):
                self._put_node(node)
            case Gone(node):
                self._drop_node(node.name)

    def take_pod(self, observation: Observation[PodSeen]) -> None:
        """Take in what the watch of pods said."""
        match observation:
            case Listed(items, began_at):
                listed = {pod.uid for pod in items}
                # A pod that we created after the list began need not be in it.
                for uid in self.pods.keys() - listed:
                    if self._noted_at.get(uid, began_at) <= began_at:
                        self._drop_pod(uid)
                for pod in items:
                    self._put_pod(pod)
                self.pods_synced = True
            case Changed(pod):
                self._put_pod(pod)
            case Gone(pod):
                self._drop_pod(pod.uid)

    def note_created(self, pod: PodSeen, at: datetime) -> None:
        """A pod as our own create call answered, which the watch may not have shown yet."""
        if pod.uid not in self.pods and pod.uid not in self._gone:
            self._noted_at[pod.uid] = at
            self._put_pod(pod)

    def pods_of(self, key: AttemptKey) -> list[PodSeen]:
        """All pods that say they belong to that attempt."""
        return [self.pods[uid] for uid in sorted(self._by_attempt.get(key, ()))]

    def pods_on(self, node: str) -> list[PodSeen]:
        """All pods bound to that node."""
        return [self.pods[uid] for uid in sorted(self._by_node.get(node, ()))]

    def own_pods(self) -> list[PodSeen]:
        """All pods of Muster's own namespace."""
        return [self.pods[uid] for uid in sorted(self._own)]

    def take_changes(self, most: int) -> Changes:
        """What has changed since the last call, at most so many nodes and so many pods."""
        nodes = list(islice(self.changed_nodes, most))
        pods = dict(islice(self.changed_pods.items(), most))
        self.changed_nodes.difference_update(nodes)
        for uid in pods:
            del self.changed_pods[uid]
        return Changes(tuple(nodes), pods)

    def give_back(self, changes: Changes) -> None:
        """Put changes back that could not be written: the next tick looks at them again."""
        self.changed_nodes.update(changes.nodes)
        self.changed_pods.update(changes.pods)

    def doubt_everything(self) -> None:
        """Count all there is as changed, after rows were read anew."""
        self.changed_nodes.update(self.nodes)
        self.changed_pods.update({uid: attempt_of(pod) for uid, pod in self.pods.items()})

    def _put_node(self, node: NodeSeen) -> None:
        before = self.nodes.get(node.name)
        if before is not None and before.version == node.version and before.uid == node.uid:
            return
        self.nodes[node.name] = node
        self.node_version += 1
        self.changed_nodes.add(node.name)

    def _drop_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.node_version += 1
            self.changed_nodes.add(name)

    def _put_pod(self, pod: PodSeen) -> None:
        before = self.pods.get(pod.uid)
        if before is not None and before.version == pod.version:
            return
        if before is not None:
            self._unindex(before)
        self.pods[pod.uid] = pod
        key = attempt_of(pod)
        if key is not None:
            self._by_attempt.setdefault(key, set()).add(pod.uid)
        if pod.node is not None:
            self._by_node.setdefault(pod.node, set()).add(pod.uid)
        if pod.namespace == OWN_NAMESPACE:
            self._own.add(pod.uid)
        self._note_changed(pod)

    def _drop_pod(self, uid: str) -> None:
        self._remember_gone(uid)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._noted_at.pop(uid, None)
        self._unindex(pod)
        self._note_changed(pod)

    def _remember_gone(self, uid: str) -> None:
        # The answer to a create may come after the watch has told of the pod's end.
        if uid not in self._gone:
            self._gone.add(uid)
            self._gone_order.append(uid)
        if len(self._gone_order) > REMEMBERED_GONE:
            self._gone.discard(self._gone_order.popleft())

    def _unindex(self, pod: PodSeen) -> None:
        key = attempt_of(pod)
        if key is not None:
            _discard(self._by_attempt, key, pod.uid)
        if pod.node is not None:
            _discard(self._by_node, pod.node, pod.uid)
        self._own.discard(pod.uid)

    def _note_changed(self, pod: PodSeen) -> None:
        self.changed_pods[pod.uid] = attempt_of(pod)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of nodes, and uids of pods with the attempt that each says it belongs to."""

    nodes: tuple[str, ...]
    pods: dict[str, AttemptKey | None]


def _discard(index: dict[Any, set[str]], key: object, uid: str) -> None:
    known = index[key]
    known.discard(uid)
    if not known:
        del index[key]
