"""What a warm caller keeps between plans: things derived from unchanged objects.

Nothing here changes what a plan says, only how fast: an entry counts only while the object that
it was derived from is the very same one. A fresh `Memo` gives the same plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.identity import ask_key
from scheduler.core.inputs.cluster import Flavor, Node
from scheduler.core.inputs.jobs import Ask, RunningJob, WaitingJob
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.order.line import age_key
from scheduler.core.placement.lens import Lens
from scheduler.core.quota.accounts import Totals, usage_group
from scheduler.core.reasons import Reason
from scheduler.core.topology.grid import RESOURCES, Grid, Ints, build_grid, patched

_ASKS_KEPT = 100_000

Aged = tuple[tuple[int, float, str], WaitingJob]
"""A waiting job behind its key in line."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """A running job's nodes (ascending indexes) and (4, nodes) amounts on its grid."""

    job: RunningJob
    nodes: Ints
    amounts: Ints
    gpus: int


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Free amounts per flavor (the caller's to change), holdings in order, GPUs per group."""

    free: dict[str, Ints]
    holdings: list[Holding]
    totals: Totals


@dataclass(slots=True)
class Memo:
    """Caches that a caller may pass to successive `plan` calls of one cluster."""

    _nodes: tuple[Node, ...] = ()
    _levels: tuple[str, ...] = ()
    _flavors: tuple[Flavor, ...] = ()
    _lenses: dict[str, Lens] = field(default_factory=dict)
    _holdings: dict[str, Holding] = field(default_factory=dict)
    _free: dict[str, Ints] = field(default_factory=dict)
    _totals: Totals = field(default_factory=dict)
    _keys: dict[tuple[int, bool], tuple[Ask, str]] = field(default_factory=dict)

    _least: dict[int, tuple[Ask, int]] = field(default_factory=dict)
    _waiting: dict[str, WaitingJob] = field(default_factory=dict)
    _waiting_rows: tuple[WaitingJob, ...] = ()
    _lines: dict[tuple[str, str], list[Aged]] = field(default_factory=dict)

    static_refusals: dict[str, dict[int, tuple[Ask, Reason | None]]] = field(default_factory=dict)
    """What an empty cluster refuses, by flavor and ask; emptied whenever a node changes."""

    def lenses(self, snapshot: Snapshot) -> dict[str, Lens]:
        """The grid of each flavor with what is derived from it."""
        same_frame = self._levels == snapshot.cluster.levels and self._flavors == snapshot.flavors
        if same_frame and self._nodes is snapshot.nodes:
            return self._lenses
        changed = _changed(self._nodes, snapshot.nodes) if same_frame else None
        if changed is None:
            self._rebuild(snapshot)
        elif changed:
            self._patch(changed)
        self._nodes = snapshot.nodes
        return self._lenses

    def _rebuild(self, snapshot: Snapshot) -> None:
        self._levels, self._flavors = snapshot.cluster.levels, snapshot.flavors
        self._lenses = {
            flavor.name: Lens(build_grid(flavor, snapshot.nodes, snapshot.cluster.levels))
            for flavor in snapshot.flavors
        }
        self._holdings, self._totals = {}, {}
        self._free = {
            name: lens.grid.capacity - lens.grid.foreign for name, lens in self._lenses.items()
        }
        self.static_refusals = {}

    def _patch(self, changed: list[Node]) -> None:
        """Nodes that changed in place: the tree, and what jobs hold, stay as they are."""
        by_flavor: dict[str, list[Node]] = defaultdict(list)
        for node in changed:
            if node.flavor in self._lenses:
                by_flavor[node.flavor].append(node)
        for name, nodes in by_flavor.items():
            old = self._lenses[name].grid
            new = patched(old, nodes)
            self._free[name] += (new.capacity - new.foreign) - (old.capacity - old.foreign)
            places = np.array([new.index[node.name] for node in nodes], dtype=np.int64)
            self._lenses[name].patch(new, places)
            self.static_refusals.pop(name, None)

    def ledger(self, snapshot: Snapshot) -> Ledger:
        """What the snapshot's running jobs hold; only those that changed are counted anew.

        Call `lenses` first.
        """
        known = self._holdings
        kept: dict[str, Holding] = {}
        for job in snapshot.running:
            holding = known.get(job.id)
            if holding is None or holding.job is not job:
                lens = self._lenses.get(job.flavor)
                if lens is None:
                    continue
                self._forget(holding)
                holding = _holding(job, lens.grid)
                self._count(holding, 1)
            kept[job.id] = holding
        if len(kept) < len(known) or known.keys() - kept.keys():
            for job_id in known.keys() - kept.keys():
                self._forget(known[job_id])
        self._holdings = kept
        free = {name: matrix.copy() for name, matrix in self._free.items()}
        return Ledger(free, list(kept.values()), dict(self._totals))

    def _forget(self, holding: Holding | None) -> None:
        if holding is not None:
            self._count(holding, -1)

    def _count(self, holding: Holding, sign: int) -> None:
        job = holding.job
        self._free[job.flavor][:, holding.nodes] -= sign * holding.amounts
        group = usage_group(job.ask, job.flavor)
        left = self._totals.get(group, 0) + sign * holding.gpus
        if left:
            self._totals[group] = left
        else:
            self._totals.pop(group, None)

    def lines(self, snapshot: Snapshot) -> dict[tuple[str, str], list[WaitingJob]]:
        """The waiting jobs of each (tenant, queue) by priority, age, id; only jobs that came, went
        or changed are sorted in or out."""
        if self._waiting_rows is not snapshot.waiting:
            self._follow_waiting(snapshot.waiting)
        return {place: [job for _, job in line] for place, line in self._lines.items()}

    def _follow_waiting(self, rows: tuple[WaitingJob, ...]) -> None:
        known = self._waiting
        now = {job.id: job for job in rows}
        gone = [job for job_id, job in known.items() if now.get(job_id) is not job]
        come = [job for job_id, job in now.items() if known.get(job_id) is not job]
        if 4 * (len(gone) + len(come)) > len(now):
            self._lines, gone, come = {}, [], list(now.values())
        for job in gone:
            line = self._lines[job.ask.tenant, job.ask.queue]
            del line[bisect_left(line, (age_key(job),))]
            if not line:
                del self._lines[job.ask.tenant, job.ask.queue]
        fresh: dict[tuple[str, str], list[Aged]] = defaultdict(list)
        for job in come:
            fresh[job.ask.tenant, job.ask.queue].append((age_key(job), job))
        for place, entries in fresh.items():
            line = self._lines.setdefault(place, [])
            line.extend(entries)
            line.sort(key=_first)
        self._waiting, self._waiting_rows = now, rows

    def least_gpus(self, ask: Ask) -> int:
        """`Ask.least_gpus`, remembered for the object."""
        found = self._least.get(id(ask))
        if found is None or found[0] is not ask:
            if len(self._least) > _ASKS_KEPT:
                self._least.clear()
            found = self._least[id(ask)] = (ask, ask.least_gpus)
        return found[1]

    def key(self, ask: Ask, *, by_user: bool) -> str:
        """`ask_key`, remembered for the object."""
        found = self._keys.get((id(ask), by_user))
        if found is not None and found[0] is ask:
            return found[1]
        key = ask_key(ask, by_user=by_user)
        if len(self._keys) > _ASKS_KEPT:
            self._keys.clear()
        self._keys[id(ask), by_user] = (ask, key)
        return key


def _first(entry: Aged) -> tuple[int, float, str]:
    return entry[0]


def _changed(old: tuple[Node, ...], new: tuple[Node, ...]) -> list[Node] | None:
    """The nodes that differ in place; None when nodes came, went or moved."""
    if len(old) != len(new):
        return None
    changed = []
    for before, after in zip(old, new, strict=True):
        if before is after:
            continue
        if (before.name, before.flavor, before.domains) != (
            after.name,
            after.flavor,
            after.domains,
        ):
            return None
        changed.append(after)
    return changed


def _holding(job: RunningJob, grid: Grid) -> Holding:
    per_node: dict[int, list[int]] = {}
    gpus = 0
    for seat in job.seats:
        gpus += seat.gpus
        index = grid.index.get(seat.node)
        if index is None:
            continue
        row = per_node.setdefault(index, [0] * RESOURCES)
        row[0] += seat.gpus
        row[1] += seat.cpu_millis
        row[2] += seat.memory_mib
        row[3] += 1
    nodes = np.array(sorted(per_node), dtype=np.int64)
    amounts = np.array([per_node[i] for i in sorted(per_node)], dtype=np.int64)
    return Holding(job, nodes, amounts.reshape(-1, RESOURCES).T, gpus)
