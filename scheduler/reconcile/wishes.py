"""What people, windows and health rules want of nodes, from rows; where Kubernetes does not agree yet.

Called by `tick`, inside its transaction. A wish that nobody has any more leaves Kubernetes as it is, except for
our own taint, which goes with the last row that wants it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from queues.models import Cluster
from scheduler.kube.nodes import OUT_TAINT
from scheduler.kube.pods import PodKey
from scheduler.kube.seen import NodeSeen, PodSeen
from scheduler.models import Cordon as CordonRow
from scheduler.models import Drain, DriftKind, Node, WantedLabel
from scheduler.reconcile.drift import Found
from scheduler.reconcile.node_rows import Policy, is_managed
from scheduler.reconcile.wanted import Cordon, Evict, LabelNode, TaintNode

NodeAction = Cordon | TaintNode | LabelNode | Evict
# What `kubectl drain` leaves where it is: pods that come back at once, pods of the node itself.
STAYING_OWNERS = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True)
class Wish:
    """cordon: None has no opinion. taint: who wants the node tainted; empty for nobody. labels: None is "absent"."""

    cordon: bool | None = None
    taint: str = ""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    drained: bool = False


NO_WISH = Wish()
_TOLD = {"Cordon": "cordon", "TaintNode": "taint", "LabelNode": "labels"}


@dataclass(slots=True)
class WishBook:
    """The wishes for one cluster's nodes, by name; those without any are left out."""

    cluster: Cluster
    _wishes: dict[str, Wish] = field(default_factory=dict)

    def load(self, names: Collection[str] | None = None) -> None:
        """Read again what is wanted of these nodes (of all, without names)."""
        nodes = Node.objects.filter(cluster=self.cluster, gone_at__isnull=True)
        if names is not None:
            nodes = nodes.filter(name__in=names)
        found = _read(nodes.values_list("pk", flat=True))
        for name in list(self._wishes) if names is None else names:
            self._wishes.pop(name, None)
        self._wishes |= found

    def names(self) -> list[str]:
        """Nodes of which something is wanted."""
        return list(self._wishes)

    def actions(
        self,
        names: Iterable[str],
        nodes: Mapping[str, NodeSeen],
        pods: Mapping[str, Collection[PodSeen]],
    ) -> Iterable[NodeAction]:
        """What has to be done to these nodes. `pods`: those on nodes that are drained, by node."""
        for name in names:
            node = nodes.get(name)
            if node is None:
                continue
            wish = self._wishes.get(name, NO_WISH)
            if wish.cordon is not None and node.unschedulable != wish.cordon:
                yield Cordon(name, wish.cordon)
            if _taint_of(node) != wish.taint:
                yield TaintNode(name, wish.taint)
            wrong = {k: v for k, v in wish.labels.items() if node.labels.get(k) != v}
            if wrong:
                yield LabelNode(name, tuple(sorted(wrong.items())))
            if wish.drained:
                yield from _evictions(name, pods.get(name, ()))

    def drained(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that an operator wants empty."""
        return [name for name in names if self._wishes.get(name, NO_WISH).drained]

    def unfulfilled(self, nodes: Mapping[str, NodeSeen], policy: Policy) -> Iterable[Found]:
        """Nodes that are not as wanted, where Muster may act."""
        for name in self._wishes:
            node = nodes.get(name)
            if node is None or not policy.may_act or not is_managed(node, policy):
                continue
            wrong = [type(a).__name__ for a in self.actions([name], nodes, {})]
            if wrong:
                told = ", ".join(_TOLD[kind] for kind in wrong)
                yield Found(DriftKind.NODE, name, node=name, detail=f"{told} not as wanted")

    def fulfil_uncordons(self, names: Iterable[str], nodes: Mapping[str, NodeSeen]) -> None:
        """An uncordon that has come true is no lasting wish: others may cordon the node later."""
        done = [
            name
            for name in names
            if (node := nodes.get(name)) is not None
            and not node.unschedulable
            and self._wishes.get(name, NO_WISH).cordon is False
        ]
        if done:
            Node.objects.filter(cluster=self.cluster, name__in=done, cordon_wanted=False).update(
                cordon_wanted=None
            )
            self.load(done)


def _read(node_ids: Iterable[int]) -> dict[str, Wish]:
    taints = dict(
        CordonRow.objects.filter(node__in=node_ids, taint=True)
        .order_by("-source", "-pk")
        .values_list("node__name", "source")
    )
    labels: dict[str, dict[str, str | None]] = {}
    for name, key, value in WantedLabel.objects.filter(node__in=node_ids).values_list(
        "node__name", "key", "value"
    ):
        labels.setdefault(name, {})[key] = value
    drained = set(
        Drain.objects.filter(node__in=node_ids, ended_at__isnull=True).values_list(
            "node__name", flat=True
        )
    )
    cordons: dict[str, bool | None] = dict(
        Node.objects.filter(pk__in=node_ids, cordon_wanted__isnull=False).values_list(
            "name", "cordon_wanted"
        )
    )
    return {
        name: Wish(cordons.get(name), taints.get(name, ""), labels.get(name, {}), name in drained)
        for name in {*taints, *labels, *drained, *cordons}
    }


def _taint_of(node: NodeSeen) -> str:
    found = (t.value for t in node.taints if (t.key, t.effect) == (OUT_TAINT, "NoSchedule"))
    return next(found, "")


def _evictions(node: str, pods: Iterable[PodSeen]) -> Iterable[Evict]:
    """Others' pods that a controller makes again elsewhere; ours leave by their own rules."""
    for pod in pods:
        if pod.ours or pod.finished or pod.terminating or pod.owner is None:
            continue
        if pod.owner.partition("/")[0] not in STAYING_OWNERS:
            yield Evict(node, PodKey(pod.namespace, pod.name, pod.uid))
