"""Bookings: the earliest start of a blocked job, and whether a start would delay one.

EASY (Lifka 1995) and conservative backfill differ only in how many jobs the cycle books. A
booking keeps a moment, not nodes: a candidate that touches booked nodes may start when every
booking, placed again in order, still finds a place at its own time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from scheduler.core.calendar.ends import NEVER
from scheduler.core.calendar.windows import Stay
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place
from scheduler.core.placement.search import bubble_up
from scheduler.core.timeline.future import Claim, Future
from scheduler.core.topology.grid import GPUS, Bools, Ints

_MOMENTS_TRIED = 64
_CLAIMS_EXACT = 8
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
        self.booked: list[Booked] = []

    def book(
        self, stay: Stay, demands: tuple[Demand, ...], *, roughly: bool = False
    ) -> Booked | None:
        """Keep the earliest start for the job beside the bookings made so far.

        None when it has none (something that never ends is in the way, or the search gave up).
        `stay` is the job as if it started now; its length is kept. `roughly` is for estimates of
        many jobs: times are coarser the further away they are (as Slurm's bf_resolution), and so
        they are whenever there are many.
        """
        length = stay.until - stay.start
        moments = self._moments(stay, demands)
        if roughly or len(moments) > _MOMENTS_TRIED:
            moments = list(islice(_thinned(moments, stay.start), _MOMENTS_TRIED))
        for moment in moments:
            if self.tries_left <= 0:
                break
            self.tries_left -= 1
            then = replace(stay, start=moment, until=moment + length)
            placement = self._place(then, demands, [b.claim for b in self.booked])
            if placement is not None:
                made = Booked(then, demands, claim_of(then, placement), placement)
                self.booked.append(made)
                return made
        return None

    def withdraw(self, booked: Booked) -> None:
        """Give up a booking."""
        self.booked = [other for other in self.booked if other is not booked]

    def _moments(self, stay: Stay, demands: tuple[Demand, ...]) -> Sequence[float]:
        """Times worth trying, earliest first.

        Without claims and windows room only grows, so the first moment that could do is found by
        bisection; from there on also ends of bookings and windows count.
        """
        moments = [stay.start, *self.future.times(stay.start)]
        first = self._first_possible(moments, stay, demands)
        if first == len(moments):
            return ()
        earliest = moments[first]
        turns = [
            *(
                claim.until
                for claim in (*self._standing.values(), *(b.claim for b in self.booked))
                if earliest <= claim.until < NEVER
            ),
            *self._field.windows.turns(earliest),
        ]
        if turns:
            return sorted({*moments[first:], *turns})
        return moments[first:]

    def _first_possible(self, moments: list[float], stay: Stay, demands: tuple[Demand, ...]) -> int:
        if len(demands) == 1 and demands[0].limit_tier == 0 and not demands[0].layers:
            usable = self._field.lens.view(stay.ask).inside
            table = self.future.replicas_over_time(demands[0], usable)
            if table is not None:
                first = int(np.searchsorted(table, demands[0].count))
                return bisect_left(moments, first, key=self.future.passed)
        # Fewer GPUs than the job needs come free before this moment, wherever they are.
        gpus = sum(demand.count * demand.request[GPUS] for demand in demands)
        low = bisect_left(moments, self.future.first_with(gpus))
        # The first that could do is mostly near: go on in growing steps, then halve.
        step, high = 1, low
        while high < len(moments) and not self._could(moments[high], stay, demands):
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, len(moments))
        return bisect_left(
            moments, 1, low, high, key=lambda moment: self._could(moment, stay, demands)
        )

    def _could(self, moment: float, stay: Stay, demands: tuple[Demand, ...]) -> bool:
        usable = self._field.lens.view(stay.ask).inside
        free = self.future.free_at(moment)
        return all(_fits_alone(self._field, demand, free, usable) for demand in demands)

    def _place(
        self, stay: Stay, demands: tuple[Demand, ...], claims: Sequence[Claim]
    ) -> Placement | None:
        every = [*self._standing.values(), *claims] if self._standing else claims
        overlapping = [c for c in every if c.start < stay.until and c.until > stay.start]
        if len(overlapping) > _CLAIMS_EXACT:
            free = self._free_beside_all(stay, overlapping)
        else:
            free = self.future.free_during(stay.start, stay.until, overlapping)
        return place(self._field.grid, demands, free, self._field.usable(stay))

    def _free_beside_all(self, stay: Stay, claims: Sequence[Claim]) -> Ints:
        """What is free at the start with all claims counted as if at once: less than there is,
        never more, and quick where claims are many."""
        free = self.future.free_at(stay.start).copy()
        for claim in claims:
            free[:, claim.nodes] -= claim.amounts
        return free

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
        return [b for b in self.booked if b.claim.start < until]

    def kept_nodes(self, until: float) -> Bools:
        """The nodes of bookings that begin before `until`."""
        mask = np.zeros(self._field.grid.size, dtype=np.bool_)
        for booked in self.booked:
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
        return len(self.booked) > 1 or any(len(booked.demands) > 1 for booked in early)

    def _again(self, start: Claim) -> list[Booked] | None:
        kept: list[Booked] = []
        claims = [start]
        for booked in self.booked:
            placement = self._place(booked.stay, booked.demands, claims)
            if placement is None:
                return None
            claims.append(claim_of(booked.stay, placement))
            kept.append(replace(booked, claim=claims[-1], placement=placement))
        return kept


def _thinned(moments: Sequence[float], start: float) -> Iterator[float]:
    """The moments without those that come too soon after the one before: a minute at first, a
    thirty-second part of the distance further out. The last of each gap is kept, so that an
    estimate is a gap late at worst; so is the very first."""
    before: float | None = None
    last: float | None = None
    for moment in moments:
        if before is not None and last is not None:
            gap = max(_LEAST_GAP_SECONDS, (moment - start) / 32)
            if moment - before >= gap:
                yield last
                before = last
        elif last is not None:
            yield last
            before = last
        last = moment
    if last is not None:
        yield last


def claim_of(stay: Stay, placement: Placement) -> Claim:
    """The stay at its place as a claim."""
    nodes, amounts = placement.usage()
    return Claim(stay.job, stay.start, stay.until, nodes, amounts)


def _fits_alone(field: Field, demand: Demand, free: Ints, usable: Bools) -> bool:
    cap = replica_capacity(demand, free, usable)
    if demand.limit_tier == 0 and not demand.layers:
        return int(cap.sum()) >= demand.count
    counts = bubble_up(field.grid, cap, demand.layers)
    return any(
        counts[tier].size and int(counts[tier].max()) >= demand.count
        for tier in range(field.grid.node_tier, demand.limit_tier - 1, -1)
    )
