"""One flavor's nodes during a pass: what is free, who may use which node.

Mutable within a pass: `take` when a gang starts, `give_back` when a trial is undone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.core.calendar.windows import Stay, WindowMap
from scheduler.core.placement.demand import Demand, limiting_resource
from scheduler.core.placement.gang import Placement, place, place_counted
from scheduler.core.placement.lens import Lens
from scheduler.core.placement.tally import Tally, TallyKey, tally_key, tally_of
from scheduler.core.topology.grid import GPUS, Bools, Ints


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on some nodes together for replicas of one size: for explanations."""

    replicas: int
    gpus: int
    nodes: int
    limiting_resource: str


class Field:
    """The state of one grid; `free` is (4, nodes) and may be negative where strangers sit.

    Change `free` only by `take` and `give_back`.
    """

    def __init__(self, lens: Lens, windows: WindowMap, free: Ints) -> None:
        self.lens = lens
        self.grid = lens.grid
        self.windows = windows
        self.free = free
        self._tallies: dict[TallyKey, Tally] = {}
        self._left: dict[TallyKey, tuple[Bools, Left]] = {}
        self._usable: dict[tuple[int, tuple[int, ...]], tuple[Bools, Bools]] = {}
        self.moves = 0
        """How often something was taken or given back."""
        self.most_gpus = int(np.maximum(free[GPUS], 0).sum())

    def is_short_of(self, gpus: int) -> bool:
        """Whether fewer than `gpus` GPUs are free on all nodes together (no false alarm)."""
        return gpus > self.most_gpus

    def tally(self, demand: Demand, usable: Bools) -> Tally:
        """Replicas per node and domain as things are. Read only; good until something is taken."""
        key = tally_key(demand, usable)
        found = self._tallies.get(key)
        if found is None or found.usable is not usable or not any(demand.request):
            found = self._tallies[key] = tally_of(self.grid, demand, self.free, usable)
        found.is_wanted = True
        return found

    def place(
        self, demands: tuple[Demand, ...], usable: Bools, *, once: bool = False
    ) -> Placement | None:
        """A place for the gang on what is free now. `once`: nobody will ask for these nodes again."""
        if len(demands) == 1 and not once:
            return place_counted(self.grid, demands[0], self.tally(demands[0], usable).counts)
        return place(self.grid, demands, self.free, usable)

    def fits(self, demands: tuple[Demand, ...], usable: Bools) -> bool:
        """Whether the gang has a place at its least size."""
        if len(demands) == 1:
            return self.tally(demands[0], usable).holds(demands[0])
        return place(self.grid, demands, self.free, usable) is not None

    def is_short(self, demand: Demand, usable: Bools) -> bool:
        """Whether all usable nodes together hold too few replicas of the role."""
        return self.left(demand, usable).replicas < demand.least

    def left(self, demand: Demand, usable: Bools) -> Left:
        """What the usable nodes together have left for replicas of this size."""
        key = tally_key(demand, usable)
        found = self._left.get(key)
        if found is None or found[0] is not usable:
            cap = self.tally(demand, usable).cap
            left = Left(
                replicas=int(cap.sum()),
                gpus=int(np.maximum(self.free[GPUS], 0)[usable].sum()),
                nodes=int((cap > 0).sum()),
                limiting_resource=limiting_resource(demand, self.free, usable),
            )
            found = self._left[key] = (usable, left)
        return found[1]

    def take(self, nodes: Ints, amounts: Ints) -> None:
        """Nodes (distinct) lose the amounts."""
        self.free[:, nodes] -= amounts
        self.most_gpus -= int(amounts[GPUS].sum())
        self._moved(nodes)

    def give_back(self, nodes: Ints, amounts: Ints) -> None:
        """Undo `take`."""
        self.free[:, nodes] += amounts
        self.most_gpus += int(amounts[GPUS].sum())
        self._moved(nodes)

    def _moved(self, nodes: Ints) -> None:
        """Tallies that were asked for since the last change follow this one; others are dropped."""
        self.moves += 1
        self._left.clear()
        self._tallies = {key: tally for key, tally in self._tallies.items() if tally.is_wanted}
        for tally in self._tallies.values():
            tally.refresh(self.grid, self.free, nodes)
            tally.is_wanted = False

    def usable(self, stay: Stay) -> Bools:
        """Nodes that may take this stay: matching, new enough, in, and not kept by a window."""
        return self._without_windows(self.lens.view(stay.ask).inside, stay)

    def usable_alone(self, stay: Stay) -> Bools | None:
        """Suspect nodes that may take this stay if it needs no other node; None without any."""
        alone = self.lens.view(stay.ask).masks.alone
        return None if alone is None else self._without_windows(alone, stay)

    def _without_windows(self, nodes: Bools, stay: Stay) -> Bools:
        """The same object for the same windows, so that equal jobs share tallies."""
        blocking = self.windows.blocking(stay)
        if not blocking:
            return nodes
        key = (id(nodes), tuple(id(window) for window, _ in blocking))
        found = self._usable.get(key)
        if found is None:
            found = self._usable[key] = (nodes, nodes & ~self.windows.nodes_of(blocking))
        return found[1]
