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
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints

_MOMENTS_TRIED = 64
_LEAST_GAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What a booking of one role was placed in: `replicas` per node beside the claims before it, and
    per domain of the widest tier that it may fill (`domain_of` a node), `spare` more than it needs."""

    replicas: Ints
    spare: Ints
    domain_of: Ints

    def is_spent_by(self, start: Claim, gpus: int, grid: Grid) -> bool:
        """Whether a start surely leaves too little: its nodes hold no more than their other GPUs
        can, at `gpus` a replica."""
        nodes = start.nodes
        left = (grid.capacity[GPUS, nodes] - start.amounts[GPUS]) // gpus
        lost = np.maximum(self.replicas[nodes] - left, 0)
        spare = self.spare - np.bincount(
            self.domain_of[nodes], weights=lost, minlength=self.spare.size
        )
        return bool((spare < 0).all())


@dataclass(frozen=True, slots=True, eq=False)
class Booked:
    """A blocked job with its claim; `demands` are at the size that is kept for it."""

    stay: Stay
    demands: tuple[Demand, ...]
    claim: Claim
    placement: Placement
    room: Room | None = None

    def is_ruled_out_by(self, start: Claim) -> bool:
        """Whether it is plain, without placing it again, that it has no place beside the start."""
        if self.room is None:
            return False
        grid, gpus = self.placement.grid, self.demands[0].request[GPUS]
        return self.room.is_spent_by(start, gpus, grid)


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
        self._fresh = -1
        """The move of the field at which every booking sits where it would be placed anew."""

    @property
    def booked(self) -> Sequence[Booked]:
        """The bookings made so far."""
        return self._booked

    @booked.setter
    def booked(self, booked: Sequence[Booked]) -> None:
        self._booked, self._claims, self._fresh = list(booked), None, -1

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
        if not self._booked:
            self._fresh = self._field.moves
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
            placed = self._place(then, demands, claims)
            if placed is not None:
                made = Booked(then, demands, claim_of(then, placed[0]), *placed)
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

    def _place(
        self, stay: Stay, demands: tuple[Demand, ...], claims: Claims, *, again: bool = False
    ) -> tuple[Placement, Room | None] | None:
        """A place for the stay beside the claims. `again`: its moment is asked for over and over."""
        grid, future, usable = self._field.grid, self.future, self._field.usable(stay)
        free_on = future.free_kept if again else future.free_on
        nodes, free = claims.beside(stay.start, stay.until, free_on)
        if len(demands) != 1:
            every = future.free_at(stay.start).copy()
            every[:, nodes] = free
            together = place(grid, demands, every, usable)
            return None if together is None else (together, None)
        demand = demands[0]
        cap = future.replicas_at(demand, stay.start)
        if nodes.size:
            cap[nodes] = replica_capacity(demand, free, None)
        cap = np.where(usable, cap, 0)
        counts = bubble_up(grid, cap, demand.layers)
        placement = place_counted(grid, demand, counts)
        if placement is None:
            return None
        if demand.layers or demand.request[GPUS] == 0:
            return placement, None
        tier = demand.limit_tier
        return placement, Room(cap, counts[tier] - demand.count, grid.tiers[tier].of_node)

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
        # The caller takes the nodes next, which is one more move of the field.
        if not early:
            self._fresh += self._fresh == self._field.moves
            return True
        if not (self._is_delicate(early) or self.touched_by(start)):
            self._fresh = -1
            return True
        if any(booked.is_ruled_out_by(start) for booked in early):
            return False
        again = self._again(start)
        if again is None:
            return False
        self.booked, self._fresh = again, self._field.moves + 1
        return True

    def _is_delicate(self, early: Sequence[Booked]) -> bool:
        """Whether placing these again may fail though their own nodes are free: one booking gets
        other nodes than before and stands in the way of the next, or of its own second role."""
        return len(self._booked) > 1 or any(len(booked.demands) > 1 for booked in early)

    def _again(self, start: Claim) -> list[Booked] | None:
        """The bookings placed again, each at its time, beside the start; None when one finds no place."""
        kept: list[Booked] = []
        claims = claims_of([*self._standing.values(), start])
        same = self._fresh == self._field.moves
        for booked in self._booked:
            if same and booked.stay.start >= start.until:
                # Nothing of what it was placed beside has changed.
                kept.append(booked)
                claims = claims.followed_by(booked.claim)
                continue
            placed = self._place(booked.stay, booked.demands, claims, again=True)
            if placed is None:
                return None
            claim = claim_of(booked.stay, placed[0])
            claims = claims.followed_by(claim)
            kept.append(Booked(booked.stay, booked.demands, claim, *placed))
            same = same and np.array_equal(claim.nodes, booked.claim.nodes)
            same = same and np.array_equal(claim.amounts, booked.claim.amounts)
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
