"""The choice of domains for one role: lowest domain, fewest domains inside it, then tightest.

The algorithm follows Kueue's topology-aware scheduling (keps/2724: count per node, bubble up,
choose a level, descend) with best fit at each step, so that big domains stay whole. Ties are
broken by position in the grid, which is by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.core.placement.demand import Demand, Layer
from scheduler.core.topology.grid import Grid, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """`counts[i]` replicas on node `nodes[i]` (ascending); all inside `domain` of `tier`."""

    tier: int
    domain: int
    nodes: Ints
    counts: Ints


def bubble_up(grid: Grid, cap: Ints, layers: tuple[Layer, ...]) -> list[Ints]:
    """Replicas per domain for each tier, root first; groups that cannot be whole do not count."""
    sizes = {layer.tier: layer.size for layer in layers}
    counts = [cap] * len(grid.tiers)
    below = _whole_groups(cap, sizes.get(grid.node_tier, 1))
    counts[grid.node_tier] = below
    for position in range(grid.node_tier - 1, -1, -1):
        tier = grid.tiers[position]
        if below.size:
            below = np.add.reduceat(below, tier.child_starts[:-1])
        below = _whole_groups(below, sizes.get(position, 1))
        counts[position] = below
    return counts


def most_replicas(grid: Grid, counts: list[Ints], demand: Demand) -> int:
    """The most replicas that one domain within the demand's limit holds."""
    del grid
    widest = counts[demand.limit_tier]
    best = int(widest.max()) if widest.size else 0
    # A gang that fits below a slice's level needs no whole slices.
    for layer in demand.layers:
        if layer.tier >= demand.limit_tier:
            narrower = counts[min(layer.tier + 1, len(counts) - 1)]
            if layer.tier + 1 < len(counts) and narrower.size:
                best = max(best, int(narrower.max()))
    return best


def choose(grid: Grid, cap: Ints, demand: Demand, need: int) -> Choice | None:
    """Nodes for `need` replicas, or None when no allowed domain holds them."""
    counts = bubble_up(grid, cap, demand.layers)
    return choose_from(grid, counts, demand, need)


def choose_from(grid: Grid, counts: list[Ints], demand: Demand, need: int) -> Choice | None:
    """`choose` with the bubbled-up counts at hand."""
    for position in range(grid.node_tier, demand.limit_tier - 1, -1):
        wanted = rounded(need, demand, position)
        tier_counts = counts[position]
        if not tier_counts.size or tier_counts.max() < wanted:
            continue
        domain = _pick(grid, counts, position, wanted)
        return _descend(grid, counts, position, domain, (wanted, need))
    return None


