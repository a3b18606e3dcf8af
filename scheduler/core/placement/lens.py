"""A grid as asks see it: demands and masks, derived once per ask and kept in the memo between plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.inputs.jobs import Ask
from scheduler.core.placement.demand import Demand, demand_of, replica_capacity
from scheduler.core.placement.gang import place
from scheduler.core.placement.tally import Tally, TallyKey, tally_key, tally_of
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints

_VIEWS_KEPT = 50_000

MaskKey = tuple[tuple[tuple[str, str], ...], frozenset[str], tuple[int, int] | None]


@dataclass(slots=True, eq=False)
class Masks:
    """Which nodes an ask may use, in or out, whatever is free; shared by asks that say the same.

    `matching` nodes are those that the selector and exclusions allow; `new_enough` those of them
    whose driver has the CUDA version asked; `inside` those of them that are in; `alone` those of
    them that take jobs of one node only (suspects), None when there are none. `causes` counts why
    the others of `new_enough` are out, once somebody has asked. Arrays are never changed, only
    replaced.
    """

    matching: Bools
    new_enough: Bools
    inside: Bools
    alone: Bools | None
    causes: Counter[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One ask on one grid.

    `demands` are at full size, `least` at the smallest size that may start, which takes
    `least_gpus` and at least `least_nodes` of this flavor's nodes when they are empty.
    """

    ask: Ask
    demands: tuple[Demand, ...]
    least: tuple[Demand, ...]
    least_gpus: int
    least_nodes: int
    masks: Masks

    @property
    def matching(self) -> Bools:
        """See `Masks`."""
        return self.masks.matching

    @property
    def new_enough(self) -> Bools:
        """See `Masks`."""
        return self.masks.new_enough

    @property
    def inside(self) -> Bools:
        """See `Masks`."""
        return self.masks.inside


class Lens:
    """A grid with the views of all asks that were looked at; `patch` follows nodes that change."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._views: dict[int, View] = {}
        self._empty: dict[TallyKey, Tally] = {}
        self._masks: dict[MaskKey, Masks] = {}

    def patch(self, grid: Grid, places: Ints) -> None:
        """The grid with the nodes at these places replaced (same names and domains)."""
        old, self.grid = self.grid, grid
        if not np.array_equal(old.capacity[:, places], grid.capacity[:, places]):
            # How many nodes a gang needs when they are empty may have changed.
            self._views.clear()
        for (selector, excluded, cuda), masks in self._masks.items():
            fresh = _masks_of(grid, (selector, excluded, cuda), places)
            masks.matching = _put(masks.matching, places, fresh.matching)
            masks.new_enough = _put(masks.new_enough, places, fresh.new_enough)
            masks.inside = _put(masks.inside, places, fresh.inside)
            masks.alone = _alone(masks.new_enough, grid)
            masks.causes = None
        self._empty.clear()

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
        return View(ask, demands, least, gpus, nodes, self._masks_of(ask))

    def holds_empty(self, view: View) -> bool:
        """Whether the nodes that are in, all free, hold the ask at its smallest size."""
        if len(view.least) != 1:
            return place(self.grid, view.least, self.grid.capacity, view.inside) is not None
        demand = view.least[0]
        if self._empty_tally(demand, view.inside).holds(demand):
            return True
        alone = view.masks.alone
        if alone is None:
            return False
        return self._empty_tally(demand, alone).holds(on_one_node(self.grid, demand))

    def causes(self, view: View) -> Counter[str]:
        """How many nodes are out for which cause, of those that the ask could use."""
        found = view.masks.causes
        if found is None:
            out = np.flatnonzero(view.new_enough & ~self.grid.is_in)
            found = Counter(str(cause) for i in out.tolist() for cause in self.grid.nodes[i].outs)
            view.masks.causes = found
        return found

    def _empty_tally(self, demand: Demand, usable: Bools) -> Tally:
        key = tally_key(demand, usable)
        found = self._empty.get(key)
        if found is None:
            found = self._empty[key] = tally_of(self.grid, demand, self.grid.capacity, usable)
        return found

    def _nodes_for(self, demand: Demand) -> int:
        fits = replica_capacity(demand, self.grid.capacity, None)
        most = int(fits.max()) if fits.size else 0
        return -(-demand.count // most) if most > 0 else demand.count

    def _masks_of(self, ask: Ask) -> Masks:
        key = (ask.node_selector, ask.exclude_nodes, ask.min_cuda)
        found = self._masks.get(key)
        if found is None:
            every = np.arange(self.grid.size)
            found = self._masks[key] = _masks_of(self.grid, key, every)
            found.alone = _alone(found.new_enough, self.grid)
        return found


def on_one_node(grid: Grid, demand: Demand) -> Demand:
    """The demand with all its replicas on one node."""
    return replace(demand, limit_tier=grid.node_tier)


def _masks_of(grid: Grid, key: MaskKey, places: Ints) -> Masks:
    """The masks over the nodes at these places alone."""
    selector, excluded, cuda = key
    nodes = [grid.nodes[i] for i in places.tolist()]
    wanted = set(selector)
    if not wanted and not excluded:
        matching = np.ones(len(nodes), dtype=np.bool_)
    else:
        matching = np.array(
            [node.name not in excluded and wanted <= set(node.labels) for node in nodes],
            dtype=np.bool_,
        )
    new_enough = matching
    if cuda is not None:
        new_enough = matching & np.array(
            [node.cuda is not None and node.cuda >= cuda for node in nodes], dtype=np.bool_
        )
    return Masks(matching, new_enough, new_enough & grid.is_in[places], None)


def _alone(new_enough: Bools, grid: Grid) -> Bools | None:
    alone = new_enough & grid.is_suspect
    return alone if alone.any() else None


def _put(whole: Bools, places: Ints, part: Bools) -> Bools:
    changed = whole.copy()
    changed[places] = part
    return changed
