"""A whole gang on one grid: its roles together, its elastic size, its survivors in place.

Called by the cycle for each job that passed its gates, by preemption to verify its victims and
by the timeline to try a moment in the future. Nothing here changes the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.inputs.jobs import Seat
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.search import (
    bubble_up,
    choose,
    choose_from,
    most_replicas,
)
from scheduler.core.topology.grid import GPUS, RESOURCES, Bools, Grid, Ints

_DOMAINS_TRIED = 16


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One role's share: `counts[i]` replicas on node `nodes[i]`, in grid order.

    `kept` are seats of survivors, which keep their replica numbers; counts do not include them.
    """

    demand: Demand
    nodes: Ints
    counts: Ints
    kept: tuple[Seat, ...] = ()

    @property
    def replicas(self) -> int:
        """Replicas of the role, survivors included."""
        return int(self.counts.sum()) + len(self.kept)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A gang's parts and the lowest tier with one domain that holds all of them."""

    grid: Grid
    tier: int
    domain: int
    parts: tuple[Part, ...]

    def usage(self) -> tuple[Ints, Ints]:
        """(nodes, (4, nodes) amounts): what the gang takes, ready to subtract."""
        chunks = [_part_usage(self.grid, part) for part in self.parts]
        if len(chunks) == 1:
            return chunks[0]
        nodes = np.concatenate([chunk[0] for chunk in chunks])
        amounts = np.concatenate([chunk[1] for chunk in chunks], axis=1)
        distinct, where = np.unique(nodes, return_inverse=True)
        total = np.zeros((RESOURCES, distinct.size), dtype=np.int64)
        for resource in range(RESOURCES):
            np.add.at(total[resource], where, amounts[resource])
        return distinct, total

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return sum(part.replicas * part.demand.request[GPUS] for part in self.parts)


def _part_usage(grid: Grid, part: Part) -> tuple[Ints, Ints]:
    nodes, counts = part.nodes, part.counts
    if part.kept:
        kept = np.array([grid.index[seat.node] for seat in part.kept], dtype=np.int64)
        both = np.concatenate((nodes, kept))
        weights = np.concatenate((counts, np.ones(kept.size, dtype=np.int64)))
        nodes, where = np.unique(both, return_inverse=True)
        counts = np.zeros(nodes.size, dtype=np.int64)
        np.add.at(counts, where, weights)
    return nodes, np.outer(np.array(part.demand.request, dtype=np.int64), counts)


def place(grid: Grid, demands: Sequence[Demand], free: Ints, usable: Bools) -> Placement | None:
    """The gang at its full size or, when elastic, at the largest size that fits."""
    if len(demands) == 1:
        return _place_one(grid, demands[0], free, usable)
    full = place_sizes(grid, demands, [demand.count for demand in demands], (free, usable))
    if full is not None or all(demand.least == demand.count for demand in demands):
        return full
    return _largest_of_many(grid, demands, free, usable)


def _place_one(grid: Grid, demand: Demand, free: Ints, usable: Bools) -> Placement | None:
    counts = bubble_up(grid, replica_capacity(demand, free, usable), demand.layers)
    return place_counted(grid, demand, counts)


