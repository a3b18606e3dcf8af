"""The virtual-time driver: completions, submissions, one plan per time stamp (if anybody waits).

Every decision is made by `scheduler.core.planner.plan`, the entry point that the loop uses; the
driver only moves time, ends jobs when their real run time is over, and enacts starts at once.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from scheduler.core.inputs.cluster import Cluster, Flavor, Node
from scheduler.core.inputs.jobs import Ask, RunningJob, WaitingJob
from scheduler.core.inputs.quotas import BackfillOrder, DecayedUsage, FlavorQuota, Queue, Tenant
from scheduler.core.inputs.snapshot import Effort, Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Plan, Start
from scheduler.core.planner import plan
from scheduler.replay.trace import FLAVOR, QUEUE, TENANT, TraceJob

_EVERY_JOB = 1 << 30
HALF_LIFE_SECONDS = 604_800.0


def policy_queue(policy: str) -> Queue:
    """The queue settings that a policy name stands for; `default` is the product's own.

    Raises KeyError for an unknown name.
    """
    default = Queue(QUEUE, TENANT, user_fairness=True)
    in_order = replace(
        default,
        backfill_order=BackfillOrder.ORDER,
        booking_after_seconds=None,
        user_fairness=False,
    )
    policies = {
        "fifo": replace(in_order, booking_depth=0, backfill=False),
        "skip": replace(in_order, booking_depth=0),
        "easy": replace(in_order, booking_depth=1),
        "conservative": replace(in_order, booking_depth=_EVERY_JOB),
        "default": default,
    }
    return policies[policy]


POLICIES = ("fifo", "skip", "easy", "conservative", "default")


@dataclass(frozen=True, slots=True)
class Run:
    """One job's life in a replay; `nodes` is how many it had, `domains` on which leaves."""

    job: TraceJob
    started_at: float
    ended_at: float
    nodes: tuple[str, ...]


@dataclass(slots=True)
class PastUse:
    """GPU seconds per user, decayed by the half-life that the product uses.

    A GPU held from a to b counts at `now` the integral of 2^((t − now) / half-life) over [a, b].
    """

    _over: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _held: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def started(self, ask: Ask, now: float) -> None:
        """The user holds the ask's GPUs from now on."""
        self._over[ask.user] -= ask.gpus * _weight(now)
        self._held[ask.user] += ask.gpus

    def ended(self, ask: Ask, now: float) -> None:
        """The user holds them no more."""
        self._over[ask.user] += ask.gpus * _weight(now)
        self._held[ask.user] -= ask.gpus

    def of(self, user: str, now: float) -> float:
        """Decayed GPU seconds of the user."""
        area = self._over[user] + self._held[user] * _weight(now)
        return area / _weight(now) * HALF_LIFE_SECONDS / math.log(2)


def _weight(moment: float) -> float:
    return float(2.0 ** (moment / HALF_LIFE_SECONDS))


@dataclass(slots=True)
class Replay:
    """A cluster in virtual time. Feed it jobs with `run`; read `runs` and `never_fit` after."""

    nodes: tuple[Node, ...]
    levels: tuple[str, ...]
    queue: Queue
    options: Options = field(
        default_factory=lambda: Options(
            effort=Effort.DECIDE,
            preempt=False,
            start_allowance_seconds=0.0,
            max_bookings=_EVERY_JOB,
            max_moments=_EVERY_JOB,
        )
    )
    runs: list[Run] = field(default_factory=list)
    never_fit: list[TraceJob] = field(default_factory=list)
    plans: int = 0
    _memo: Memo = field(default_factory=Memo)
    _jobs: dict[str, TraceJob] = field(default_factory=dict)
    _waiting: dict[str, WaitingJob] = field(default_factory=dict)
    _running: dict[str, RunningJob] = field(default_factory=dict)
    _ends: list[tuple[float, str]] = field(default_factory=list)
    _wanted: Counter[int] = field(default_factory=Counter)
    _free: int = 0
    _past: PastUse = field(default_factory=PastUse)

    def run(self, jobs: Iterable[TraceJob]) -> None:
        """Replay the jobs to the end of the last one that can run."""
        arrivals = sorted(jobs, key=lambda job: (job.waiting.submitted_at, job.waiting.id))
        self._jobs = {job.waiting.id: job for job in arrivals}
        self._free = sum(node.capacity.gpus for node in self.nodes)
        position = 0
        while position < len(arrivals) or self._ends:
            now = self._next_time(arrivals, position)
            self._complete(now)
            while position < len(arrivals) and arrivals[position].waiting.submitted_at == now:
                waiting = arrivals[position].waiting
                self._waiting[waiting.id] = waiting
                self._wanted[waiting.ask.gpus] += 1
                position += 1
            if self._waiting and self.asks_at(now):
                self._enact(now, self.plan_at(now))
        self.never_fit.extend(self._jobs[job_id] for job_id in self._waiting)

    def asks_at(self, now: float) -> bool:
        """Whether a plan is worth asking for: the smallest job that waits might fit. With fewer GPUs
        free than that no plan starts anything."""
        del now
        return min(self._wanted) <= self._free

    def _next_time(self, arrivals: list[TraceJob], position: int) -> float:
        times = [self._ends[0][0]] if self._ends else []
        if position < len(arrivals):
            times.append(arrivals[position].waiting.submitted_at)
        return min(times)

    def _complete(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            ended_at, job_id = heapq.heappop(self._ends)
            job = self._running.pop(job_id)
            self._free += job.ask.gpus
            self._past.ended(job.ask, ended_at)

    def snapshot_at(self, now: float) -> Snapshot:
        """The cluster as it is at `now`, as the loop would see it."""
        return Snapshot(
            now=now,
            cluster=Cluster("trace", levels=self.levels),
            flavors=(Flavor(FLAVOR),),
            nodes=self.nodes,
            tenants=(Tenant(TENANT, None, (FlavorQuota(FLAVOR, _EVERY_JOB),)),),
            queues=(self.queue,),
            usage=self._usage(now) if self.queue.user_fairness else (),
            half_life_seconds=HALF_LIFE_SECONDS,
            running=tuple(self._running.values()),
            waiting=tuple(self._waiting.values()),
        )

    def _usage(self, now: float) -> tuple[DecayedUsage, ...]:
        users = {job.ask.user for job in self._waiting.values()}
        return tuple(DecayedUsage(TENANT, user, self._past.of(user, now)) for user in sorted(users))

    def plan_at(self, now: float) -> Plan:
        """What the planner decides at `now`."""
        self.plans += 1
        return plan(self.snapshot_at(now), self.options, self._memo)

    def _enact(self, now: float, made: Plan) -> None:
        for start in made.starts:
            waiting = self._waiting.pop(start.job)
            job = self._jobs[start.job]
            end = now + job.duration_seconds
            self._count_out(waiting.ask)
            self._past.started(waiting.ask, now)
            self._running[start.job] = _running(waiting, start, now)
            heapq.heappush(self._ends, (end, start.job))
            self.runs.append(Run(job, now, end, start.nodes))

    def _count_out(self, ask: Ask) -> None:
        self._free -= ask.gpus
        self._wanted[ask.gpus] -= 1
        if not self._wanted[ask.gpus]:
            del self._wanted[ask.gpus]


def _running(waiting: WaitingJob, start: Start, now: float) -> RunningJob:
    return RunningJob(
        id=waiting.id,
        attempt=1,
        ask=waiting.ask,
        flavor=start.flavor,
        seats=start.seats,
        placed_at=now,
        started_at=now,
    )
