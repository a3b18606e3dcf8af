"""One flavor's nodes during a pass: what is free, who may use which node.

Mutable within a pass: `take` when a gang starts, `give_back` when a trial is undone.
"""

from __future__ import annotations

import numpy as np

from scheduler.core.calendar.windows import Stay, WindowMap
from scheduler.core.inputs.jobs import Ask
from scheduler.core.placement.demand import Demand, demand_of
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints


class Lens:
    """What one grid looks like to asks: masks and demands, derived once and kept in the memo."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._matching: dict[object, Bools] = {}
        self._new_enough: dict[object, Bools] = {}
        self._inside: dict[object, Bools] = {}
        self._demands: dict[object, tuple[Demand, ...]] = {}

    def demands(self, ask: Ask) -> tuple[Demand, ...]:
        """The ask's roles on this grid. Raises UnknownLevelError."""
        found = self._demands.get(ask.roles)
        if found is None:
            found = tuple(demand_of(role, self.grid) for role in ask.roles)
            self._demands[ask.roles] = found
        return found

    def matching(self, ask: Ask) -> Bools:
        """Nodes that the ask's selector and exclusions allow, in or out."""
        key = (ask.node_selector, ask.exclude_nodes)
        found = self._matching.get(key)
        if found is None:
            found = self._matching[key] = _matching(self.grid, ask)
        return found

    def new_enough(self, ask: Ask) -> Bools:
        """`matching` nodes whose driver has the CUDA version asked."""
        if ask.min_cuda is None:
            return self.matching(ask)
        key = (ask.node_selector, ask.exclude_nodes, ask.min_cuda)
        found = self._new_enough.get(key)
        if found is None:
            found = self.matching(ask) & _cuda_at_least(self.grid, ask.min_cuda)
            self._new_enough[key] = found
        return found

    def inside(self, ask: Ask) -> Bools:
        """`new_enough` nodes that are in: what the ask may use when no window is near."""
        key = (ask.node_selector, ask.exclude_nodes, ask.min_cuda)
        found = self._inside.get(key)
        if found is None:
            found = self._inside[key] = self.new_enough(ask) & self.grid.is_in
        return found


class Field:
    """The state of one grid; `free` is (4, nodes) and may be negative where strangers sit."""

    def __init__(self, lens: Lens, windows: WindowMap, free: Ints) -> None:
        self.lens = lens
        self.grid = lens.grid
        self.windows = windows
        self.free = free
        self._most_gpus = int(np.maximum(free[GPUS], 0).sum())

    def is_short_of(self, gpus: int) -> bool:
        """Whether fewer than `gpus` GPUs are free on all nodes together (no false alarm)."""
        return gpus > self._most_gpus

    def take(self, nodes: Ints, amounts: Ints) -> None:
        """Nodes (distinct) lose the amounts."""
        self.free[:, nodes] -= amounts
        self._most_gpus -= int(amounts[GPUS].sum())

    def give_back(self, nodes: Ints, amounts: Ints) -> None:
        """Undo `take`."""
        self.free[:, nodes] += amounts
        self._most_gpus += int(amounts[GPUS].sum())

    def usable(self, stay: Stay) -> Bools:
        """Nodes that may take this stay: matching, new enough, in, and not kept by a window."""
        usable = self.lens.inside(stay.ask)
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
