"""The search for victims: per domain, elastic surplus first, verified by placement, minimised.

Nothing is evicted on hope: a set of victims counts only when the preemptor, placed on what they
would free, fits whole and within quota; then the set is gone through backwards and every victim
that is not needed is given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scheduler.core.inputs.jobs import Ask, EvictionRule, RunningJob
from scheduler.core.placement.demand import Demand
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place, place_counted
from scheduler.core.placement.tally import Tally, tally_of
from scheduler.core.preemption.rules import Limits, protection, rule_for
from scheduler.core.quota.accounts import Accounts
from scheduler.core.quota.shares import share
from scheduler.core.roster import Holding, Roster
from scheduler.core.topology.grid import GPUS, RESOURCES, Bools, Ints
from scheduler.core.topology.spans import spans_of

_DOMAINS_TRIED = 8
_REFUSALS_TOLD = 5


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A victim, or the surplus of an elastic one (`keeps` replicas stay).

    `nodes` and `amounts` are what it frees, `gpus` how many of them are GPUs; `job_gpus` are those
    of the whole job.
    """

    job: RunningJob
    job_gpus: int
    keeps: int
    nodes: Ints
    amounts: Ints
    gpus: int
    lost_gpu_seconds: float


class _Room:
    """What is free in one domain while victims are chosen and given back."""

    def __init__(self, field: Field, preemptor: Preemptor, mask: Bools) -> None:
        self.mask = mask
        self.free = field.free.copy()
        self._grid = field.grid
        self._demands = preemptor.demands
        self._tally: Tally | None = None
        if len(preemptor.demands) == 1:
            self._tally = tally_of(field.grid, preemptor.demands[0], self.free, mask)

    def move(self, unit: Unit, sign: int) -> None:
        """The unit leaves (1) or comes back (−1)."""
        self.free[:, unit.nodes] += sign * unit.amounts
        if self._tally is not None:
            self._tally.refresh(self._grid, self.free, unit.nodes)

    def free_gpus(self) -> int:
        """GPUs that are free in the domain."""
        return int(np.maximum(self.free[GPUS], 0)[self.mask].sum())

    def gpus_without(self, unit: Unit) -> int:
        """How many fewer GPUs are free in the domain when the unit comes back."""
        nodes = unit.nodes
        free = self.free[GPUS, nodes]
        lost = np.maximum(free, 0) - np.maximum(free - unit.amounts[GPUS], 0)
        return int(lost[self.mask[nodes]].sum())

    @property
    def knows(self) -> bool:
        """Whether `fits` is certain: there is a place whenever it says so."""
        return self._tally is not None

    def fits(self) -> bool:
        """Whether the preemptor has a place (several roles: whether it might)."""
        return self._tally is None or self._tally.fits()

    def place(self) -> Placement | None:
        """The preemptor's place."""
        if self._tally is None:
            return place(self._grid, self._demands, self.free, self.mask)
        return place_counted(self._grid, self._demands[0], self._tally.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Victims with their rules, in the order chosen, and the place that they make."""

    units: tuple[tuple[Unit, EvictionRule], ...]
    placement: Placement

    @property
    def cost(self) -> tuple[float, int, int]:
        """What is compared between domains: GPU seconds lost, GPUs stopped, jobs stopped."""
        return (
            sum(unit.lost_gpu_seconds for unit, _ in self.units),
            sum(unit.gpus for unit, _ in self.units),
            len(self.units),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """Who needs room: its demands at least size and the nodes that it may use."""

    ask: Ask
    demands: tuple[Demand, ...]
    usable: Bools
    gpus: int


class Search:
    """Looks for victims on one field. Accounts and field are as they were when it returns."""

    def __init__(self, field: Field, accounts: Accounts, roster: Roster, limits: Limits) -> None:
        self._field = field
        self._accounts = accounts
        self._limits = limits
        self._roster = roster
        self._gone: set[str] = set()
        self._units = _Units(field, roster, limits)
        self._is_left = np.ones(self._units.count, dtype=np.bool_)

    def find(self, preemptor: Preemptor) -> Found | None:
        """The cheapest proven set of victims over the likeliest domains, or None."""
        for strict in (True, False) if self._accounts.has_fair_cohorts else (True,):
            candidates = self._candidates(preemptor, strict=strict)
            best: Found | None = None
            for mask in self._domains(preemptor, candidates):
                found = self._find_in(preemptor, candidates, mask, strict=strict)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
            if best is not None:
                return best
        return None

    def refused(self, preemptor: Preemptor, found: Found) -> tuple[tuple[str, str], ...]:
        """Jobs that were not chosen, with the reason, those with the most seats first."""
        chosen = {unit.job.id for unit, _ in found.units} | self._gone
        told: list[tuple[str, str]] = []
        for place_ in self._largest:
            if len(told) == _REFUSALS_TOLD:
                break
            job = self._roster.holdings[place_].job
            if job.id in chosen:
                continue
            why = protection(job, self._limits)
            if why is None:
                rule = rule_for(self._accounts, preemptor.ask, job, preemptor.gpus)
                why = "no_rule" if rule is None else "not_needed"
            told.append((job.id, why))
        return tuple(told)

    @cached_property
    def _largest(self) -> list[int]:
        """Places in the roster, those of jobs with the most seats first, then by id."""
        order: list[int] = np.argsort(-self._roster.rows["seats"], kind="stable").tolist()
        return order

    def drop(self, job_ids: set[str]) -> None:
        """These jobs are victims by now: later searches do not see them."""
        self._gone |= job_ids
        places = [self._roster.place_of(job_id) for job_id in job_ids]
        gone = [place_ for place_ in places if place_ is not None]
        self._is_left &= ~np.isin(self._units.holders, gone)

    def _candidates(self, preemptor: Preemptor, *, strict: bool) -> list[int]:
        """Places in `_units` of those that some rule might allow, the best victims first: surplus,
        then tenants with the highest share, then `_worth`.

        A rule looks at a victim's tenant and, inside the preemptor's own, at its priority, else at
        its size: it is asked once for each of those.
        """
        flat, left = self._units, np.flatnonzero(self._is_left)
        if not left.size:
            return []
        tenants = flat.tenants[left]
        is_own = tenants == flat.names.tenants.get(preemptor.ask.tenant, -1)
        ranks = np.where(is_own, flat.priorities[left], flat.job_gpus[left])
        kinds_of = tenants * (int(ranks.max()) + 1) + ranks
        _, firsts, kinds = np.unique(kinds_of, return_index=True, return_inverse=True)
        may = [
            self._might(preemptor, flat.job(int(left[i])), strict=strict) for i in firsts.tolist()
        ]
        allowed = left[np.array(may, dtype=np.bool_)[kinds]]
        shares = np.array([self._share_of(name) for name in flat.names.tenants])
        keys = (allowed, -shares[flat.tenants[allowed]], flat.is_whole[allowed])
        ordered: list[int] = allowed[np.lexsort(keys)].tolist()
        return ordered

    def _share_of(self, tenant: str) -> float:
        account = self._accounts.account(tenant, self._field.grid.flavor.name)
        return 0.0 if account is None else share(account)

    def _might(self, preemptor: Preemptor, victim: RunningJob, *, strict: bool) -> bool:
        rule = rule_for(self._accounts, preemptor.ask, victim, preemptor.gpus, strict=strict)
        return rule is not None

    def _domains(self, preemptor: Preemptor, candidates: list[int]) -> Iterator[Bools]:
        """Masks of the domains at the preemptor's limit that could hold it, least victims first."""
        grid = self._field.grid
        tier_index = max(demand.limit_tier for demand in preemptor.demands)
        tier = grid.tiers[tier_index]
        free = np.where(preemptor.usable, np.maximum(self._field.free[GPUS], 0), 0)
        freed = np.where(preemptor.usable, self._units.freed(candidates, grid.size), 0)
        now = np.add.reduceat(free, tier.starts[:-1])
        then = now + np.add.reduceat(freed, tier.starts[:-1])
        possible = np.flatnonzero(then >= preemptor.gpus)
        most_free = possible[np.argsort(-now[possible], kind="stable")][:_DOMAINS_TRIED]
        for domain in most_free.tolist():
            mask = np.zeros(grid.size, dtype=np.bool_)
            span = slice(int(tier.starts[domain]), int(tier.starts[domain + 1]))
            mask[span] = preemptor.usable[span]
            yield mask

    def _find_in(
        self, preemptor: Preemptor, candidates: list[int], mask: Bools, *, strict: bool
    ) -> Found | None:
        chosen: list[tuple[Unit, EvictionRule]] = []
        room = _Room(self._field, preemptor, mask)
        short = preemptor.gpus - room.free_gpus()
        touching = self._units.touching(mask)
        with self._undone(chosen):
            quota_short = self._is_quota_short(preemptor)
            for place_ in candidates:
                # It must free something in the domain, or quota that is missing.
                if not (quota_short or touching[place_]):
                    continue
                unit = self._units.unit(place_)
                rule = rule_for(
                    self._accounts, preemptor.ask, unit.job, preemptor.gpus, strict=strict
                )
                if rule is None:
                    continue
                short -= self._choose(chosen, (unit, rule), room)
                quota_short = self._is_quota_short(preemptor)
                if short > 0 or quota_short or not room.fits():
                    continue
                placement = room.place()
                if placement is not None:
                    return self._minimised(preemptor, chosen, room, placement)
        return None

    def _is_quota_short(self, preemptor: Preemptor) -> bool:
        flavor = self._field.grid.flavor.name
        return preemptor.gpus > self._accounts.room(preemptor.ask, flavor)

    def _choose(
        self, chosen: list[tuple[Unit, EvictionRule]], pair: tuple[Unit, EvictionRule], room: _Room
    ) -> int:
        """Add the unit; when it is a whole job whose surplus was chosen, it takes that's place.

        Returns the GPUs that come free in the domain.
        """
        unit = pair[0]
        gained = int(unit.amounts[GPUS][room.mask[unit.nodes]].sum())
        for place_, (other, _) in enumerate(chosen):
            if other.job is unit.job:
                self._count(other, room, -1)
                gained -= int(other.amounts[GPUS][room.mask[other.nodes]].sum())
                del chosen[place_]
                break
        chosen.append(pair)
        self._count(unit, room, 1)
        return gained

    def _count(self, unit: Unit, room: _Room, sign: int) -> None:
        room.move(unit, sign)
        self._accounts.add(unit.job.ask, unit.job.flavor, -sign * unit.gpus)

    @contextmanager
    def _undone(self, chosen: list[tuple[Unit, EvictionRule]]) -> Iterator[None]:
        try:
            yield
        finally:
            for unit, _ in chosen:
                self._accounts.add(unit.job.ask, unit.job.flavor, unit.gpus)

    def _minimised(
        self,
        preemptor: Preemptor,
        chosen: list[tuple[Unit, EvictionRule]],
        room: _Room,
        placement: Placement,
    ) -> Found:
        """Go backwards through the set and give back each victim that is not needed."""
        spare = room.free_gpus() - preemptor.gpus
        for pair in list(reversed(chosen)):
            lost = room.gpus_without(pair[0])
            if lost > spare:
                continue
            self._count(pair[0], room, -1)
            if self._is_quota_short(preemptor) or not room.fits():
                self._count(pair[0], room, 1)
                continue
            without = placement if room.knows else room.place()
            if without is None:
                self._count(pair[0], room, 1)
                continue
            placement = without
            spare -= lost
            chosen.remove(pair)
        return Found(tuple(chosen), (room.place() if room.knows else None) or placement)


class _Units:
    """All jobs of a roster that may be stopped, and the surplus of elastic ones, as arrays in order of
    worth: low priority, low cost, newest first, then by id, surplus before the whole."""

    def __init__(self, field: Field, roster: Roster, limits: Limits) -> None:
        self._roster, rows = roster, roster.rows
        self._lost = roster.lost_gpu_seconds(limits.now)
        whole = np.flatnonzero(_unprotected(roster, limits))
        elastic = whole[rows["is_elastic"][whole]].tolist()
        surplus = [(i, _surplus(field, roster.holdings[i], float(self._lost[i]))) for i in elastic]
        extra = [(i, unit) for i, unit in surplus if unit is not None]
        holders = np.concatenate((whole, np.array([i for i, _ in extra], dtype=np.int64)))
        is_whole = np.arange(holders.size) < whole.size
        worth = (
            holders,
            -rows["placed_at"][holders],
            self._lost[holders],
            rows["priority"][holders],
        )
        order = np.lexsort((is_whole, *worth))
        spans = roster.spans.picked(whole)
        if extra:
            spans = spans.followed_by(spans_of([(unit.nodes, unit.amounts) for _, unit in extra]))
        self.count = order.size
        self.holders, self.is_whole = holders[order], is_whole[order]
        self.names = roster.names
        self.tenants = rows["tenant"][self.holders]
        self.priorities = rows["priority"][self.holders]
        self.job_gpus = rows["gpus"][self.holders]
        spans = spans.picked(order)
        self._nodes, self._gpus, self._owner = spans.nodes, spans.amounts[GPUS], spans.owners
        self._made: dict[int, Unit] = {}
        for place_ in np.flatnonzero(~self.is_whole).tolist():
            self._made[place_] = extra[int(order[place_]) - whole.size][1]

    def job(self, place_: int) -> RunningJob:
        """The job of a unit."""
        return self._roster.holdings[int(self.holders[place_])].job

    def unit(self, place_: int) -> Unit:
        """The unit at a place in this order."""
        found = self._made.get(place_)
        if found is None:
            holder = int(self.holders[place_])
            held = self._roster.holdings[holder]
            found = self._made[place_] = Unit(
                held.job,
                held.gpus,
                0,
                held.nodes,
                held.amounts,
                held.gpus,
                float(self._lost[holder]),
            )
        return found

    def freed(self, units: list[int], size: int) -> Ints:
        """GPUs per node that these units hold, an elastic job's surplus counted twice."""
        counted = np.zeros(self.count, dtype=np.bool_)
        counted[units] = True
        mine = counted[self._owner]
        freed = np.bincount(self._nodes[mine], weights=self._gpus[mine], minlength=size)
        return freed.astype(np.int64)

    def touching(self, mask: Bools) -> Bools:
        """For each unit whether it has a node in the mask."""
        touching = np.zeros(self.count, dtype=np.bool_)
        touching[self._owner[mask[self._nodes]]] = True
        return touching


def _unprotected(roster: Roster, limits: Limits) -> Bools:
    """For each job whether `protection` has nothing against stopping it."""
    rows, queues = roster.rows, limits.queues
    least = [
        queues[name].min_runtime_seconds if name in queues else 0.0 for name in roster.names.queues
    ]
    has_run = limits.now - rows["placed_at"] >= np.array([*least, 0.0])[rows["queue"]]
    allowed: Bools = rows["may_stop"] & (rows["preemptions"] < limits.budget) & has_run
    return allowed


def _surplus(field: Field, holding: Holding, lost: float) -> Unit | None:
    """What an elastic job of one role holds above its least size: its last replicas."""
    job = holding.job
    if len(job.ask.roles) != 1 or len(job.seats) <= job.ask.roles[0].least_replicas:
        return None
    keeps = job.ask.roles[0].least_replicas
    extra = sorted(job.seats, key=lambda seat: seat.rank)[keeps:]
    extra = [seat for seat in extra if seat.node in field.grid.index]
    if not extra or keeps < 1:
        return None
    rows: dict[int, list[int]] = {}
    for seat in extra:
        row = rows.setdefault(field.grid.index[seat.node], [0] * RESOURCES)
        for place_, amount in enumerate((seat.gpus, seat.cpu_millis, seat.memory_mib, 1)):
            row[place_] += amount
    nodes = np.array(sorted(rows), dtype=np.int64)
    amounts = np.array([rows[i] for i in sorted(rows)], dtype=np.int64).T
    return Unit(job, holding.gpus, keeps, nodes, amounts, sum(seat.gpus for seat in extra), lost)
