"""What pages, the API and the live hub say of nodes: counts for everyone, jobs for those who may see them.

Three queries for a whole cluster: nodes, seats by node, strangers' GPUs by node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, Sum

from queues.models import Cluster, Placement
from queues.reasons import OUT_CAUSES
from queues.selectors.jobs import jobs_visible_to
from scheduler.models import ForeignPod, Node, Seat
from tenants.access import Actor

# The state that a cause of being out shows as; the first that holds, in this order, wins.
STATE_OF_CAUSE: Mapping[str, str] = {
    "unmanaged": "unmanaged",
    "not_ready": "not_ready",
    "unhealthy": "faulty",
    "suspect": "faulty",
    "no_device_plugin": "unplugged",
    "driver": "unplugged",
    "window": "maintenance",
    "draining": "draining",
    "cordoned": "cordoned",
    "taint": "cordoned",
}
# What a cordon of ours is, by who wants it most.
CAUSE_OF_CORDON: Mapping[str, str] = {
    "window": "window",
    "health": "unhealthy",
    "drain": "draining",
}
# Numbers of a cause that its words do not hold already; since when is told apart from them.
SAID_OF_CAUSE = ("cause", "taint")
# States of health in which no job may land there; a suspect node still takes jobs of one node.
HEALTH_OUT = frozenset({"unhealthy", "draining", "repairing", "burn_in", "joining"})
# States in which a node takes jobs.
IN_STATES = frozenset({"free", "used"})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node in numbers (GPUs). used: by seats of ours; foreign: by pods of others.

    state: a key of `looks.NODES`. out: GPUs that no job can get, all of them while the node is out.
    """

    name: str
    cluster: str
    flavor: str
    model: str
    domains: Mapping[str, str]
    state: str
    cause: str
    since: datetime | None
    by: str
    capacity: int
    allocatable: int
    used: int
    foreign: int
    driver: str
    cuda: str
    cpu_millis: int
    memory_mib: int

    @property
    def is_in(self) -> bool:
        """Whether new jobs may land here."""
        return self.state in IN_STATES

    @property
    def free(self) -> int:
        """GPUs that a job could get now."""
        return max(0, self.allocatable - self.used - self.foreign) if self.is_in else 0

    @property
    def out(self) -> int:
        """GPUs that exist but cannot be given now, though nobody uses them."""
        return max(0, self.capacity - self.used - self.foreign - self.free)


def node_facts(cluster: Cluster, names: Collection[str] | None = None) -> list[NodeFacts]:
    """The cluster's nodes by name; only those in `names` where given."""
    rows = Node.objects.filter(cluster=cluster, gone_at__isnull=True).select_related("flavor")
    chosen = Q() if names is None else Q(name__in=names)
    seats = _seats(cluster, names)
    strangers = _strangers(cluster, names)
    return [
        _facts(cluster.name, row, seats[row.pk], strangers[row.name])
        for row in rows.filter(chosen).order_by("name")
    ]


def _seats(cluster: Cluster, names: Collection[str] | None) -> Counter[int]:
    seats = Seat.objects.filter(node__cluster=cluster)
    if names is not None:
        seats = seats.filter(node__name__in=names)
    return Counter(dict(seats.values_list("node_id").annotate(n=Count("pk"))))


def _strangers(cluster: Cluster, names: Collection[str] | None) -> Counter[str]:
    pods = ForeignPod.objects.filter(cluster=cluster, gpus__gt=0)
    if names is not None:
        pods = pods.filter(node__in=names)
    return Counter(dict(pods.values_list("node").annotate(n=Sum("gpus"))))


def _facts(cluster: str, row: Node, used: int, foreign: int) -> NodeFacts:
    state, cause = node_state(row, used + foreign)
    return NodeFacts(
        name=row.name,
        cluster=cluster,
        flavor=row.flavor.name if row.flavor else "",
        model=row.flavor.model if row.flavor else "",
        domains=row.domains,
        state=state,
        cause=row.cordon_reason if row.cordon_wanted and row.cordon_reason else cause,
        since=_since(row),
        by=row.cordon_by if row.cordon_wanted else "",
        capacity=row.gpus_capacity,
        allocatable=row.gpus_allocatable,
        used=used,
        foreign=foreign,
        driver=row.driver,
        cuda=row.cuda,
        cpu_millis=row.cpu_millis,
        memory_mib=row.memory_mib,
    )


