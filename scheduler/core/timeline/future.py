"""What is free when: releases of running jobs and claims of bookings on one field.

Used by the bookings of a pass and by estimates. Amounts are (4, nodes) matrices as in the grid.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from scheduler.core.calendar.ends import NEVER
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.field import Field
from scheduler.core.topology.grid import GPUS, RESOURCES, Bools, Ints

_TABLE_CELLS = 100_000
_MATRICES_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A job's end: its nodes (distinct, ascending) get the amounts back."""

    at: float
    job: str
    nodes: Ints
    amounts: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Nodes kept for a booked job over [start, until)."""

    job: str
    start: float
    until: float
    nodes: Ints
    amounts: Ints


class Future:
    """The time axis of one field. Releases that never come are left out."""

    def __init__(self, field: Field, releases: Iterable[Release]) -> None:
        self._field = field
        self._releases = sorted(
            (release for release in releases if release.at != NEVER),
            key=lambda release: (release.at, release.job),
        )
        self._ends = [release.at for release in self._releases]
        self._flat: tuple[Ints, Ints, Ints] | None = None
        self._gained: Ints | None = None
        self._free: dict[int, Ints] = {}

    def started(self, release: Release) -> None:
        """A job has started in this pass (its field has counted it) and will end."""
        self._free.clear()
        self._gained = None
        if release.at == NEVER:
            return
        position = bisect_right(self._ends, release.at)
        self._ends.insert(position, release.at)
        self._releases.insert(position, release)
        if self._flat is not None:
            self._flat = _inserted(self._flat, position, release)

    def reschedule(self, job: str, was: float, at: float) -> None:
        """A running job whose release was planned at `was` will end at another time."""
        for place in range(bisect_left(self._ends, was), bisect_right(self._ends, was)):
            release = self._releases[place]
            if release.job == job:
                del self._releases[place], self._ends[place]
                if self._flat is not None:
                    self._flat = _removed(self._flat, place)
                self.started(replace(release, at=at))
                return

    def times(self, after: float) -> list[float]:
        """The distinct times after `after` at which something is released."""
        later = self._ends[bisect_right(self._ends, after) :]
        return list(dict.fromkeys(later))

    def first_with(self, gpus: int) -> float:
        """A moment before which fewer GPUs are free than `gpus`, all nodes together; infinity if
        there is none."""
        if self._gained is None:
            _, amounts, offsets = self._flattened()
            self._gained = np.concatenate(([0], np.cumsum(amounts[GPUS])))[offsets[1:]]
        free = int(np.maximum(self._field.free[GPUS], 0).sum())
        if gpus <= free:
            return -NEVER
        place = int(np.searchsorted(self._gained, gpus - free))
        return self._ends[place] if place < len(self._ends) else NEVER

    def last_release(self, nodes: Ints, until: float) -> Release | None:
        """The latest release by `until` that touches any of the nodes."""
        for release in reversed(self._releases[: bisect_right(self._ends, until)]):
            if np.isin(release.nodes, nodes).any():
                return release
        return None

    def free_at(self, moment: float) -> Ints:
        """Free amounts at `moment` if only what runs now ran on; claims are not counted.

        Read only: it may be the field's own matrix.
        """
        count = bisect_right(self._ends, moment)
        found = self._free.get(count)
        if found is None:
            if len(self._free) >= _MATRICES_KEPT:
                self._free.clear()
            found = self._free[count] = self._free_after(count)
        return found

    def _free_after(self, count: int) -> Ints:
        if count == 0:
            return self._field.free
        nodes, amounts, offsets = self._flattened()
        upto = offsets[count]
        size = self._field.grid.size
        freed = np.stack(
            [
                np.bincount(nodes[:upto], weights=amounts[resource, :upto], minlength=size)
                for resource in range(RESOURCES)
            ]
        )
        return self._field.free + freed.astype(np.int64)

    def _flattened(self) -> tuple[Ints, Ints, Ints]:
        """Nodes and amounts of all releases in order, and where each begins."""
        if self._flat is None:
            nothing = np.zeros(0, dtype=np.int64)
            sizes = [release.nodes.size for release in self._releases]
            nodes = np.concatenate([nothing, *(r.nodes for r in self._releases)])
            amounts = np.concatenate(
                [np.zeros((RESOURCES, 0), dtype=np.int64), *(r.amounts for r in self._releases)],
                axis=1,
            )
            offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
            np.cumsum(sizes, out=offsets[1:])
            self._flat = (nodes, amounts, offsets)
        return self._flat

    def replicas_over_time(self, demand: Demand, usable: Bools) -> Ints | None:
        """For 0, 1, 2, … releases passed: replicas on all nodes together, claims not counted.

        None where the table of releases × nodes would be too large to be worth it.
        """
        size, count = self._field.grid.size, len(self._releases)
        if count == 0 or count * size > _TABLE_CELLS:
            return None
        nodes, amounts, offsets = self._flattened()
        which = np.repeat(np.arange(1, count + 1), np.diff(offsets))
        free = np.zeros((RESOURCES, count + 1, size), dtype=np.int64)
        for resource, request in enumerate(demand.request):
            if request > 0:
                # A job's nodes are distinct, so plain assignment loses nothing.
                free[resource, which, nodes] = amounts[resource]
                free[resource, 0] = self._field.free[resource]
                np.cumsum(free[resource], axis=0, out=free[resource])
        flat = free.reshape(RESOURCES, -1)
        cap = replica_capacity(demand, flat, None).reshape(count + 1, size)
        return np.asarray(cap[:, usable].sum(axis=1))

    def passed(self, moment: float) -> int:
        """How many releases have come by `moment`."""
        return bisect_right(self._ends, moment)

    def free_during(self, start: float, until: float, claims: Iterable[Claim]) -> Ints:
        """The least that is free on each node over [start, until), the claims counted.

        Releases inside the interval only add, so the least is at its start or where a claim
        begins inside it; each of those moments is looked at on the nodes that claims touch.
        """
        overlapping = [claim for claim in claims if claim.start < until and claim.until > start]
        free = self.free_at(start)
        if not overlapping:
            return free
        free = free.copy()
        moments = sorted({start, *(claim.start for claim in overlapping if claim.start > start)})
        if len(moments) == 1:
            for claim in overlapping:
                free[:, claim.nodes] -= claim.amounts
            return free
        touched = np.unique(np.concatenate([claim.nodes for claim in overlapping]))
        each = [self._claimed(moment, overlapping)[:, touched] for moment in moments]
        free[:, touched] = np.minimum.reduce(each)
        return free

    def _claimed(self, moment: float, claims: list[Claim]) -> Ints:
        free = self.free_at(moment).copy()
        for claim in claims:
            if claim.start <= moment < claim.until:
                free[:, claim.nodes] -= claim.amounts
        return free


def _inserted(
    flat: tuple[Ints, Ints, Ints], position: int, release: Release
) -> tuple[Ints, Ints, Ints]:
    nodes, amounts, offsets = flat
    at = int(offsets[position])
    return (
        np.concatenate((nodes[:at], release.nodes, nodes[at:])),
        np.concatenate((amounts[:, :at], release.amounts, amounts[:, at:]), axis=1),
        np.concatenate((offsets[: position + 1], offsets[position:] + release.nodes.size)),
    )


def _removed(flat: tuple[Ints, Ints, Ints], position: int) -> tuple[Ints, Ints, Ints]:
    nodes, amounts, offsets = flat
    first, last = int(offsets[position]), int(offsets[position + 1])
    return (
        np.concatenate((nodes[:first], nodes[last:])),
        np.concatenate((amounts[:, :first], amounts[:, last:]), axis=1),
        np.concatenate((offsets[:position], offsets[position + 1 :] - (last - first))),
    )
