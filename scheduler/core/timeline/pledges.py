"""Quota on the time axis: a backfill candidate may not take the quota of a booked job.

A booking keeps nodes at a time; its pledge keeps the quota that its tenant, queue and user will
need then. Asked by the cycle beside `Bookings.admits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.calendar.ends import NEVER
from scheduler.core.inputs.jobs import Ask
from scheduler.core.quota.accounts import Accounts, usage_group
from scheduler.core.timeline.bookings import Booked


@dataclass(frozen=True, slots=True)
class Use:
    """GPUs in use by an ask until a moment."""

    ask: Ask
    flavor: str
    gpus: int
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class Pledge:
    """The quota that a booked job will need."""

    booked: Booked
    use: Use


class Pledges:
    """The pledges of one pass.

    `uses` are all jobs that run now; the caller appends those that start.
    """

    def __init__(self, accounts: Accounts, uses: list[Use]) -> None:
        self._accounts = accounts
        self._uses = uses
        self._pledges: list[Pledge] = []
        self._then: dict[tuple[float, str], _Then] = {}

    def pledge(self, booked: Booked, ask: Ask, flavor: str) -> None:
        """Keep what the booked job needs."""
        gpus = sum(demand.count * demand.request[0] for demand in booked.demands)
        self._pledges.append(Pledge(booked, Use(ask, flavor, gpus, booked.claim.until)))

    def first_fit(self, ask: Ask, flavor: str, gpus: int, now: float) -> float | None:
        """The first moment at which quota and limits leave `gpus`, as running jobs and pledged
        jobs end; None when they never do."""
        if gpus <= self._accounts.room(ask, flavor):
            return now
        active = [*self._uses, *(pledge.use for pledge in self._pledges)]
        ending = sorted((u for u in active if u.flavor == flavor), key=lambda u: u.until)
        then = self._accounts.branch()
        for pledge in self._pledges:
            if pledge.use.flavor == flavor:
                then.add(pledge.use.ask, flavor, pledge.use.gpus)
        for use in ending:
            if use.until == NEVER:
                return None
            then.add(use.ask, flavor, -use.gpus)
            if gpus <= then.room(ask, flavor):
                return max(now, use.until)
        return None

    def broken_by(self, start: Use) -> Booked | None:
        """The first booking whose quota the start would take; None when all are kept."""
        later = [p for p in self._pledges if p.booked.claim.start < start.until]
        later = [p for p in later if p.use.flavor == start.flavor]
        if not later or self._all_fit_now(start, later):
            return None
        for place, pledge in enumerate(later):
            if not self._fits_then(start, pledge, later[:place]):
                return pledge.booked
        return None

    def _all_fit_now(self, start: Use, pledges: list[Pledge]) -> bool:
        """The cheap sufficient check: everything at once, beside all that runs now."""
        uses = (start, *(pledge.use for pledge in pledges))
        return self._accounts.hold((use.ask, use.flavor, use.gpus) for use in uses)

    def _fits_then(self, start: Use, pledge: Pledge, before: list[Pledge]) -> bool:
        """The exact check, at the pledge's own time."""
        moment = pledge.booked.claim.start
        then = self._accounts_at(moment, start.flavor)
        active = [p.use for p in before if p.booked.claim.start <= moment < p.use.until]
        # Whoever uses a GPU, it takes at most one from the pledged job's room.
        most = pledge.use.gpus + start.gpus + sum(use.gpus for use in active)
        if most <= then.room(pledge.use.ask, pledge.use.flavor):
            return True
        with then.counted((use.ask, use.flavor, use.gpus) for use in (*active, start)):
            return pledge.use.gpus <= then.room(pledge.use.ask, pledge.use.flavor)

    def _accounts_at(self, moment: float, flavor: str) -> Accounts:
        """The accounts as they will be at a moment if only what runs now ran on."""
        found = self._then.get((moment, flavor))
        if found is None:
            found = self._then[moment, flavor] = _Then(self._accounts.branch())
        else:
            found.accounts.catch_up(self._accounts.journal[found.entries :])
        found.accounts.catch_up(
            (usage_group(use.ask, flavor), -use.gpus)
            for use in self._uses[found.uses :]
            if use.until <= moment and use.flavor == flavor
        )
        found.entries, found.uses = len(self._accounts.journal), len(self._uses)
        return found.accounts


@dataclass(slots=True)
class _Then:
    """Accounts at a later moment, true up to so many journal entries and uses."""

    accounts: Accounts
    entries: int = 0
    uses: int = 0
