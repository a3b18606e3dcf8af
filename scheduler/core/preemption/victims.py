"""The search for victims: per domain, elastic surplus first, verified by placement, minimised.

Nothing is evicted on hope: a set of victims counts only when the preemptor, placed on what they
would free, fits whole and within quota; then the set is gone through backwards and every victim
that is not needed is given back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from scheduler.core.inputs.jobs import Ask, EvictionRule, RunningJob
from scheduler.core.memo import Holding
from scheduler.core.placement.demand import Demand
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place
from scheduler.core.preemption.rules import Limits, lost_gpu_seconds, protection, rule_for
from scheduler.core.quota.accounts import Accounts
from scheduler.core.quota.shares import share
from scheduler.core.topology.grid import GPUS, RESOURCES, Bools, Ints

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

    def __init__(
        self, field: Field, accounts: Accounts, holdings: list[Holding], limits: Limits
    ) -> None:
        self._field = field
        self._accounts = accounts
        self._limits = limits
        self._units = [
            unit
            for holding in holdings
            if protection(holding.job, limits) is None
            for unit in _units(field, holding, limits.now)
        ]
        self._protected = [
            (holding.job, why)
            for holding in holdings
            if (why := protection(holding.job, limits)) is not None
        ]

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
        chosen = {unit.job.id for unit, _ in found.units}
        why_not = {job.id: why for job, why in self._protected}
        others = {unit.job.id: unit.job for unit in self._units if unit.job.id not in chosen}
        others |= {job.id: job for job, _ in self._protected}
        largest = heapq.nsmallest(
            _REFUSALS_TOLD, others.values(), key=lambda job: (-len(job.seats), job.id)
        )
        told = []
        for job in largest:
            why = why_not.get(job.id)
            if why is None:
                rule = rule_for(self._accounts, preemptor.ask, job, preemptor.gpus)
                why = "no_rule" if rule is None else "not_needed"
            told.append((job.id, why))
        return tuple(told)

    def drop(self, job_ids: set[str]) -> None:
        """These jobs are victims by now: later searches do not see them."""
        self._units = [unit for unit in self._units if unit.job.id not in job_ids]

    def _candidates(self, preemptor: Preemptor, *, strict: bool) -> list[Unit]:
        """Units that some rule might allow, the best victims first.

        A rule looks at a victim's tenant and, inside the preemptor's own, at its priority, else at
        its size: it is asked once for each of those.
        """
        tenant = preemptor.ask.tenant
        asked: dict[tuple[str, int], bool] = {}
        allowed = []
        for unit in self._units:
            job = unit.job
            rank = job.ask.priority if job.ask.tenant == tenant else unit.job_gpus
            key = (job.ask.tenant, rank)
            if key not in asked:
                asked[key] = self._might(preemptor, unit, strict=strict)
            if asked[key]:
                allowed.append(unit)
        return sorted(allowed, key=self._preference)

    def _might(self, preemptor: Preemptor, unit: Unit, *, strict: bool) -> bool:
        rule = rule_for(self._accounts, preemptor.ask, unit.job, preemptor.gpus, strict=strict)
        return rule is not None

    def _preference(self, unit: Unit) -> tuple[object, ...]:
        """Surplus first; then tenants with the highest share, low priority, low cost, newest."""
        account = self._accounts.account(unit.job.ask.tenant, unit.job.flavor)
        return (
            unit.keeps == 0,
            0.0 if account is None else -share(account),
            unit.job.ask.priority,
            unit.lost_gpu_seconds,
            -unit.job.placed_at,
            unit.job.id,
        )

    def _domains(self, preemptor: Preemptor, candidates: list[Unit]) -> Iterator[Bools]:
        """Masks of the domains at the preemptor's limit that could hold it, least victims first."""
        grid = self._field.grid
        tier_index = max(demand.limit_tier for demand in preemptor.demands)
        tier = grid.tiers[tier_index]
        free = np.where(preemptor.usable, np.maximum(self._field.free[GPUS], 0), 0)
        freed = np.zeros(grid.size, dtype=np.int64)
        for unit in candidates:
            freed[unit.nodes] += unit.amounts[GPUS]
        freed = np.where(preemptor.usable, freed, 0)
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
        self, preemptor: Preemptor, candidates: list[Unit], mask: Bools, *, strict: bool
    ) -> Found | None:
        chosen: list[tuple[Unit, EvictionRule]] = []
        free = self._field.free.copy()
        short = preemptor.gpus - int(np.maximum(free[GPUS], 0)[mask].sum())
        flavor = self._field.grid.flavor.name
        with self._undone(chosen):
            quota_short = preemptor.gpus > self._accounts.room(preemptor.ask, flavor)
            for unit in candidates:
                # It must free something in the domain, or quota that is missing.
                if not quota_short and not mask[unit.nodes].any():
                    continue
                rule = rule_for(
                    self._accounts, preemptor.ask, unit.job, preemptor.gpus, strict=strict
                )
                if rule is None:
                    continue
                short -= self._choose(chosen, (unit, rule), free, mask)
                quota_short = preemptor.gpus > self._accounts.room(preemptor.ask, flavor)
                if short > 0:
                    continue
                placement = self._fits(preemptor, free, mask)
                if placement is not None:
                    return self._minimised(preemptor, chosen, (free, mask), placement)
        return None

    def _choose(
        self,
        chosen: list[tuple[Unit, EvictionRule]],
        pair: tuple[Unit, EvictionRule],
        free: Ints,
        mask: Bools,
    ) -> int:
        """Add the unit; when it is a whole job whose surplus was chosen, it takes that's place.

        Returns the GPUs that come free in the domain.
        """
        unit = pair[0]
        gained = int(unit.amounts[GPUS][mask[unit.nodes]].sum())
        for place_, (other, _) in enumerate(chosen):
            if other.job is unit.job:
                self._count(other, free, -1)
                gained -= int(other.amounts[GPUS][mask[other.nodes]].sum())
                del chosen[place_]
                break
        chosen.append(pair)
        self._count(unit, free, 1)
        return gained

    def _count(self, unit: Unit, free: Ints, sign: int) -> None:
        free[:, unit.nodes] += sign * unit.amounts
        self._accounts.add(unit.job.ask, unit.job.flavor, -sign * unit.gpus)

    @contextmanager
    def _undone(self, chosen: list[tuple[Unit, EvictionRule]]) -> Iterator[None]:
        try:
            yield
        finally:
            for unit, _ in chosen:
                self._accounts.add(unit.job.ask, unit.job.flavor, unit.gpus)

    def _fits(self, preemptor: Preemptor, free: Ints, mask: Bools) -> Placement | None:
        if preemptor.gpus > self._accounts.room(preemptor.ask, self._field.grid.flavor.name):
            return None
        return place(self._field.grid, preemptor.demands, free, mask)

    def _minimised(
        self,
        preemptor: Preemptor,
        chosen: list[tuple[Unit, EvictionRule]],
        room: tuple[Ints, Bools],
        placement: Placement,
    ) -> Found:
        """Go backwards through the set and give back each victim that is not needed."""
        free, mask = room
        for pair in list(reversed(chosen)):
            self._count(pair[0], free, -1)
            without = self._fits(preemptor, free, mask)
            if without is None:
                self._count(pair[0], free, 1)
            else:
                placement = without
                chosen.remove(pair)
        return Found(tuple(chosen), placement)


def _units(field: Field, holding: Holding, now: float) -> list[Unit]:
    job = holding.job
    lost = lost_gpu_seconds(job, now)
    whole = Unit(job, holding.gpus, 0, holding.nodes, holding.amounts, holding.gpus, lost)
    surplus = _surplus(field, holding, lost)
    return [whole] if surplus is None else [surplus, whole]


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
