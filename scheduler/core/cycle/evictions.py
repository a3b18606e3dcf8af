"""Preemption in a pass: holds that count, victims that are chosen, what is withdrawn.

A preemptor's place is held from the moment its victims are chosen: others do not see what is free
of it, and its quota counts as used. So nobody else takes what the first victim frees while the
last is still saving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from scheduler.core.calendar.ends import planned_end
from scheduler.core.cycle.attempts import static_reason
from scheduler.core.cycle.world import World
from scheduler.core.inputs.jobs import Hold, RunningJob, WaitingJob
from scheduler.core.outputs import Eviction
from scheduler.core.placement.demand import UnknownLevelError
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement
from scheduler.core.preemption.rules import Limits, told_numbers
from scheduler.core.preemption.victims import Found, Preemptor, Search, Unit
from scheduler.core.reasons import Numbers, Reason, ReasonCode
from scheduler.core.timeline.bookings import claim_of
from scheduler.core.timeline.claims import Claim
from scheduler.core.topology.grid import RESOURCES, Ints

HOLD_MARGIN_SECONDS = 120.0
"""How long a hold outlives the last moment at which its victims should be gone."""


class Evictions:
    """Holds and evictions of one pass."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left = world.options.max_preemptors if world.options.preempt else 0
        self._stopping: dict[str, list[RunningJob]] = defaultdict(list)
        running = world.snapshot.running
        self._ordered = [job for job in running if job.evicted_for is not None]
        for job in self._ordered:
            if job.evicted_for is not None:
                self._stopping[job.evicted_for].append(job)
        self._holds: dict[str, Hold] = {}
        self._taken: dict[str, tuple[Ints, Ints]] = {}
        self._waiting = world.memo.lines(world.snapshot).jobs
        self._returning = {job.id for job in running if job.stopping}
        self._searches: dict[str, Search] = {}
        self.evictions: list[Eviction] = []
        for hold in world.snapshot.holds:
            self._adopt(hold)

    def _adopt(self, hold: Hold) -> None:
        if hold.expires_at <= self._world.now or hold.flavor not in self._world.fields:
            return
        if hold.job in self._waiting:
            self._holds[hold.job] = hold
            self.keep(hold.job)
        elif hold.job in self._returning:
            self._holds[hold.job] = hold

    @property
    def may_search(self) -> bool:
        """Whether victims may still be searched in this pass."""
        return self._left > 0

    @property
    def held(self) -> set[str]:
        """Jobs for which capacity is being freed or kept."""
        return set(self._taken)

    def is_held_for(self, job: WaitingJob) -> bool:
        """Whether capacity is being freed or kept for the job."""
        return job.id in self._taken

    def release(self, job_id: str) -> None:
        """Show the held capacity again: its owner's turn has come."""
        hold = self._holds[job_id]
        self._world.fields[hold.flavor].give_back(*self._taken.pop(job_id))
        self._world.standing[hold.flavor].pop(job_id, None)
        self._pledge(hold, -1)

    def keep(self, job_id: str) -> None:
        """Hide from others what is free of the hold, and count its quota as used."""
        hold = self._holds[job_id]
        field = self._world.fields[hold.flavor]
        nodes, wanted = _amounts(field, hold)
        kept = np.maximum(wanted - _held_by(field, nodes, self._stopping.get(job_id, ())), 0)
        field.take(nodes, kept)
        self._taken[job_id] = (nodes, kept)
        stay = self._world.stay_of(self._waiting[job_id], self._world.now)
        start = max(
            (self._gone_by(victim) for victim in self._stopping.get(job_id, ())), default=stay.start
        )
        self._world.standing[hold.flavor][job_id] = Claim(
            job_id, start, stay.until, nodes, wanted - kept
        )
        self._pledge(hold, 1)

    def _pledge(self, hold: Hold, sign: int) -> None:
        """The victims' quota counts until they are gone, the preemptor's from now on."""
        gpus = sum(row[1] for row in hold.nodes)
        self._world.accounts.promise(self._waiting[hold.job].ask, hold.flavor, sign * gpus)

    def started(self, job_id: str) -> None:
        """The job starts: its hold has served."""
        self._holds.pop(job_id, None)

    def waiting_reason(self, job: WaitingJob) -> Reason:
        """WAITING_FOR_PREEMPTED with what is stopping for the job."""
        victims = self._stopping.get(job.id, [])
        numbers: Numbers = {
            "stopping_jobs": len(victims),
            "freed_gpus": sum(victim.gpus for victim in victims),
            "free_at": max(map(self._gone_by, victims), default=self._world.now),
        }
        return Reason(ReasonCode.WAITING_FOR_PREEMPTED, numbers)

    def _gone_by(self, victim: RunningJob) -> float:
        now = self._world.now
        return planned_end(victim, now) if victim.stopping else _gone_by(victim, now)

    def evict_for(self, job: WaitingJob) -> bool:
        """Choose victims for the job, if a proven set exists; whether it does."""
        for flavor in job.ask.flavors if self.may_search else ():
            field = self._world.fields.get(flavor)
            if field is None or not self.may_search:
                continue
            preemptor = self._preemptor(field, job)
            if preemptor is None:
                continue
            self._left -= 1
            found = self._search(flavor, field).find(preemptor)
            if found is not None and self._delays_no_booking(field, job, found.placement):
                self._evict(field, job, preemptor, found)
                return True
        return False

    def _preemptor(self, field: Field, job: WaitingJob) -> Preemptor | None:
        if static_reason(self._world, field, job) is not None:
            return None
        try:
            view = field.lens.view(job.ask)
        except UnknownLevelError:
            return None
        usable = field.usable(self._world.stay_of(job, self._world.now))
        return Preemptor(job.ask, view.least, usable, view.least_gpus)

    def _search(self, flavor: str, field: Field) -> Search:
        found = self._searches.get(flavor)
        if found is None:
            world = self._world
            limits = Limits(world.now, world.queues, world.options.preemption_budget)
            roster = world.rosters[flavor]
            found = self._searches[flavor] = Search(field, world.accounts, roster, limits)
        return found

    def _delays_no_booking(self, field: Field, job: WaitingJob, placement: Placement) -> bool:
        bookings = self._world.bookings.get(field.grid.flavor.name)
        stay = self._world.stay_of(job, self._world.now)
        return bookings is None or not bookings.touched_by(claim_of(stay, placement))

    def _evict(self, field: Field, job: WaitingJob, preemptor: Preemptor, found: Found) -> None:
        world, flavor = self._world, field.grid.flavor.name
        refused = self._search(flavor, field).refused(preemptor, found)
        for unit, rule in found.units:
            self.evictions.append(
                Eviction(
                    job=unit.job.id,
                    attempt=unit.job.attempt,
                    preemptor=job.id,
                    rule=rule,
                    lost_gpu_seconds=unit.lost_gpu_seconds,
                    keeps_replicas=unit.keeps,
                    numbers=told_numbers(world.accounts, job.ask, unit.job, world.now),
                    refused=refused,
                )
            )
            self._stopping[job.id].append(unit.job)
            world.gone_by[unit.job.id] = _gone_by(unit.job, world.now)
            if flavor in world.bookings:
                future, was = world.bookings[flavor].future, planned_end(unit.job, world.now)
                future.reschedule(unit.job.id, was, world.gone_by[unit.job.id])
        gone_by = max(_gone_by(unit.job, world.now) for unit, _ in found.units)
        expires_at = gone_by + HOLD_MARGIN_SECONDS
        self._holds[job.id] = _hold(job.id, found.placement, expires_at)
        self.keep(job.id)
        for unit, _ in found.units:
            if unit.keeps:
                self._holds[unit.job.id] = _kept_seats(unit, expires_at)
        self._search(flavor, field).drop({unit.job.id for unit, _ in found.units})

    def holds(self) -> tuple[Hold, ...]:
        """All holds that count from now on."""
        return tuple(self._holds.values())

    def withdrawn(self, starting: set[str]) -> tuple[str, ...]:
        """Running jobs whose eviction was not yet signalled and whose preemptor is gone or starts
        without them."""
        return tuple(
            job.id
            for job in self._ordered
            if not job.eviction_signalled
            and (job.evicted_for not in self._waiting or job.evicted_for in starting)
        )