def rounded(need: int, demand: Demand, position: int) -> int:
    """`need` rounded up to whole groups for a domain that may span several groups."""
    for layer in demand.layers:
        if layer.tier >= position:
            need = -(-need // layer.size) * layer.size
    return need


def _whole_groups(counts: Ints, size: int) -> Ints:
    return counts if size <= 1 else counts // size * size


def _pick(grid: Grid, counts: list[Ints], position: int, need: int) -> int:
    """The domain of this tier that holds `need`: fewest children, tightest, then in the
    least free surroundings, then first."""
    candidates = np.flatnonzero(counts[position] >= need)
    if candidates.size == 1:
        return int(candidates[0])
    keys: list[Ints] = []
    outer = candidates
    for wider in range(position - 1, 0, -1):
        outer = grid.tiers[wider + 1].parent[outer]
        keys.insert(0, counts[wider][outer])
    keys.append(counts[position][candidates])
    if position < grid.node_tier and counts[position + 1].max() > 1:
        keys.append(_children_needed(grid, counts, position, candidates, need))
    # numpy.lexsort is stable: equal keys keep grid order.
    return int(candidates[np.lexsort(keys)[0]])


def _children_needed(
    grid: Grid, counts: list[Ints], position: int, candidates: Ints, need: int
) -> Ints:
    """For each candidate the least number of its children that hold `need`."""
    starts = grid.tiers[position].child_starts
    first, last = starts[candidates], starts[candidates + 1]
    lengths = last - first
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    owner = np.repeat(np.arange(candidates.size), lengths)
    children = np.arange(offsets[-1]) - offsets[:-1][owner] + first[owner]
    sizes = counts[position + 1][children]
    ordered = sizes[np.lexsort((-sizes, owner))]
    before = np.cumsum(ordered) - ordered
    before -= before[offsets[:-1]][owner]
    return np.add.reduceat((before < need).astype(np.int64), offsets[:-1])


def _descend(
    grid: Grid, counts: list[Ints], position: int, domain: int, amounts: tuple[int, int]
) -> Choice:
    """Split the gang down to nodes. `amounts` are (replicas in whole groups, replicas asked)."""
    wanted, need = amounts
    level = [(domain, wanted)]
    span = slice(*grid.tiers[position].starts[domain : domain + 2].tolist())
    for below in range(position, grid.node_tier):
        if grid.tiers[below].size == grid.tiers[below + 1].size:
            # Each domain has one child, of the same number.
            continue
        if below + 1 == grid.node_tier and counts[-1][span].max() == 1:
            nodes = _ones(grid, counts, (below, span), level)
            parts = np.ones(nodes.size, dtype=np.int64)
            return Choice(position, domain, *_trimmed(nodes, parts, wanted - need))
        starts = grid.tiers[below].child_starts
        narrower: list[tuple[int, int]] = []
        for parent, amount in level:
            first = int(starts[parent])
            sizes = counts[below + 1][first : int(starts[parent + 1])]
            narrower.extend((first + child, part) for child, part in split(sizes, amount))
        level = narrower
    level.sort()
    nodes = np.array([node for node, _ in level], dtype=np.int64)
    parts = np.array([part for _, part in level], dtype=np.int64)
    return Choice(position, domain, *_trimmed(nodes, parts, wanted - need))


def _ones(
    grid: Grid, counts: list[Ints], where: tuple[int, slice], level: list[tuple[int, int]]
) -> Ints:
    """The last step of the way down where nodes hold one replica each: the first nodes of each
    domain of the level (a tier's), as many as its part."""
    below, span = where
    tier = grid.tiers[below]
    parts = np.zeros(tier.size, dtype=np.int64)
    parts[[parent for parent, _ in level]] = [part for _, part in level]
    nodes = counts[-1][span].nonzero()[0] + span.start
    owners = tier.of_node[nodes]
    ranks = np.arange(nodes.size) - owners.searchsorted(owners)
    chosen: Ints = nodes[ranks < parts[owners]]
    return chosen


def _trimmed(nodes: Ints, parts: Ints, surplus: int) -> tuple[Ints, Ints]:
    """Without the `surplus` replicas that only filled up the last group."""
    while surplus > 0:
        cut = min(surplus, int(parts[-1]))
        parts[-1] -= cut
        surplus -= cut
        if parts[-1] == 0:
            nodes, parts = nodes[:-1], parts[:-1]
    return nodes, parts


def split(sizes: Ints, need: int) -> list[tuple[int, int]]:
    """Fewest children whose sizes reach `need`, and among those the smallest: (child, part)s.

    Largest first tells how many are needed; the smallest window of so many in ascending order
    keeps the big ones whole; the last part goes to the tightest child that holds it.
    """
    total = int(sizes.sum())
    if total == need:
        whole = sizes.nonzero()[0]
        return list(zip(whole.tolist(), sizes[whole].tolist(), strict=True))
    if int(sizes.max()) == 1:
        return [(i, 1) for i in sizes.nonzero()[0][:need].tolist()]
    ascending = np.argsort(sizes, kind="stable")
    ordered = sizes[ascending]
    how_many = int(np.searchsorted(np.cumsum(ordered[::-1]), need)) + 1
    sums = np.cumsum(np.concatenate(([0], ordered)))
    windows = sums[how_many:] - sums[:-how_many]
    start = int(np.searchsorted(windows, need))
    chosen = ascending[start : start + how_many]
    return _fill(sizes, ascending[:start], chosen, need)


def _fill(sizes: Ints, smaller: Ints, chosen: Ints, need: int) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    left = need
    for child in chosen[:0:-1]:
        part = min(left, int(sizes[child]))
        parts.append((int(child), part))
        left -= part
    last = int(chosen[0])
    tighter = smaller[np.searchsorted(sizes[smaller], left) :]
    if tighter.size:
        last = int(tighter[0])
    if left > 0:
        parts.append((last, left))
    return parts