def place_counted(grid: Grid, demand: Demand, counts: list[Ints]) -> Placement | None:
    """`place` for a gang of one role whose counts per tier are known already."""
    size = demand.count
    if demand.least < demand.count:
        size = min(size, most_replicas(grid, counts, demand))
        if size < demand.count:
            size = max(size // demand.granule * demand.granule, 0)
        if size < max(demand.least, 1):
            return None
    choice = choose_from(grid, counts, demand, size)
    if choice is None:
        return None
    part = Part(demand, choice.nodes, choice.counts)
    return Placement(grid, choice.tier, choice.domain, (part,))


def _largest_of_many(
    grid: Grid, demands: Sequence[Demand], free: Ints, usable: Bools
) -> Placement | None:
    """Binary search over sizes between least and full, all roles growing in step."""
    steps = max(demand.count - demand.least for demand in demands)
    best = None
    low, high = 0, steps - 1
    while low <= high:
        middle = (low + high) // 2
        sizes = [_step_size(demand, middle, steps) for demand in demands]
        found = place_sizes(grid, demands, sizes, (free, usable))
        if found is None:
            high = middle - 1
        else:
            best, low = found, middle + 1
    return best


def _step_size(demand: Demand, step: int, steps: int) -> int:
    grown = (demand.count - demand.least) * step // steps
    return demand.least + grown // demand.granule * demand.granule


def place_sizes(
    grid: Grid, demands: Sequence[Demand], sizes: Sequence[int], room: tuple[Ints, Bools]
) -> Placement | None:
    """Roles of given sizes together in the lowest domain that holds all of them.

    Domains are tried from narrow to wide, the tightest first. At most 16 domains a tier are tried.
    """
    free, usable = room
    gpus = sum(size * demand.request[GPUS] for size, demand in zip(sizes, demands, strict=True))
    free_gpus = np.where(usable, np.maximum(free[GPUS], 0), 0)
    capacities = [bubble_up(grid, replica_capacity(demand, free, usable), ()) for demand in demands]
    for tier in range(grid.node_tier, -1, -1):
        starts = grid.tiers[tier].starts
        if not grid.size:
            return None
        totals = np.add.reduceat(free_gpus, starts[:-1])
        holds = totals >= gpus
        for size, capacity in zip(sizes, capacities, strict=True):
            holds &= capacity[tier] >= size
        candidates = np.flatnonzero(holds)
        tightest = candidates[np.argsort(totals[candidates], kind="stable")][:_DOMAINS_TRIED]
        for domain in tightest:
            parts = _pack(grid, demands, sizes, (free, _within(usable, starts, int(domain))))
            if parts is not None:
                return Placement(grid, tier, int(domain), parts)
    return None


def _within(usable: Bools, starts: Ints, domain: int) -> Bools:
    inside = np.zeros_like(usable)
    first, last = int(starts[domain]), int(starts[domain + 1])
    inside[first:last] = usable[first:last]
    return inside


def _pack(
    grid: Grid, demands: Sequence[Demand], sizes: Sequence[int], room: tuple[Ints, Bools]
) -> tuple[Part, ...] | None:
    """The roles one after another: those that may spread least first; if that fails, those with the
    largest replicas first."""
    roles = range(len(demands))
    bound_first = sorted(
        roles, key=lambda i: (-demands[i].limit_tier, -demands[i].request[GPUS], i)
    )
    found = _pack_in(bound_first, grid, demands, sizes, room)
    big_first = sorted(roles, key=lambda i: (-demands[i].request[GPUS], i))
    if found is not None or big_first == bound_first:
        return found
    return _pack_in(big_first, grid, demands, sizes, room)


def _pack_in(
    order: Sequence[int],
    grid: Grid,
    demands: Sequence[Demand],
    sizes: Sequence[int],
    room: tuple[Ints, Bools],
) -> tuple[Part, ...] | None:
    free, usable = room[0].copy(), room[1]
    parts: dict[int, Part] = {}
    for i in order:
        demand = demands[i]
        choice = choose(grid, replica_capacity(demand, free, usable), demand, sizes[i])
        if choice is None:
            return None
        parts[i] = Part(demand, choice.nodes, choice.counts)
        free[:, choice.nodes] -= np.outer(np.array(demand.request), choice.counts)
    return tuple(parts[i] for i in range(len(demands)))


def place_beside(
    grid: Grid,
    demands: Sequence[Demand],
    survivors: Sequence[Seat],
    free: Ints,
    usable: Bools,
) -> Placement | None:
    """A swap: survivors keep node and rank, all lost replicas find a place near them, or None.

    The lost replicas go to the narrowest domain around the survivors that holds them, never
    outside the domain that is required; those of a slice join its survivors in their domain.
    """
    if not survivors or any(seat.node not in grid.index for seat in survivors):
        return None
    homes = np.array([grid.index[seat.node] for seat in survivors], dtype=np.int64)
    layers = [layer for demand in demands for layer in demand.layers]
    if not usable[homes].all() or (layers and (len(demands), len(layers)) != (1, 1)):
        return None
    free = free.copy()
    requests = {demand.role: demand.request for demand in demands}
    for seat in survivors:
        free[:, grid.index[seat.node]] -= np.array(requests[seat.role], dtype=np.int64)
    if (free[:, homes] < 0).any():
        return None
    return _around(grid, demands, (survivors, homes), (free, usable))


def _around(
    grid: Grid,
    demands: Sequence[Demand],
    survivors: tuple[Sequence[Seat], Ints],
    room: tuple[Ints, Bools],
) -> Placement | None:
    seats, homes = survivors
    kept = {d.role: tuple(seat for seat in seats if seat.role == d.role) for d in demands}
    missing = [demand.count - len(kept[demand.role]) for demand in demands]
    limit = max(demand.limit_tier for demand in demands)
    for tier in range(grid.node_tier, limit - 1, -1):
        domains = grid.tiers[tier].of_node[homes]
        if (domains != domains[0]).any():
            continue
        domain = int(domains[0])
        inside = _within(room[1], grid.tiers[tier].starts, domain)
        if demands[0].layers:
            part = _join_groups(grid, demands[0], survivors, (room[0], inside))
            if part is not None:
                return Placement(grid, tier, domain, (part,))
            continue
        parts = _pack_missing(grid, demands, missing, (room[0], inside))
        if parts is not None:
            whole = tuple(Part(p.demand, p.nodes, p.counts, kept[p.demand.role]) for p in parts)
            return Placement(grid, tier, domain, whole)
    return None


def _join_groups(
    grid: Grid, demand: Demand, survivors: tuple[Sequence[Seat], Ints], room: tuple[Ints, Bools]
) -> Part | None:
    """The lost replicas of each group in the domain of its survivors, groups lost whole in any.

    `demand` has one layer. Groups with survivors, which have no choice, go first. Nodes of the part
    are in the order of the replicas that are lost, as `seats_of` numbers them.
    """
    seats, homes = survivors
    at = {seat.replica: int(home) for seat, home in zip(seats, homes, strict=True)}
    layer = demand.layers[0]
    tier = grid.tiers[layer.tier]
    alone = replace(demand, layers=(), limit_tier=layer.tier)
    groups = [
        range(i, min(i + layer.size, demand.count)) for i in range(0, demand.count, layer.size)
    ]
    free, found = room[0].copy(), {}
    for group in sorted(groups, key=lambda group: not any(r in at for r in group)):
        lost = sum(replica not in at for replica in group)
        if not lost:
            continue
        stays = [at[replica] for replica in group if replica in at]
        usable = _within(room[1], tier.starts, int(tier.of_node[stays[0]])) if stays else room[1]
        choice = choose(grid, replica_capacity(alone, free, usable), alone, lost)
        if choice is None:
            return None
        free[:, choice.nodes] -= np.outer(np.array(demand.request), choice.counts)
        found[group.start] = choice
    ordered = [found[start] for start in sorted(found)]
    nothing = np.zeros(0, dtype=np.int64)
    return Part(
        demand,
        np.concatenate([nothing, *(choice.nodes for choice in ordered)]),
        np.concatenate([nothing, *(choice.counts for choice in ordered)]),
        tuple(seats),
    )


def _pack_missing(
    grid: Grid, demands: Sequence[Demand], missing: Sequence[int], room: tuple[Ints, Bools]
) -> tuple[Part, ...] | None:
    short = [i for i, count in enumerate(missing) if count > 0]
    packed = _pack(grid, [demands[i] for i in short], [missing[i] for i in short], room)
    if packed is None:
        return None
    nothing = np.zeros(0, dtype=np.int64)
    by_index = dict(zip(short, packed, strict=True))
    return tuple(
        by_index.get(i, Part(demand, nothing, nothing)) for i, demand in enumerate(demands)
    )
