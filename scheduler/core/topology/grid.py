"""The nodes of one flavor in topological order, and the tree of domains over them.

Nodes are sorted by their path of domains, then by name, so that every domain at every level is a
contiguous range and sums over domains are one `numpy.add.reduceat`. Built once per set of nodes
and kept in the memo; used by placement, timeline and explanations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.core.inputs.cluster import NODE_LEVEL, Flavor, Node, OutCause

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESOURCES = 4
GPUS, CPU, MEMORY, PODS = range(RESOURCES)


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """One level of the tree; tier 0 is the root with a single domain, the last is `node`.

    `of_node[i]` is the domain of node i; `starts[d]` the first node of domain d; `child_starts[d]`
    its first child in the next narrower tier (both have a closing entry); `parent[d]` its domain
    in the next wider tier. A node without a label at this level is a domain of its own, unnamed.
    """

    name: str | None
    names: tuple[str | None, ...]
    of_node: Ints
    starts: Ints
    child_starts: Ints
    parent: Ints

    @property
    def size(self) -> int:
        """How many domains."""
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The nodes of one flavor. Matrices are (4, nodes): GPUs, CPU millis, memory MiB, pods.

    Nodes that are in take any job; suspects, of those that are out, take jobs of one node.
    """

    flavor: Flavor
    nodes: tuple[Node, ...]
    index: dict[str, int]
    tiers: tuple[Tier, ...]
    capacity: Ints
    inventory: Ints
    foreign: Ints
    is_in: Bools
    is_suspect: Bools

    @property
    def size(self) -> int:
        """How many nodes."""
        return len(self.nodes)

    @property
    def node_tier(self) -> int:
        """The index of the narrowest tier."""
        return len(self.tiers) - 1

    def tier_index(self, level: str) -> int | None:
        """The index of the tier named `level`; None when the cluster has no such level."""
        for position, tier in enumerate(self.tiers):
            if tier.name == level:
                return position
        return None

    def domains_of(self, tier_index: int, node_index: int) -> tuple[tuple[str, str], ...]:
        """The (level, name) pairs, widest first, down to `tier_index`, that hold the node."""
        pairs = []
        for tier in self.tiers[1 : tier_index + 1]:
            name = tier.names[int(tier.of_node[node_index])]
            if tier.name is not None and name is not None:
                pairs.append((tier.name, name))
        return tuple(pairs)


def patched(grid: Grid, changed: Sequence[Node]) -> Grid:
    """The grid with some of its nodes replaced by others of the same name, flavor and domains."""
    nodes = list(grid.nodes)
    capacity, inventory = grid.capacity.copy(), grid.inventory.copy()
    foreign = grid.foreign.copy()
    is_in, is_suspect = grid.is_in.copy(), grid.is_suspect.copy()
    for node in changed:
        place = grid.index[node.name]
        nodes[place] = node
        capacity[:, place] = node.capacity.as_tuple()
        inventory[:, place] = capacity[:, place]
        inventory[GPUS, place] = _inventory_gpus(node)
        foreign[:, place] = node.foreign.as_tuple()
        is_in[place], is_suspect[place] = not node.outs, _is_suspect(node)
    return replace(
        grid,
        nodes=tuple(nodes),
        capacity=capacity,
        inventory=inventory,
        foreign=foreign,
        is_in=is_in,
        is_suspect=is_suspect,
    )


def _is_suspect(node: Node) -> bool:
    return node.outs == (OutCause.SUSPECT,)


def _inventory_gpus(node: Node) -> int:
    return max(node.inventory_gpus or 0, node.capacity.gpus)


def build_grid(flavor: Flavor, nodes: Iterable[Node], levels: Sequence[str]) -> Grid:
    """The grid of `flavor` over those `nodes` that carry it; `levels` widest to narrowest."""
    keyed = sorted(
        ((_path(node, levels), node) for node in nodes if node.flavor == flavor.name),
        key=lambda pair: (pair[0], pair[1].name),
    )
    members = tuple(node for _, node in keyed)
    labels = [_tier_labels([path for path, _ in keyed], depth) for depth in range(len(levels) + 2)]
    firsts = [_firsts(tier_labels) for tier_labels in labels]
    tiers = tuple(
        _tier(position, [None, *levels, NODE_LEVEL], labels, firsts)
        for position in range(len(levels) + 2)
    )
    capacity = _matrix([node.capacity.as_tuple() for node in members])
    inventory = capacity.copy()
    for position, node in enumerate(members):
        inventory[GPUS, position] = _inventory_gpus(node)
    return Grid(
        flavor=flavor,
        nodes=members,
        index={node.name: position for position, node in enumerate(members)},
        tiers=tiers,
        capacity=capacity,
        inventory=inventory,
        foreign=_matrix([node.foreign.as_tuple() for node in members]),
        is_in=np.array([not node.outs for node in members], dtype=np.bool_),
        is_suspect=np.array([_is_suspect(node) for node in members], dtype=np.bool_),
    )


def _path(node: Node, levels: Sequence[str]) -> tuple[tuple[int, str], ...]:
    named = dict(node.domains)
    steps = [(0, named[level]) if level in named else (1, node.name) for level in levels]
    return (*steps, (0, node.name))


def _tier_labels(
    paths: list[tuple[tuple[int, str], ...]], depth: int
) -> list[tuple[tuple[int, str], ...]]:
    return [path[:depth] for path in paths]


def _firsts(labels: list[tuple[tuple[int, str], ...]]) -> list[int]:
    return [i for i, label in enumerate(labels) if i == 0 or label != labels[i - 1]]


def _tier(
    position: int,
    names: list[str | None],
    labels: list[list[tuple[tuple[int, str], ...]]],
    firsts: list[list[int]],
) -> Tier:
    own = firsts[position]
    count = len(labels[position])
    narrower = firsts[min(position + 1, len(firsts) - 1)]
    child_at = {node: child for child, node in enumerate(narrower)}
    of_node = np.zeros(count, dtype=np.int64)
    of_node[own[1:]] = 1
    of_node = np.cumsum(of_node)
    wider = firsts[max(position - 1, 0)]
    return Tier(
        name=names[position],
        names=tuple(_domain_name(labels[position][node]) for node in own),
        of_node=of_node,
        starts=np.array([*own, count], dtype=np.int64),
        child_starts=np.array([*(child_at[node] for node in own), len(narrower)], dtype=np.int64),
        parent=np.searchsorted(np.array(wider), np.array(own, dtype=np.int64), side="right") - 1,
    )


def _domain_name(label: tuple[tuple[int, str], ...]) -> str | None:
    if not label or label[-1][0] == 1:
        return None
    return label[-1][1]


def _matrix(rows: list[tuple[int, int, int, int]]) -> Ints:
    if not rows:
        return np.zeros((RESOURCES, 0), dtype=np.int64)
    return np.ascontiguousarray(np.array(rows, dtype=np.int64).T)
