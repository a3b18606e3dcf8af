"""What is free when: releases of running jobs and claims of bookings on one field.

Used by the bookings of a pass and by estimates. Amounts are (4, nodes) matrices as in the grid.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.calendar.ends import NEVER
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.field import Field
from scheduler.core.roster import Floats
from scheduler.core.topology.grid import GPUS, Bools, Ints
from scheduler.core.topology.spans import Spans

_MATRICES_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A job's end: its nodes (distinct, ascending) get the amounts back."""

    at: float
    job: str
    nodes: Ints
    amounts: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Releases entry by entry, an entry being one node of one release.

    `gained` (4, entries) is what the entry's node has got back by then, `before` the node's entry
    before this one (−1: none), `after` its next (the number of entries: none).
    """

    nodes: Ints
    gained: Ints
    before: Ints
    after: Ints

    def latest(self, count: int) -> Ints:
        """The last of each node's entries among the first `count`."""
        return (self.after[:count] >= count).nonzero()[0]


class Future:
    """The time axis of one field. Releases that never come are left out."""

    def __init__(self, field: Field, jobs: Sequence[str], ends: Floats, spans: Spans) -> None:
        """`jobs` (by id) end at `ends` and give back `spans`."""
        self._field = field
        order = np.argsort(ends, kind="stable")
        order = order[: int(np.searchsorted(ends[order], NEVER))]
        self._ends: list[float] = ends[order].tolist()
        self._jobs = [jobs[i] for i in order.tolist()]
        self._spans = spans.picked(order)
        self._forget()

    def _forget(self) -> None:
        """Something has moved: what is derived must be derived again."""
        self._steps: _Steps | None = None
        self._times: list[float] | None = None
        self._gained: Ints | None = None
        self._forget_free()

    def _forget_free(self) -> None:
        self._free: dict[int, Ints] = {}
        self._capacities: dict[tuple[object, ...], Capacity] = {}
        self._moves = self._field.moves

    def _follow_field(self) -> None:
        """What is free may have moved otherwise than by a start: holds are kept and released."""
        if self._moves != self._field.moves:
            self._forget_free()

    def started(self, release: Release) -> None:
        """A job has started in this pass (its field has counted it) and will end."""
        self._forget()
        if release.at == NEVER:
            return
        first, last = bisect_left(self._ends, release.at), bisect_right(self._ends, release.at)
        place = bisect_left(self._jobs, release.job, first, last)
        self._ends.insert(place, release.at)
        self._jobs.insert(place, release.job)
        self._spans = self._spans.inserted(place, release.nodes, release.amounts)

    def reschedule(self, job: str, was: float, at: float) -> None:
        """A running job whose release was planned at `was` will end at another time."""
        for place in range(bisect_left(self._ends, was), bisect_right(self._ends, was)):
            if self._jobs[place] == job:
                release = self._release(place)
                del self._ends[place], self._jobs[place]
                self._spans = self._spans.without(place)
                self.started(replace(release, at=at))
                return

    def _release(self, place: int) -> Release:
        first, last = self._spans.offsets[place : place + 2].tolist()
        nodes, amounts = self._spans.nodes[first:last], self._spans.amounts[:, first:last]
        return Release(self._ends[place], self._jobs[place], nodes, amounts)

    @property
    def times(self) -> list[float]:
        """The distinct times at which something is released."""
        if self._times is None:
            self._times = list(dict.fromkeys(self._ends))
        return self._times

    def first_with(self, gpus: int) -> float:
        """A moment before which fewer GPUs are free than `gpus`, all nodes together; infinity if
        there is none."""
        if self._gained is None:
            sums = np.cumsum(self._spans.amounts[GPUS])
            self._gained = np.concatenate(([0], sums))[self._spans.offsets[1:]]
        free = int(np.maximum(self._field.free[GPUS], 0).sum())
        if gpus <= free:
            return -NEVER
        place = int(np.searchsorted(self._gained, gpus - free))
        return self._ends[place] if place < len(self._ends) else NEVER

    def last_release(self, nodes: Ints, until: float) -> Release | None:
        """The latest release by `until` that touches any of the nodes."""
        count = int(self._spans.offsets[bisect_right(self._ends, until)])
        mask = np.zeros(self._field.grid.size, dtype=np.bool_)
        mask[nodes] = True
        touching = mask[self._spans.nodes[:count]].nonzero()[0]
        if not touching.size:
            return None
        entry = int(touching[-1])
        return self._release(int(np.searchsorted(self._spans.offsets, entry, side="right")) - 1)

    def _passed(self, moment: float) -> int:
        """How many entries have been released by `moment`."""
        return int(self._spans.offsets[bisect_right(self._ends, moment)])

    def free_at(self, moment: float) -> Ints:
        """Free amounts at `moment` if only what runs now ran on; claims are not counted.

        Read only: it may be the field's own matrix.
        """
        count = self._passed(moment)
        if count == 0:
            return self._field.free
        self._follow_field()
        found = self._free.get(count)
        if found is None:
            if len(self._free) >= _MATRICES_KEPT:
                self._free.clear()
            steps = self.steps
            latest = steps.latest(count)
            found = self._free[count] = self._field.free.copy()
            found[:, steps.nodes[latest]] += steps.gained[:, latest]
        return found

    def free_on(self, nodes: Ints, moment: float) -> Ints:
        """`free_at` on these nodes alone."""
        count = self._passed(moment)
        free: Ints = self._field.free[:, nodes]
        if count:
            steps = self.steps
            latest = steps.latest(count)
            entry_of = np.full(self._field.grid.size, -1)
            entry_of[steps.nodes[latest]] = latest
            entries = entry_of[nodes]
            released = np.flatnonzero(entries >= 0)
            free[:, released] += steps.gained[:, entries[released]]
        return free

    def free_kept(self, nodes: Ints, moment: float) -> Ints:
        """`free_on` by way of the matrix that `free_at` keeps, for moments that are asked for often."""
        free: Ints = self.free_at(moment)[:, nodes]
        return free

    @property
    def steps(self) -> _Steps:
        """The releases entry by entry."""
        if self._steps is None:
            self._steps = _steps_of(self._spans)
        return self._steps

    def capacity(self, demand: Demand) -> Capacity:
        """How many replicas of this size nodes hold as jobs end."""
        # A replica that asks for nothing fits as often as it is wanted.
        wanted = 0 if any(demand.request) else demand.count
        key = (demand.request, demand.groups_of, demand.domain_gpus, wanted)
        self._follow_field()
        found = self._capacities.get(key)
        if found is None:
            found = self._capacities[key] = Capacity(self._field, self.steps, demand)
        return found

    def replicas_at(self, demand: Demand, moment: float) -> Ints:
        """Replicas that each node holds at `moment`, claims not counted. The caller's to change."""
        return self.capacity(demand).at(self._passed(moment))

    def first_holding(self, demand: Demand, usable: Bools) -> float:
        """The first moment at which a domain at the demand's limit holds it, claims not counted:
        −infinity when one does now, infinity when none ever does. `demand` has no layers."""
        entry = self.capacity(demand).first(demand, usable)
        if entry is None:
            return NEVER
        if entry < 0:
            return -NEVER
        return self._ends[int(np.searchsorted(self._spans.offsets, entry, side="right")) - 1]


