"""Bookings: the earliest start of a blocked job, and whether a start would delay one.

EASY (Lifka 1995) and conservative backfill differ only in how many jobs the cycle books. A
booking keeps a moment, not nodes: a candidate that touches booked nodes may start when every
booking, placed again in order, still finds a place at its own time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from scheduler.core.calendar.ends import NEVER
from scheduler.core.calendar.windows import Stay
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place, place_counted
from scheduler.core.placement.search import bubble_up
from scheduler.core.timeline.claims import Claim, Claims, claims_of
from scheduler.core.timeline.future import Future
from scheduler.core.topology.grid import GPUS, Bools

_MOMENTS_TRIED = 64
_LEAST_GAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Booked:
    """A blocked job with its claim; `demands` are at the size that is kept for it."""

    stay: Stay
    demands: tuple[Demand, ...]
    claim: Claim
    placement: Placement


class Bookings:
    """The bookings of one field in the order in which they were made."""

    def __init__(
        self, field: Field, future: Future, standing: Mapping[str, Claim], tries: int
    ) -> None:
        """`standing` are claims that nothing moves: what preemptors take when victims are gone.

        `tries` bounds the moments that are tried for all bookings together.
        """
        self.tries_left = tries
        self._field = field
        self.future = future
        self._standing = standing
        self._booked: list[Booked] = []
        self._claims: Claims | None = None
        self._turns: list[float] = []
        self._stood: tuple[Claim, ...] = ()

    @property
    def booked(self) -> Sequence[Booked]:
        """The bookings made so far."""
        return self._booked

    @booked.setter
    def booked(self, booked: Sequence[Booked]) -> None:
        self._booked, self._claims = list(booked), None

    def _claimed(self) -> Claims:
        """Standing claims and those of the bookings, with the ends of both sorted in `_turns`."""
        standing = tuple(self._standing.values())
        if self._claims is None or standing != self._stood:
            every = [*standing, *(booked.claim for booked in self._booked)]
            self._claims, self._stood = claims_of(every), standing
            ends = {claim.until for claim in every if claim.until < NEVER}
            self._turns = sorted({*ends, *self._field.windows.turns(-NEVER)})
        return self._claims

    def _add(self, booked: Booked) -> None:
        claims, claim = self._claimed(), booked.claim
        self._booked.append(booked)
        self._claims = claims.followed_by(claim)
        if claim.until < NEVER:
            insort(self._turns, claim.until)

    def book(
        self, stay: Stay, demands: tuple[Demand, ...], *, roughly: bool = False
    ) -> Booked | None:
        """Keep the earliest start for the job beside the bookings made so far.

        None when it has none (something that never ends is in the way, or the search gave up).
        `stay` is the job as if it started now; its length is kept. `roughly` is for estimates of
        many jobs: times are coarser the further away they are (as Slurm's bf_resolution), and so
        they are whenever there are many.
        """
        if self.tries_left <= 0:
            return None
        claims, length = self._claimed(), stay.until - stay.start
        for moment in self._moments(stay, demands, roughly=roughly):
            if self.tries_left <= 0:
                break
            self.tries_left -= 1
            then = replace(stay, start=moment, until=moment + length)
            placement = self._place(then, demands, claims)
            if placement is not None:
                made = Booked(then, demands, claim_of(then, placement), placement)
                self._add(made)
                return made
        return None

    def withdraw(self, booked: Booked) -> None:
        """Give up a booking."""
        self.booked = [other for other in self._booked if other is not booked]

    def _moments(
        self, stay: Stay, demands: tuple[Demand, ...], *, roughly: bool
    ) -> Iterable[float]:
        """Times worth trying, earliest first.

        Without claims and windows room only grows, so the first moment that could do is known; from
        there on also ends of bookings and windows count.
        """
        first = self._first_possible(stay, demands)
        if first == NEVER:
            return ()
        earliest = max(first, stay.start)
        lines = (self.future.times, self._turns)
        count = sum(len(times) - bisect_left(times, earliest) for times in lines)
        if roughly or count >= _MOMENTS_TRIED:
            return islice(_thinned(lines, earliest, stay.start), _MOMENTS_TRIED)
        later = {time for times in lines for time in times[bisect_left(times, earliest) :]}
        return sorted(later | {earliest})

    def _first_possible(self, stay: Stay, demands: tuple[Demand, ...]) -> float:
        """The first moment at which each role, claims and windows left aside, fits by itself."""
        usable = self._field.lens.view(stay.ask).inside
        return max(self._first_for(stay.start, demand, usable) for demand in demands)

    def _first_for(self, start: float, demand: Demand, usable: Bools) -> float:
        if not demand.layers:
            return self.future.first_holding(demand, usable)
        # Fewer GPUs than the job needs come free before this moment, wherever they are.
        earliest = self.future.first_with(demand.count * demand.request[GPUS])
        times = self.future.times
        moments = [start, *times[bisect_right(times, start) :]]
        place = bisect_left(
            moments,
            1,
            bisect_left(moments, earliest),
            key=lambda moment: self._could(moment, demand, usable),
        )
        return moments[place] if place < len(moments) else NEVER

    def _could(self, moment: float, demand: Demand, usable: Bools) -> bool:
        cap = np.where(usable, self.future.replicas_at(demand, moment), 0)
        counts = bubble_up(self._field.grid, cap, demand.layers)
        return any(
            counts[tier].size and int(counts[tier].max()) >= demand.count
            for tier in range(self._field.grid.node_tier, demand.limit_tier - 1, -1)
        )

    def _place(self, stay: Stay, demands: tuple[Demand, ...], claims: Claims) -> Placement | None:
        grid, future, usable = self._field.grid, self.future, self._field.usable(stay)
        nodes, free = claims.beside(stay.start, stay.until, future.free_on)
        if len(demands) != 1:
            every = future.free_at(stay.start).copy()
            every[:, nodes] = free
            return place(grid, demands, every, usable)
        cap = future.replicas_at(demands[0], stay.start)
        cap[nodes] = replica_capacity(demands[0], free, None)
        counts = bubble_up(grid, np.where(usable, cap, 0), demands[0].layers)
        return place_counted(grid, demands[0], counts)

    def touched_by(self, start: Claim) -> list[Booked]:
        """Bookings that begin before the start would end and use any of its nodes."""
        early = self._before(start.until)
        if not early:
            return []
        mask = np.zeros(self._field.grid.size, dtype=np.bool_)
        mask[start.nodes] = True
        return [b for b in early if mask[b.claim.nodes].any()]

    def delayed_by(self, start: Claim) -> Booked:
        """The booking to name to a start that is not admitted: the first whose nodes it takes, else
        the first that begins before it would end."""
        return next(iter(self.touched_by(start) or self._before(start.until)))

    def _before(self, until: float) -> list[Booked]:
        return [b for b in self._booked if b.claim.start < until]

    def kept_nodes(self, until: float) -> Bools:
        """The nodes of bookings that begin before `until`."""
        mask = np.zeros(self._field.grid.size, dtype=np.bool_)
        for booked in self._booked:
            if booked.claim.start < until:
                mask[booked.claim.nodes] = True
        return mask

    def admits(self, start: Claim) -> bool:
        """Whether a start now, given as the claim it would be, delays no booking.

        When booked nodes are touched the bookings are placed again, each at its own time; if that
        works their new places are kept. So they are when other nodes alone could tell: the next
        plan will place the same bookings beside the start, and must find them no later.
        """
        early = self._before(start.until)
        if not early or not (self._is_delicate(early) or self.touched_by(start)):
            return True
        again = self._again(start)
        if again is None:
            return False
        self.booked = again
        return True

    def _is_delicate(self, early: Sequence[Booked]) -> bool:
        """Whether placing these again may fail though their own nodes are free: one booking gets
        other nodes than before and stands in the way of the next, or of its own second role."""
        return len(self._booked) > 1 or any(len(booked.demands) > 1 for booked in early)

    def _again(self, start: Claim) -> list[Booked] | None:
        kept: list[Booked] = []
        claims = claims_of([*self._standing.values(), start])
        for booked in self._booked:
            placement = self._place(booked.stay, booked.demands, claims)
            if placement is None:
                return None
            claim = claim_of(booked.stay, placement)
            claims = claims.followed_by(claim)
            kept.append(replace(booked, claim=claim, placement=placement))
        return kept


def _thinned(lines: Sequence[Sequence[float]], earliest: float, start: float) -> Iterator[float]:
    """The moments of sorted lines from `earliest` on, without those that come too soon after the one
    before: a minute at first, a thirty-second part of the distance from `start` further out. The
    last of each gap is kept, so that an estimate is a gap late at worst; so is the very first."""
    moment = earliest
    while moment < NEVER:
        yield moment
        gap = max(moment + _LEAST_GAP_SECONDS, moment + (moment - start) / 31)
        following, moment = moment, NEVER
        for times in lines:
            first, last = bisect_right(times, following), bisect_left(times, gap)
            if last > first:
                moment = times[last - 1] if moment == NEVER else max(moment, times[last - 1])
        if moment == NEVER:
            later = [bisect_right(times, following) for times in lines]
            ahead = [t[at] for t, at in zip(lines, later, strict=True) if at < len(t)]
            moment = min(ahead, default=NEVER)


def claim_of(stay: Stay, placement: Placement) -> Claim:
    """The stay at its place as a claim."""
    nodes, amounts = placement.usage()
    return Claim(stay.job, stay.start, stay.until, nodes, amounts)
