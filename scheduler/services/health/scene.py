"""What one tick of the health process reads: policy, rules, nodes, their GPUs and watches, who runs where."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Q

from queues.models import Attempt, Cluster, Placement
from scheduler.health.budget import Budget
from scheduler.health.rules import Rule, rules_in_force
from scheduler.models import Gpu, HealthPolicy, HealthRule, Node, NodeWatch


@dataclass(slots=True)
class NodeScene:
    """One node: its row, its watch, its GPUs by UUID; the placements on it that hold it, or whose attempt is open."""

    row: Node
    watch: NodeWatch
    gpus: dict[str, Gpu] = field(default_factory=dict)
    placements: list[Placement] = field(default_factory=list)
    # The watch has no row yet.
    is_new: bool = False

    @property
    def name(self) -> str:
        """The node's name."""
        return self.row.name

    def gpu_at(self, index: int | None) -> Gpu | None:
        """The GPU of that index."""
        return next((gpu for gpu in self.gpus.values() if gpu.index == index), None)

    def attempts(self) -> list[Attempt]:
        """Open attempts that have, or had, a pod here; each once."""
        open_ones = (p.attempt for p in self.placements if p.attempt.ended_at is None)
        return list({attempt.pk: attempt for attempt in open_ones}.values())

    @property
    def is_held(self) -> bool:
        """Whether a placement of ours still holds part of the node."""
        return any(p.released_at is None for p in self.placements)


@dataclass(slots=True)
class Scene:
    """A cluster as the judge sees it; only the nodes that were asked for."""

    cluster: Cluster
    policy: HealthPolicy
    rules: dict[str, Rule]
    nodes: dict[str, NodeScene]
    # Whether the cluster has been judged before: a node that is new now joins.
    first_time: bool

    @property
    def budget(self) -> Budget:
        """The cluster's limits."""
        policy = self.policy
        window = timedelta(seconds=policy.budget_window_seconds)
        return Budget(policy.budget_percent, policy.budget_nodes, window)

    @property
    def burns_in(self) -> bool:
        """Whether the cluster has a burn-in."""
        return bool(self.policy.burn_in_image)


def policy_of(cluster: Cluster) -> HealthPolicy:
    """The cluster's policy: its row, or the defaults."""
    return HealthPolicy.objects.filter(cluster=cluster).first() or HealthPolicy(cluster=cluster)


def rules_now() -> dict[str, Rule]:
    """The rules in force."""
    rows = HealthRule.objects.values_list("key", "mode", "parameters")
    return rules_in_force({key: (mode, parameters) for key, mode, parameters in rows})


def read_scene(cluster: Cluster, names: Collection[str] | None = None) -> Scene:
    """The scene of these nodes (of all, without names) that exist and have a flavor."""
    nodes = read_nodes(cluster, names)
    first_time = not NodeWatch.objects.filter(node__cluster=cluster).exists()
    return Scene(cluster, policy_of(cluster), rules_now(), nodes, first_time)


def read_nodes(cluster: Cluster, names: Collection[str] | None = None) -> dict[str, NodeScene]:
    """These nodes by name, as `read_scene` has them."""
    rows = Node.objects.filter(
        cluster=cluster, gone_at__isnull=True, flavor__isnull=False
    ).select_related("flavor")
    if names is not None:
        rows = rows.filter(name__in=list(names))
    found = {row.pk: row for row in rows}
    watches = {watch.node_id: watch for watch in NodeWatch.objects.filter(node__in=list(found))}
    nodes = {
        row.name: NodeScene(row, watches.get(pk) or NodeWatch(node=row), is_new=pk not in watches)
        for pk, row in found.items()
    }
    for gpu in Gpu.objects.filter(node__in=list(found)):
        nodes[found[gpu.node_id].name].gpus[gpu.uuid] = gpu
    for name, placements in read_placements(cluster, list(nodes)).items():
        nodes[name].placements = placements
    return nodes


def read_placements(cluster: Cluster, names: Iterable[str]) -> dict[str, list[Placement]]:
    """Placements by node that hold it, or whose attempt is still open."""
    rows = Placement.objects.filter(
        Q(released_at__isnull=True) | Q(attempt__ended_at__isnull=True),
        attempt__cluster=cluster,
        node__in=list(names),
    ).select_related("attempt__job__tenant", "attempt__job__queue__cluster", "role")
    found: dict[str, list[Placement]] = defaultdict(list)
    for row in rows.order_by("rank"):
        found[row.node].append(row)
    return found


def lock_node(scene: Scene, node: NodeScene) -> bool:
    """Hold a node's watch until the transaction ends, and read the node anew; False where it has no watch, or is gone.

    The `cluster` process, people and the health process take in signs of one node at the same time: what one of
    them has done is seen by the next, who would do it once more.
    """
    if not NodeWatch.objects.select_for_update().filter(pk=node.row.pk).exists():
        return False
    fresh = read_nodes(scene.cluster, [node.name]).get(node.name)
    if fresh is None:
        return False
    node.row, node.watch, node.gpus = fresh.row, fresh.watch, fresh.gpus
    node.placements = fresh.placements
    return True
