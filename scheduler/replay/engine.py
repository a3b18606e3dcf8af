"""The virtual-time driver: completions, submissions, one plan per time stamp (if anybody waits).

Every decision is made by `scheduler.core.planner.plan`, the entry point that the loop uses; the
driver only moves time, ends jobs when their real run time is over, and enacts starts at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from scheduler.core.inputs.cluster import Cluster, Flavor, Node
from scheduler.core.inputs.jobs import RunningJob, WaitingJob
from scheduler.core.inputs.quotas import BackfillOrder, FlavorQuota, Queue, Tenant
from scheduler.core.inputs.snapshot import Effort, Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Plan, Start
from scheduler.core.planner import plan
from scheduler.replay.trace import FLAVOR, QUEUE, TENANT, TraceJob

_EVERY_JOB = 1 << 30


def policy_queue(policy: str) -> Queue:
    """The queue settings that a policy name stands for; `default` is the product's own.

    Raises KeyError for an unknown name.
    """
    default = Queue(QUEUE, TENANT, user_fairness=True)
    plain = Queue(QUEUE, TENANT)
    in_order = replace(plain, backfill_order=BackfillOrder.ORDER, booking_after_seconds=None)
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

    def run(self, jobs: Iterable[TraceJob]) -> None:
        """Replay the jobs to the end of the last one that can run."""
        arrivals = sorted(jobs, key=lambda job: (job.waiting.submitted_at, job.waiting.id))
        self._jobs = {job.waiting.id: job for job in arrivals}
        position = 0
        while position < len(arrivals) or self._ends:
            now = self._next_time(arrivals, position)
            self._complete(now)
            while position < len(arrivals) and arrivals[position].waiting.submitted_at == now:
                waiting = arrivals[position].waiting
                self._waiting[waiting.id] = waiting
                position += 1
            if self._waiting:
                self._enact(now, self.plan_at(now))
        self.never_fit.extend(self._jobs[job_id] for job_id in self._waiting)

    def _next_time(self, arrivals: list[TraceJob], position: int) -> float:
        times = [self._ends[0][0]] if self._ends else []
        if position < len(arrivals):
            times.append(arrivals[position].waiting.submitted_at)
        return min(times)

    def _complete(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, job_id = heapq.heappop(self._ends)
            del self._running[job_id]

    def snapshot_at(self, now: float) -> Snapshot:
        """The cluster as it is at `now`, as the loop would see it."""
        return Snapshot(
            now=now,
            cluster=Cluster("trace", levels=self.levels),
            flavors=(Flavor(FLAVOR),),
            nodes=self.nodes,
            tenants=(Tenant(TENANT, None, (FlavorQuota(FLAVOR, _EVERY_JOB),)),),
            queues=(self.queue,),
            running=tuple(self._running.values()),
            waiting=tuple(self._waiting.values()),
        )

    def plan_at(self, now: float) -> Plan:
        """What the planner decides at `now`."""
        self.plans += 1
        return plan(self.snapshot_at(now), self.options, self._memo)

    def _enact(self, now: float, made: Plan) -> None:
        for start in made.starts:
            waiting = self._waiting.pop(start.job)
            job = self._jobs[start.job]
            end = now + job.duration_seconds
            self._running[start.job] = _running(waiting, start, now)
            heapq.heappush(self._ends, (end, start.job))
            self.runs.append(Run(job, now, end, start.nodes))


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