def _since(row: Node) -> datetime | None:
    if row.cordon_wanted:
        return row.cordon_since
    if row.health_closed or row.health in HEALTH_OUT:
        return row.health_since
    for cause in row.out_causes:
        if said := (cause.get("numbers") or {}).get("since"):
            return datetime.fromisoformat(said)
    # Of a cause whose time nobody noted none is told, rather than a wrong one.
    return None if row.out_causes else row.ready_changed_at


def node_state(row: Node, used: int) -> tuple[str, str]:
    """A node's state and the cause of it; a cordon asked for counts at once."""
    causes = {str(cause["code"]): cause for cause in row.out_causes}
    if not row.managed:
        causes.setdefault("unmanaged", {})
    if row.cordon_wanted:
        causes.setdefault(CAUSE_OF_CORDON.get(row.cordon_source, "cordoned"), {})
    if row.health_closed or row.health in HEALTH_OUT:
        causes.setdefault("unhealthy", {"numbers": {"cause": row.health_cause or None}})
    for code, state in STATE_OF_CAUSE.items():
        if code in causes:
            return state, _cause(code, causes[code])
    if causes:
        return "faulty", next(iter(causes))
    suspicion = f"{row.health}: {row.health_cause}" if row.health == "suspect" else ""
    return ("used" if used else "free"), suspicion


def _cause(code: str, cause: Mapping[str, Any]) -> str:
    numbers: Mapping[str, Any] = cause.get("numbers") or {}
    word = str(OUT_CAUSES.get(code, code))
    said = ", ".join(str(numbers[key]) for key in SAID_OF_CAUSE if numbers.get(key) is not None)
    return f"{word}: {said}" if said else word


def jobs_on_nodes(
    actor: Actor, cluster: Cluster, names: Collection[str]
) -> dict[str, list[Placement]]:
    """Placements that hold these nodes, of jobs that the actor may see, by node name."""
    rows = (
        Placement.objects.filter(
            node__in=names,
            released_at__isnull=True,
            attempt__cluster=cluster,
            attempt__job__in=jobs_visible_to(actor),
        )
        .select_related("attempt__job__tenant", "attempt__job__user", "role")
        .order_by("node", "rank")
    )
    found: dict[str, list[Placement]] = {}
    for row in rows:
        found.setdefault(row.node, []).append(row)
    return found


@dataclass(frozen=True, slots=True)
class FlavorSum:
    """A flavor of a cluster in numbers. gang: GPUs of the largest gang of whole nodes in one leaf."""

    flavor: str
    model: str
    capacity: int
    used: int
    foreign: int
    free: int
    out: int
    nodes: int
    nodes_out: int
    gang: int
    gang_place: str


def flavor_sums(facts: Iterable[NodeFacts]) -> list[FlavorSum]:
    """Facts added up by flavor, the largest first; nodes without a flavor are left out."""
    groups: dict[str, list[NodeFacts]] = {}
    for node in facts:
        if node.flavor:
            groups.setdefault(node.flavor, []).append(node)
    sums = [_sum(flavor, nodes) for flavor, nodes in groups.items()]
    return sorted(sums, key=lambda each: (-each.capacity, each.flavor))


def _sum(flavor: str, nodes: list[NodeFacts]) -> FlavorSum:
    idle: Counter[str] = Counter()
    for node in nodes:
        if node.is_in and node.free == node.capacity:
            idle[node.domains.get("leaf", "")] += node.capacity
    place, gang = max(idle.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return FlavorSum(
        flavor=flavor,
        model=nodes[0].model,
        capacity=sum(n.capacity for n in nodes),
        used=sum(n.used for n in nodes),
        foreign=sum(n.foreign for n in nodes),
        free=sum(n.free for n in nodes),
        out=sum(n.out for n in nodes),
        nodes=len(nodes),
        nodes_out=sum(not n.is_in for n in nodes),
        gang=gang,
        gang_place=place,
    )
