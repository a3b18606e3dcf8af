"""One flavor's nodes during a pass: what is free, who may use which node.

Mutable within a pass: `take` when a gang starts, `give_back` when a trial is undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.calendar.windows import Stay, WindowMap
from scheduler.core.inputs.jobs import Ask
from scheduler.core.placement.demand import Demand, demand_of, replica_capacity
from scheduler.core.placement.gang import Placement, place, place_counted
from scheduler.core.placement.search import bubble_up
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints

_VIEWS_KEPT = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One ask on one grid. Masks are over nodes, in or out, whatever is free.

    `matching` nodes are those that the ask's selector and exclusions allow; `new_enough` those of
    them whose driver has the CUDA version asked; `inside` those of them that are in. `demands` are
    at full size, `least` at the smallest size that may start, which takes `least_gpus` and at
    least `least_nodes` of this flavor's nodes when they are empty.
    """

    ask: Ask
    demands: tuple[Demand, ...]
    least: tuple[Demand, ...]
    least_gpus: int
    least_nodes: int
    matching: Bools
    new_enough: Bools
    inside: Bools


class Lens:
    """A grid as asks see it: views derived once per ask and kept in the memo."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._views: dict[int, View] = {}
        self._empty: dict[object, list[Ints]] = {}
        self._masks: dict[object, tuple[Bools, Bools, Bools]] = {}

    def view(self, ask: Ask) -> View:
        """The ask on this grid. Raises UnknownLevelError."""
        found = self._views.get(id(ask))
        if found is None or found.ask is not ask:
            if len(self._views) > _VIEWS_KEPT:
                self._views.clear()
            found = self._views[id(ask)] = self._look(ask)
        return found

    def _look(self, ask: Ask) -> View:
        demands = tuple(demand_of(role, self.grid) for role in ask.roles)
        least = tuple(replace(demand, count=demand.least) for demand in demands)
        gpus = sum(demand.count * demand.request[GPUS] for demand in least)
        nodes = sum(self._nodes_for(demand) for demand in least)
        return View(ask, demands, least, gpus, nodes, *self._masks_of(ask))

    def holds_empty(self, view: View) -> bool:
        """Whether the nodes that are in, all free, hold the ask at its smallest size."""
        if len(view.least) != 1:
            return place(self.grid, view.least, self.grid.capacity, view.inside) is not None
        demand = view.least[0]
        key = (demand.request, demand.groups_of, demand.layers, id(view.inside))
        found = self._empty.get(key)
        if found is None:
            cap = replica_capacity(demand, self.grid.capacity, view.inside)
            found = self._empty[key] = bubble_up(self.grid, cap, demand.layers)
        return place_counted(self.grid, demand, found) is not None

    def _nodes_for(self, demand: Demand) -> int:
        fits = replica_capacity(demand, self.grid.capacity, None)
        most = int(fits.max()) if fits.size else 0
        return -(-demand.count // most) if most > 0 else demand.count

    def _masks_of(self, ask: Ask) -> tuple[Bools, Bools, Bools]:
        key = (ask.node_selector, ask.exclude_nodes, ask.min_cuda)
        found = self._masks.get(key)
        if found is None:
            matching = _matching(self.grid, ask)
            new_enough = matching
            if ask.min_cuda is not None:
                new_enough = matching & _cuda_at_least(self.grid, ask.min_cuda)
            found = self._masks[key] = (matching, new_enough, new_enough & self.grid.is_in)
        return found


class Field:
    """The state of one grid; `free` is (4, nodes) and may be negative where strangers sit."""

    def __init__(self, lens: Lens, windows: WindowMap, free: Ints) -> None:
        self.lens = lens
        self.grid = lens.grid
        self.windows = windows
        self.free = free
        self._counts: dict[object, tuple[Bools, Ints, list[Ints]]] = {}
        self._most_gpus = int(np.maximum(free[GPUS], 0).sum())

    def is_short_of(self, gpus: int) -> bool:
        """Whether fewer than `gpus` GPUs are free on all nodes together (no false alarm)."""
        return gpus > self._most_gpus

    def capacity(self, demand: Demand, usable: Bools) -> Ints:
        """Replicas per node as things are. Read only."""
        return self._counted(demand, usable)[1]

    def counts(self, demand: Demand, usable: Bools) -> list[Ints]:
        """Replicas in whole groups per domain for each tier, root first. Read only."""
        return self._counted(demand, usable)[2]

    def _counted(self, demand: Demand, usable: Bools) -> tuple[Bools, Ints, list[Ints]]:
        """Kept until something is taken: jobs of equal replicas, however many, share it."""
        key = (demand.request, demand.groups_of, demand.layers, id(usable))
        found = self._counts.get(key)
        if found is None or found[0] is not usable or not any(demand.request):
            cap = replica_capacity(demand, self.free, usable)
            found = (usable, cap, bubble_up(self.grid, cap, demand.layers))
            self._counts[key] = found
        return found

    def place(self, demands: tuple[Demand, ...], usable: Bools) -> Placement | None:
        """A place for the gang on what is free now."""
        if len(demands) == 1:
            return place_counted(self.grid, demands[0], self.counts(demands[0], usable))
        return place(self.grid, demands, self.free, usable)

    def is_short(self, demands: tuple[Demand, ...], usable: Bools) -> bool:
        """Whether all usable nodes together hold too few replicas of some role."""
        return any(int(self.capacity(demand, usable).sum()) < demand.least for demand in demands)

    def take(self, nodes: Ints, amounts: Ints) -> None:
        """Nodes (distinct) lose the amounts."""
        self._counts.clear()
        self.free[:, nodes] -= amounts
        self._most_gpus -= int(amounts[GPUS].sum())

    def give_back(self, nodes: Ints, amounts: Ints) -> None:
        """Undo `take`."""
        self._counts.clear()
        self.free[:, nodes] += amounts
        self._most_gpus += int(amounts[GPUS].sum())

    def usable(self, stay: Stay) -> Bools:
        """Nodes that may take this stay: matching, new enough, in, and not kept by a window."""
        usable = self.lens.view(stay.ask).inside
        blocked = self.windows.blocked(stay)
        return usable if blocked is None else usable & ~blocked


def _matching(grid: Grid, ask: Ask) -> Bools:
    wanted = set(ask.node_selector)
    if not wanted and not ask.exclude_nodes:
        return np.ones(grid.size, dtype=np.bool_)
    return np.array(
        [node.name not in ask.exclude_nodes and wanted <= set(node.labels) for node in grid.nodes],
        dtype=np.bool_,
    )


def _cuda_at_least(grid: Grid, version: tuple[int, int]) -> Bools:
    return np.array(
        [node.cuda is not None and node.cuda >= version for node in grid.nodes], dtype=np.bool_
    )