def _gone_by(victim: RunningJob, now: float) -> float:
    grace = victim.ask.grace_seconds
    if victim.ask.checkpoint is not None:
        grace += victim.ask.checkpoint.grace_seconds
    return min(now + grace, planned_end(victim, now))


def _hold(job_id: str, placement: Placement, expires_at: float) -> Hold:
    nodes, amounts = placement.usage()
    grid = placement.grid
    rows = tuple(
        (grid.nodes[index].name, gpus, cpu, memory, pods)
        for index, (gpus, cpu, memory, pods) in zip(nodes.tolist(), amounts.T.tolist(), strict=True)
    )
    return Hold(job_id, grid.flavor.name, rows, expires_at)


def _kept_seats(unit: Unit, expires_at: float) -> Hold:
    """The place that a shrunk job comes back to."""
    rows: dict[str, list[int]] = {}
    for seat in sorted(unit.job.seats, key=lambda seat: seat.rank)[: unit.keeps]:
        row = rows.setdefault(seat.node, [0] * RESOURCES)
        for place, amount in enumerate((seat.gpus, seat.cpu_millis, seat.memory_mib, 1)):
            row[place] += amount
    nodes = tuple((name, row[0], row[1], row[2], row[3]) for name, row in rows.items())
    return Hold(unit.job.id, unit.job.flavor, nodes, expires_at)


def _amounts(field: Field, hold: Hold) -> tuple[Ints, Ints]:
    index = field.grid.index
    rows = [row for row in hold.nodes if row[0] in index]
    nodes = np.array([index[row[0]] for row in rows], dtype=np.int64)
    wanted = np.array([row[1:] for row in rows], dtype=np.int64)
    return nodes, wanted.reshape(-1, RESOURCES).T


def _held_by(field: Field, nodes: Ints, victims: Iterable[RunningJob]) -> Ints:
    """What the victims still hold on these nodes."""
    places = {node: place for place, node in enumerate(nodes.tolist())}
    held = np.zeros((RESOURCES, nodes.size), dtype=np.int64)
    for victim in victims:
        for seat in victim.seats:
            place = places.get(field.grid.index.get(seat.node, -1))
            if place is not None:
                held[:, place] += (seat.gpus, seat.cpu_millis, seat.memory_mib, 1)
    return held
