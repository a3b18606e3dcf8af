"""The bookings of a pass: who gets one, what they keep, how starts move the future."""

from __future__ import annotations

import math
from collections import defaultdict

from scheduler.core.calendar.ends import NEVER, end_or_none
from scheduler.core.cycle.attempts import Placed, allowed_demands, static_reason
from scheduler.core.cycle.world import World
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.quotas import BackfillOrder, Queue
from scheduler.core.outputs import Booking
from scheduler.core.roster import Floats, Roster
from scheduler.core.timeline.bookings import Booked, Bookings
from scheduler.core.timeline.future import Future, Release
from scheduler.core.timeline.pledges import Held, Pledges, Use
from scheduler.core.topology.grid import GPUS

_TRIES_OF_ONE = 64


class Backfill:
    """Keeps count of bookings per queue and makes them on the world's fields."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._per_queue: dict[str, int] = defaultdict(int)
        self._started: dict[str, list[Release]] = defaultdict(list)
        self._made: dict[str, tuple[WaitingJob, str]] = {}
        self._uses: list[Use] = []
        self.deferring: set[str] = set()
        """Queues whose candidates are tried the shortest first, as they have a booking."""
        self._last_of_class: dict[tuple[str, str], tuple[float, float]] = {}

    def wants_booking(self, queue: Queue, job: WaitingJob) -> bool:
        """Whether the job, if it is blocked, is one that the queue's policy books for."""
        return job.submitted_at <= self.books_before(queue)

    def books_before(self, queue: Queue) -> float:
        """`wants_booking` of jobs by age: it wants one for those submitted until this moment."""
        if len(self._made) >= self._world.options.max_bookings:
            return -NEVER
        if self._per_queue[queue.name] < queue.booking_depth:
            return NEVER
        after = queue.booking_after_seconds
        if after is None or queue.booking_depth == 0:
            return -NEVER
        return self._world.now - after

    def defers(self, queue: Queue, job: WaitingJob) -> bool:
        """Whether the job waits its turn as a backfill candidate, the shortest first."""
        return queue.name in self.deferring and not self.wants_booking(queue, job)

    def book(self, queue: Queue, job: WaitingJob) -> Booked | None:
        """Keep the earliest start that the job can have on any of its flavors."""
        best: tuple[Booked, str] | None = None
        for flavor in job.ask.flavors:
            booked = self._book_on(flavor, job)
            if booked is None:
                continue
            if best is None or booked.claim.start < best[0].claim.start:
                if best is not None:
                    self._world.bookings[best[1]].withdraw(best[0])
                best = (booked, flavor)
            else:
                self._world.bookings[flavor].withdraw(booked)
        if best is None:
            return None
        self._per_queue[queue.name] += 1
        if queue.backfill_order is BackfillOrder.SHORTEST:
            self.deferring.add(queue.name)
        self._made[job.id] = (job, best[1])
        self._pledges().pledge(best[0], job.ask, best[1])
        return best[0]

    def _book_on(self, flavor: str, job: WaitingJob) -> Booked | None:
        field = self._world.fields.get(flavor)
        if field is None or static_reason(self._world, field, job) is not None:
            return None
        if allowed_demands(self._world, field, job.ask) is None:
            return None
        key = (flavor, self._world.key_of(job))
        limit, start = self._last_of_class.get(key, (math.inf, self._world.now))
        # An equal job that is no shorter starts no earlier than the one booked before it.
        stay = self._world.stay_of(job, start if job.ask.limit >= limit else self._world.now)
        booked = self._bookings(flavor).book(stay, field.lens.view(job.ask).least)
        if booked is not None:
            self._last_of_class[key] = (job.ask.limit, booked.claim.start)
        return booked

    def estimate(self, job: WaitingJob, not_before: float) -> float | None:
        """When the job starts if all that waits before it does and every job runs to its limit.

        Books like `book`, on the first flavor that can hold the job, but for nobody to see: call
        it after all decisions, for the jobs in order.
        """
        world = self._world
        for flavor in job.ask.flavors:
            field = world.fields.get(flavor)
            if field is None or static_reason(world, field, job) is not None:
                continue
            view = field.lens.view(job.ask)
            earliest = max(world.now, not_before)
            fits = self._pledges().first_fit(job.ask, flavor, view.least_gpus, earliest)
            if fits is None:
                continue
            stay = world.stay_of(job, fits)
            self._bookings(flavor).tries_left = _TRIES_OF_ONE
            booked = self._bookings(flavor).book(stay, view.least, roughly=True)
            if booked is not None:
                self._pledges().pledge(booked, job.ask, flavor)
                return booked.claim.start
        return None

    def _bookings(self, flavor: str) -> Bookings:
        found = self._world.bookings.get(flavor)
        if found is None:
            world, field, roster = (
                self._world,
                self._world.fields[flavor],
                self._world.rosters[flavor],
            )
            ids = [holding.job.id for holding in roster.holdings]
            future = Future(field, ids, self._ends_of(roster), roster.spans)
            for release in self._started[flavor]:
                future.started(release)
            found = Bookings(field, future, world.standing[flavor], world.options.max_moments)
            world.bookings[flavor] = found
        return found

    def _ends_of(self, roster: Roster) -> Floats:
        """The latest expected ends of running jobs, with what this pass has decided."""
        ends = roster.ends(self._world.now)
        for job_id, gone_by in self._world.gone_by.items():
            place = roster.place_of(job_id)
            if place is not None:
                ends[place] = gone_by
        return ends

    def _pledges(self) -> Pledges:
        world = self._world
        if world.pledges is None:
            held = {
                flavor: Held(
                    list(roster.names.groups),
                    roster.rows["group"],
                    roster.rows["gpus"],
                    self._ends_of(roster),
                )
                for flavor, roster in world.rosters.items()
            }
            world.pledges = Pledges(world.accounts, held, self._uses, world.now)
        return world.pledges

    def started(self, job: WaitingJob, placed: Placed) -> None:
        """The field has counted the start: the future learns when it ends."""
        nodes, amounts = placed.placement.usage()
        until = self._world.stay_of(job, self._world.now).until
        release = Release(until, job.id, nodes, amounts)
        self._started[placed.flavor].append(release)
        bookings = self._world.bookings.get(placed.flavor)
        if bookings is not None:
            bookings.future.started(release)
        use = Use(job.ask, placed.flavor, placed.placement.gpus, until)
        self._uses.append(use)

    def booked_at(self, job_id: str) -> float | None:
        """When the job is booked to start; None without a booking."""
        made = self._made.get(job_id)
        if made is None:
            return None
        booked = self._world.bookings[made[1]].booked
        return next((b.claim.start for b in booked if b.stay.job == job_id), None)

    def try_booking(self, job: WaitingJob) -> float | None:
        """When the job could be booked; the booking is given up again."""
        starts = []
        for flavor in job.ask.flavors:
            booked = self._try_booking_on(flavor, job)
            if booked is not None:
                starts.append(booked.claim.start)
        return min(starts, default=None)

    def _try_booking_on(self, flavor: str, job: WaitingJob) -> Booked | None:
        field = self._world.fields.get(flavor)
        if field is None or static_reason(self._world, field, job) is not None:
            return None
        if allowed_demands(self._world, field, job.ask) is None:
            return None
        bookings = self._bookings(flavor)
        tries_left, bookings.tries_left = bookings.tries_left, _TRIES_OF_ONE
        stay = self._world.stay_of(job, self._world.now)
        booked = bookings.book(stay, field.lens.view(job.ask).least)
        bookings.tries_left = tries_left
        if booked is not None:
            bookings.withdraw(booked)
        return booked

    def bookings_of(self, job_id: str) -> Bookings:
        """The bookings of the field on which the job has its own."""
        return self._world.bookings[self._made[job_id][1]]

    def outputs(self) -> tuple[Booking, ...]:
        """The bookings as the plan tells them, in the order in which they were made."""
        made = []
        for job_id, (job, flavor) in self._made.items():
            booked = next(b for b in self._world.bookings[flavor].booked if b.stay.job == job_id)
            grid = self._world.fields[flavor].grid
            gpus = booked.claim.amounts[GPUS].tolist()
            names = [grid.nodes[i].name for i in booked.claim.nodes.tolist()]
            until = end_or_none(booked.claim.until)
            made.append(
                Booking(
                    job=job_id,
                    class_key=self._world.key_of(job),
                    flavor=flavor,
                    starts_at=booked.claim.start,
                    until=until,
                    nodes=tuple(zip(names, gpus, strict=True)),
                )
            )
        return tuple(made)
