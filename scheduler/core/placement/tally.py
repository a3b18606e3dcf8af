"""How many replicas of one size nodes and domains hold, kept up to date where something is taken.

Counting a large grid anew for each job would be most of a plan's work: a `Field` keeps a tally per
size of replica and set of nodes, and only the nodes that change are counted again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.core.placement.demand import Demand, Layer, replica_capacity
from scheduler.core.placement.search import bubble_up, rounded
from scheduler.core.topology.grid import Bools, Grid, Ints

TallyKey = tuple[tuple[int, int, int, int], int, tuple[Layer, ...], int]


@dataclass(slots=True, eq=False)
class Tally:
    """Replicas per node (`cap`) and, in whole groups, per domain of each tier, root first (`counts`).

    Arrays are the tally's own and move under `refresh`.
    """

    demand: Demand
    usable: Bools
    cap: Ints
    counts: list[Ints]
    is_wanted: bool = True
    """Whether it was asked for since nodes last changed."""
    _most: list[int] | None = None

    @property
    def most(self) -> list[int]:
        """The largest count of each tier."""
        if self._most is None:
            self._most = [int(tier.max()) if tier.size else 0 for tier in self.counts]
        return self._most

    def refresh(self, grid: Grid, free: Ints, nodes: Ints) -> None:
        """Count these nodes (distinct) again."""
        fresh = replica_capacity(self.demand, free[:, nodes], self.usable[nodes])
        delta = fresh - self.cap[nodes]
        if not delta.any():
            return
        self.cap[nodes] = fresh
        if self.demand.layers:
            self.counts = bubble_up(grid, self.cap, self.demand.layers)
        else:
            self._add(grid, nodes, delta)
        self._most = None

    def _add(self, grid: Grid, nodes: Ints, delta: Ints) -> None:
        # Without groups a domain's count is the plain sum over its nodes; the narrowest tier is `cap`.
        for tier, counts in zip(grid.tiers[:-1], self.counts[:-1], strict=True):
            np.add.at(counts, tier.of_node[nodes], delta)

    def fits(self) -> bool:
        """Whether a domain within the demand's limit holds its least size."""
        return self.holds(self.demand)

    def holds(self, demand: Demand) -> bool:
        """Whether a domain within the limit of `demand`, a demand of equal replicas, holds its least size."""
        most = self.most
        if not demand.layers:
            # A wider domain holds whatever a narrower one does.
            return most[demand.limit_tier] >= demand.least
        return any(
            most[position] >= rounded(demand.least, demand, position)
            for position in range(len(most) - 1, demand.limit_tier - 1, -1)
        )


def tally_key(demand: Demand, usable: Bools) -> TallyKey:
    """Demands with equal keys share a tally while `usable` is the same object."""
    return (demand.request, demand.groups_of, demand.layers, id(usable))


def tally_of(grid: Grid, demand: Demand, free: Ints, usable: Bools) -> Tally:
    """A fresh count of all nodes."""
    cap = replica_capacity(demand, free, usable)
    counts = bubble_up(grid, cap, demand.layers)
    return Tally(demand, usable, cap, counts)
