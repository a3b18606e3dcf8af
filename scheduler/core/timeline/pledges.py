"""Quota on the time axis: a backfill candidate may not take the quota of a booked job.

A booking keeps nodes at a time; its pledge keeps the quota that its tenant, queue and user will
need then. Asked by the cycle beside `Bookings.admits`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from scheduler.core.calendar.ends import NEVER
from scheduler.core.inputs.jobs import Ask
from scheduler.core.quota.accounts import Accounts, Group, usage_group
from scheduler.core.roster import Floats
from scheduler.core.timeline.bookings import Booked
from scheduler.core.topology.grid import Ints

_LEAST_GAP_SECONDS = 60.0


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


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """GPUs that running jobs of one flavor use: per job its group (a number), GPUs and end."""

    groups: list[Group]
    group: Ints
    gpus: Ints
    ends: Floats

    def ended(self, moment: float) -> list[tuple[Group, int]]:
        """What comes free by a moment, as negative entries per group."""
        over = self.ends <= moment
        sums = np.bincount(self.group[over], weights=self.gpus[over])
        return [(self.groups[i], -int(sums[i])) for i in np.flatnonzero(sums).tolist()]


class Pledges:
    """The pledges of one pass.

    `held` is what runs now, by flavor; `uses` are the jobs that start: the caller appends them.
    """

    def __init__(
        self, accounts: Accounts, held: dict[str, Held], uses: list[Use], now: float
    ) -> None:
        self._accounts, self._now = accounts, now
        self._held = held
        self._uses = uses
        self._pledges: list[Pledge] = []
        self._then: dict[int, _Then] = {}
        self._full: dict[tuple[float, str], _Then] = {}
        self._anchors: dict[str, list[float]] = {}

    def pledge(self, booked: Booked, ask: Ask, flavor: str) -> None:
        """Keep what the booked job needs."""
        gpus = sum(demand.count * demand.request[0] for demand in booked.demands)
        self._pledges.append(Pledge(booked, Use(ask, flavor, gpus, booked.claim.until)))
        anchors = self._anchors.get(flavor)
        if anchors is not None and booked.claim.until < NEVER:
            self._anchor(anchors, booked.claim.until)

    def first_fit(self, ask: Ask, flavor: str, gpus: int, earliest: float) -> float | None:
        """The first moment from `earliest` on at which quota and limits leave `gpus`, as running jobs
        and pledged jobs end; None when they never do. A little late where ends are many."""
        if gpus <= self._accounts.room(ask, flavor):
            return earliest
        anchors = self._anchors.get(flavor)
        if anchors is None:
            anchors = self._anchors[flavor] = self._all_anchors(flavor)
        place = bisect_left(
            anchors,
            1,
            bisect_left(anchors, earliest),
            key=lambda moment: gpus <= self._full_at(moment, flavor).room(ask, flavor),
        )
        return anchors[place] if place < len(anchors) else None

    def _all_anchors(self, flavor: str) -> list[float]:
        ends = [*self._held[flavor].ends.tolist(), *(use.until for use in self._ended(flavor))]
        anchors: list[float] = []
        for end in sorted((end for end in ends if end < NEVER), reverse=True):
            self._anchor(anchors, end)
        return anchors

    def _anchor(self, anchors: list[float], end: float) -> None:
        """Add a moment unless one that is hardly later is there: a minute or, further out, a
        thirty-second part of the distance."""
        place = bisect_left(anchors, end)
        gap = max(_LEAST_GAP_SECONDS, (end - self._now) / 32)
        if place == len(anchors) or anchors[place] - end > gap:
            anchors.insert(place, end)

    def _ended(self, flavor: str) -> Iterator[Use]:
        yield from (use for use in self._uses if use.flavor == flavor)
        yield from (pledge.use for pledge in self._pledges if pledge.use.flavor == flavor)

    def broken_by(self, start: Use) -> Booked | None:
        """The first booking whose quota the start would take; None when all are kept."""
        later = [p for p in self._pledges if p.booked.claim.start < start.until]
        later = [p for p in later if p.use.flavor == start.flavor]
        if not later or self._all_fit_now(start, later):
            return None
        for pledge in later:
            then = self._accounts_for(pledge)
            use = pledge.use
            # Whoever uses a GPU, it takes at most one from the pledged job's room.
            if use.gpus + start.gpus <= then.room(use.ask, use.flavor):
                continue
            with then.counted([(start.ask, start.flavor, start.gpus)]):
                if use.gpus > then.room(use.ask, use.flavor):
                    return pledge.booked
        return None

    def _all_fit_now(self, start: Use, pledges: list[Pledge]) -> bool:
        """The cheap sufficient check: everything at once, beside all that runs now."""
        uses = (start, *(pledge.use for pledge in pledges))
        return self._accounts.hold((use.ask, use.flavor, use.gpus) for use in uses)

    def _accounts_for(self, pledge: Pledge) -> Accounts:
        """The accounts at the pledge's own time, if only what runs now ran on and what was pledged
        before it is used."""
        moment, flavor = pledge.booked.claim.start, pledge.use.flavor
        found = self._then.get(id(pledge))
        if found is None:
            found = self._then[id(pledge)] = self._opened(moment, flavor)
            found.accounts.catch_up(
                (usage_group(other.use.ask, flavor), other.use.gpus)
                for other in takewhile(lambda other: other is not pledge, self._pledges)
                if other.use.flavor == flavor
                and other.booked.claim.start <= moment < other.use.until
            )
        return self._caught_up(found, moment, flavor)

    def _full_at(self, moment: float, flavor: str) -> Accounts:
        """The accounts at a moment with all pledges that are not over by then."""
        found = self._full.get((moment, flavor))
        if found is None:
            found = self._full[moment, flavor] = self._opened(moment, flavor)
        accounts = self._caught_up(found, moment, flavor)
        accounts.catch_up(
            (usage_group(pledge.use.ask, flavor), pledge.use.gpus)
            for pledge in self._pledges[found.pledges :]
            if pledge.use.flavor == flavor and pledge.use.until > moment
        )
        found.pledges = len(self._pledges)
        return accounts

    def _opened(self, moment: float, flavor: str) -> _Then:
        accounts = self._accounts.branch()
        accounts.catch_up(self._held[flavor].ended(moment))
        return _Then(accounts, len(self._accounts.journal))

    def _caught_up(self, then: _Then, moment: float, flavor: str) -> Accounts:
        if then.entries == len(self._accounts.journal) and then.uses == len(self._uses):
            return then.accounts
        then.accounts.catch_up(self._accounts.journal[then.entries :])
        then.accounts.catch_up(
            (usage_group(use.ask, flavor), -use.gpus)
            for use in self._uses[then.uses :]
            if use.until <= moment and use.flavor == flavor
        )
        then.entries, then.uses = len(self._accounts.journal), len(self._uses)
        return then.accounts


@dataclass(slots=True)
class _Then:
    """Accounts at a later moment, true up to so many journal entries, uses and pledges."""

    accounts: Accounts
    entries: int = 0
    uses: int = 0
    pledges: int = 0