class Capacity:
    """Replicas of one size per node, now and after each release."""

    def __init__(self, field: Field, steps: _Steps, demand: Demand) -> None:
        self._grid, self._steps = field.grid, steps
        self._now = replica_capacity(demand, field.free, None)
        then = field.free[:, steps.nodes] + steps.gained
        self._then = replica_capacity(demand, then, None)
        self._sums: dict[tuple[int, int], tuple[Bools, Ints, Ints, int]] = {}

    def at(self, count: int) -> Ints:
        """Per node after the first `count` entries."""
        caps = self._now.copy()
        latest = self._steps.latest(count)
        caps[self._steps.nodes[latest]] = self._then[latest]
        return caps

    def first(self, demand: Demand, usable: Bools) -> int | None:
        """The first entry after which a domain of the limit's tier holds the demand; −1 when one
        does without any, None when none ever does."""
        entries, sums, most = self._over_time(demand.limit_tier, usable)
        if most >= demand.count:
            return -1
        holding = entries[sums >= demand.count]
        return int(holding.min()) if holding.size else None

    def _over_time(self, tier_index: int, usable: Bools) -> tuple[Ints, Ints, int]:
        """Entries by domain and time, what the entry's domain holds after each, and the most that
        one domain holds now."""
        found = self._sums.get((tier_index, id(usable)))
        if found is None or found[0] is not usable:
            # A grid without nodes has no domains: the root then holds nothing.
            tier_index = tier_index if self._grid.size else 0
            tier, steps = self._grid.tiers[tier_index], self._steps
            now = np.where(usable, self._now, 0)
            previous = np.where(steps.before >= 0, self._then[steps.before], self._now[steps.nodes])
            more = np.where(usable[steps.nodes], self._then - previous, 0)
            if tier_index == 0:
                most = int(now.sum())
                order, sums = np.arange(more.size), most + more.cumsum()
            else:
                by_domain = np.add.reduceat(now, tier.starts[:-1])
                domains = tier.of_node[steps.nodes]
                order = domains.argsort(kind="stable")
                sums = by_domain[domains[order]] + _running_sums(domains[order], more[order])
                most = int(by_domain.max())
            found = self._sums[tier_index, id(usable)] = (usable, order, sums, most)
        return found[1:]


def _steps_of(spans: Spans) -> _Steps:
    count = spans.nodes.size
    order = spans.nodes.argsort(kind="stable")
    nodes = spans.nodes[order]
    if not (nodes[1:] == nodes[:-1]).any():
        return _Steps(spans.nodes, spans.amounts, np.full(count, -1), np.full(count, count))
    gained = np.empty_like(spans.amounts)
    gained[:, order] = _running_sums(nodes, spans.amounts[:, order])
    before, after = np.full(count, -1), np.full(count, count)
    same = nodes[1:] == nodes[:-1]
    before[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    return _Steps(spans.nodes, gained, before, after)


def _running_sums(groups: Ints, amounts: Ints) -> Ints:
    """Running sums along the last axis, from the start of each run of equal `groups`."""
    sums: Ints = np.cumsum(amounts, axis=-1)
    if not groups.size:
        return sums
    firsts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    runs = np.diff(np.append(firsts, groups.size))
    return sums - np.repeat(sums[..., firsts] - amounts[..., firsts], runs, axis=-1)
