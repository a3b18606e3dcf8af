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
from scheduler.core.order.line import Aged, age_key, is_plain
from scheduler.core.placement.lens import Lens
from scheduler.core.quota.accounts import Totals, usage_group
from scheduler.core.reasons import Reason
from scheduler.core.roster import Holding, Roster, roster_of
from scheduler.core.topology.grid import RESOURCES, Grid, Ints, build_grid, patched

_ASKS_KEPT = 100_000
_GROUPS_KEPT = 50_000

Place = tuple[str, str]
"""A tenant and one of its queues."""


@dataclass(slots=True)
class Lines:
    """Waiting jobs by priority, age, id: those of each place, and all together.

    `special` are the ids of jobs that are not like their class: with times or dependencies of their
    own, or with survivors. Kept in the memo and moved by the jobs that came and went; read only.
    """

    by_place: dict[Place, list[WaitingJob]] = field(default_factory=dict)
    aged: list[Aged] = field(default_factory=list)
    jobs: dict[str, WaitingJob] = field(default_factory=dict)
    special: set[str] = field(default_factory=set)
    _by_place: dict[Place, list[Aged]] = field(default_factory=dict)

    def follow(self, rows: tuple[WaitingJob, ...]) -> None:
        """Only jobs that came, went or changed are sorted in or out."""
        known, self.jobs = self.jobs, {job.id: job for job in rows}
        gone = [job for job_id, job in known.items() if self.jobs.get(job_id) is not job]
        come = [job for job_id, job in self.jobs.items() if known.get(job_id) is not job]
        if 4 * (len(gone) + len(come)) > len(rows):
            self._by_place, self.aged, self.by_place = {}, [], {}
            self.special, gone, come = set(), [], list(rows)
        touched = {_place(job) for job in (*gone, *come)}
        for job in gone:
            _take_out(self.aged, job)
            _take_out(self._by_place[_place(job)], job)
            self.special.discard(job.id)
        fresh: dict[Place, list[Aged]] = defaultdict(list)
        for job in come:
            fresh[_place(job)].append((age_key(job), job, _place(job)))
            if not is_plain(job):
                self.special.add(job.id)
        for place, entries in fresh.items():
            line = self._by_place.setdefault(place, [])
            line.extend(entries)
            line.sort()
            self.aged.extend(entries)
        if come:
            self.aged.sort()
        for place in touched:
            self._renew(place)

    def _renew(self, place: Place) -> None:
        line = self._by_place[place]
        if line:
            self.by_place[place] = [entry[1] for entry in line]
        else:
            del self._by_place[place]
            self.by_place.pop(place, None)


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Free amounts per flavor (the caller's to change), rosters per flavor, GPUs per group."""

    free: dict[str, Ints]
    rosters: dict[str, Roster]
    totals: Totals


@dataclass(slots=True)
class Memo:
    """Caches that a caller may pass to successive `plan` calls of one cluster."""

    _nodes: tuple[Node, ...] = ()
    _levels: tuple[str, ...] = ()
    _flavors: tuple[Flavor, ...] = ()
    _lenses: dict[str, Lens] = field(default_factory=dict)
    _holdings: dict[str, Holding] = field(default_factory=dict)
    _rosters: dict[str, Roster] = field(default_factory=dict)
    _free: dict[str, Ints] = field(default_factory=dict)
    _totals: Totals = field(default_factory=dict)
    _keys: dict[tuple[int, bool], tuple[Ask, str]] = field(default_factory=dict)

    _least: dict[int, tuple[Ask, int]] = field(default_factory=dict)
    _lines: Lines = field(default_factory=Lines)
    _waiting_rows: tuple[WaitingJob, ...] = ()

    static_refusals: dict[str, dict[int, tuple[Ask, Reason | None]]] = field(default_factory=dict)
    """What an empty cluster refuses, by flavor and ask; emptied whenever a node changes."""

    quota_refusals: dict[str, dict[int, tuple[Ask, Reason | None]]] = field(default_factory=dict)
    """What quota refuses for ever, by flavor and ask; emptied whenever a quota or limit changes."""
    _policy: tuple[object, ...] = ()

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
        self._holdings, self._totals, self._rosters = {}, {}, {}
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
        known, kept, come = self._holdings, dict[str, Holding](), list[Holding]()
        for job in snapshot.running:
            holding = known.get(job.id)
            if holding is None or holding.job is not job:
                lens = self._lenses.get(job.flavor)
                if lens is None:
                    continue
                holding = _holding(job, lens.grid)
                come.append(holding)
            kept[job.id] = holding
        gone = [held for job_id, held in known.items() if kept.get(job_id) is not held]
        if gone or come:
            self._follow(gone, come)
        self._holdings = kept
        free = {name: matrix.copy() for name, matrix in self._free.items()}
        rosters = {name: self._rosters.get(name) or Roster() for name in self._lenses}
        return Ledger(free, rosters, dict(self._totals))

    def _follow(self, gone: list[Holding], come: list[Holding]) -> None:
        """Count holdings that went and came, flavor by flavor."""
        for holding in gone:
            self._count(holding, -1)
        for holding in come:
            self._count(holding, 1)
        for flavor in {held.job.flavor for held in (*gone, *come)}:
            old = self._rosters.get(flavor)
            if old is None or len(old.names.groups) > _GROUPS_KEPT:
                here = [h for h in self._holdings.values() if h.job.flavor == flavor]
                old = roster_of(here)
            left = {held.job.id for held in gone if held.job.flavor == flavor}
            here = [held for held in come if held.job.flavor == flavor]
            self._rosters[flavor] = old.changed(left, here)

    def _count(self, holding: Holding, sign: int) -> None:
        job = holding.job
        self._free[job.flavor][:, holding.nodes] -= sign * holding.amounts
        group = usage_group(job.ask, job.flavor)
        left = self._totals.get(group, 0) + sign * holding.gpus
        if left:
            self._totals[group] = left
        else:
            self._totals.pop(group, None)

    def follow_policy(self, snapshot: Snapshot) -> None:
        """Forget what rests on quotas or limits that are not the same objects any more."""
        policy = (snapshot.tenants, snapshot.cohorts, snapshot.queues, snapshot.user_limits)
        if len(self._policy) != len(policy) or any(
            old is not new for old, new in zip(self._policy, policy, strict=True)
        ):
            self._policy, self.quota_refusals = policy, {}

    def lines(self, snapshot: Snapshot) -> Lines:
        """The waiting jobs in order; see `Lines`."""
        if self._waiting_rows is not snapshot.waiting:
            self._lines.follow(snapshot.waiting)
            self._waiting_rows = snapshot.waiting
        return self._lines

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


def _place(job: WaitingJob) -> Place:
    return (job.ask.tenant, job.ask.queue)


def _take_out(line: list[Aged], job: WaitingJob) -> None:
    del line[bisect_left(line, (age_key(job),))]


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
