"""Quota on the time axis: a backfill candidate may not take the quota of a booked job.

A booking keeps nodes at a time; its pledge keeps the quota that its tenant, queue and user will
need then. Asked by the cycle beside `Bookings.admits`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from scheduler.core.calendar.ends import NEVER
from scheduler.core.inputs.jobs import Ask
from scheduler.core.quota.accounts import Accounts, Totals, usage_group
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
        self._ended: dict[tuple[float, str], tuple[int, Totals]] = {}

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
        counted = [pledge.use for pledge in self._pledges if pledge.use.flavor == flavor]
        with self._counted(counted):
            for use in ending:
                if use.until == NEVER:
                    return None
                gone = replace(use, gpus=-use.gpus)
                counted.append(gone)
                self._accounts.add(gone.ask, gone.flavor, gone.gpus)
                if gpus <= self._accounts.room(ask, flavor):
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
        counted = [start]
        with self._counted(counted):
            for pledge in pledges:
                use = pledge.use
                if use.gpus > self._accounts.room(use.ask, use.flavor):
                    return False
                # Undone with the rest when the context closes.
                counted.append(use)
                self._accounts.add(use.ask, use.flavor, use.gpus)
        return True

    def _fits_then(self, start: Use, pledge: Pledge, before: list[Pledge]) -> bool:
        """The exact check, at the pledge's own time."""
        moment = pledge.booked.claim.start
        active = [p.use for p in before if p.booked.claim.start <= moment < p.use.until]
        gone = self._ended_by(moment, start.flavor)
        with self._accounts.without(gone), self._counted([*active, start]):
            return pledge.use.gpus <= self._accounts.room(pledge.use.ask, pledge.use.flavor)

    def _ended_by(self, moment: float, flavor: str) -> Totals:
        """GPUs per group of the jobs that have ended by then; uses added since are counted in."""
        seen, totals = self._ended.get((moment, flavor), (0, {}))
        for use in self._uses[seen:]:
            if use.until <= moment and use.flavor == flavor:
                group = usage_group(use.ask, flavor)
                totals[group] = totals.get(group, 0) + use.gpus
        self._ended[moment, flavor] = (len(self._uses), totals)
        return totals

    @contextmanager
    def _counted(self, uses: list[Use]) -> Iterator[None]:
        for use in uses:
            self._accounts.add(use.ask, use.flavor, use.gpus)
        try:
            yield
        finally:
            for use in reversed(uses):
                self._accounts.add(use.ask, use.flavor, -use.gpus)
