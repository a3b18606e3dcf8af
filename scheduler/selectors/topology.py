"""A cluster as a tree: its levels from widest to narrowest, with counts in every domain, nodes at the bottom.

Called by the topology door; pages draw the same facts as a map. Four queries, however many nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from queues.models import Cluster
from scheduler.models import Node
from scheduler.selectors.node_facts import NodeFacts


@dataclass(frozen=True, slots=True)
class Counts:
    """GPUs of a domain: used + free + out = capacity. nodes: how many; nodes_out: of these, out of service."""

    capacity: int
    used: int
    free: int
    out: int
    nodes: int
    nodes_out: int


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of a level, with the domains of the next level in it, or its nodes at the lowest.

    name: empty for nodes that have no label of this level.
    """

    level: str
    name: str
    counts: Counts
    domains: tuple["Domain", ...]
    nodes: tuple[NodeFacts, ...]


def tree_of(facts: Sequence[NodeFacts], levels: Sequence[str]) -> tuple[Domain, ...]:
    """The domains of the widest level, by name; nodes without a label come last under an empty name."""
    if not levels:
        return ()
    level, below = levels[0], levels[1:]
    members: dict[str, list[NodeFacts]] = {}
    for node in facts:
        members.setdefault(node.domains.get(level, ""), []).append(node)
    return tuple(
        Domain(
            level=level,
            name=name,
            counts=counts_of(nodes),
            domains=tree_of(nodes, below),
            nodes=() if below else tuple(nodes),
        )
        for name, nodes in sorted(members.items(), key=lambda item: (not item[0], item[0]))
    )


def counts_of(facts: Iterable[NodeFacts]) -> Counts:
    """All nodes added up; pods of others count as used."""
    nodes = list(facts)
    return Counts(
        capacity=sum(node.capacity for node in nodes),
        used=sum(node.used + node.foreign for node in nodes),
        free=sum(node.free for node in nodes),
        out=sum(node.out for node in nodes),
        nodes=len(nodes),
        nodes_out=sum(not node.is_in for node in nodes),
    )


def domain_names(clusters: Iterable[Cluster]) -> list[str]:
    """Every domain as people write it ("leaf/leaf-02"), by level and name; at most 1,000 of them."""
    nodes = Node.objects.filter(cluster__in=clusters, gone_at__isnull=True)
    found = {
        f"{level}/{name}"
        for domains in nodes.values_list("domains", flat=True)
        for level, name in domains.items()
        if name
    }
    return sorted(found)[:1000]
