"""What a plan wants stopped, and for whom → evictions and holds. Called by `scheduler.loop.cycle`.

A preemptor's evictions and its hold are one transaction: capacity is never freed without being kept, nor kept
without being freed. What no longer holds (the preemptor does not wait any more, a victim has left) is left out.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django.db import OperationalError
from psycopg.errors import DeadlockDetected

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import Phase
from queues.models import Attempt, Job
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.holds import drop_holds, write_holds
from scheduler.core.inputs.jobs import EvictionRule
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Eviction, Plan, Resize
from scheduler.models import Eviction as EvictionRow
from scheduler.services.evictions import order_eviction, withdraw_eviction

logger = logging.getLogger(__name__)

ORDERED_BY = "scheduler"
# What the stopped job is told. Nobody is named: its tenant may not see the other one.
MESSAGES: Mapping[str, str] = {
    EvictionRule.PRIORITY: "makes room for a job of its tenant with a higher priority",
    EvictionRule.RECLAIM: "makes room for a tenant that takes back quota it had lent",
    EvictionRule.FAIR_SHARE: "makes room for a tenant that has had less than its fair share",
}
SHRINKS = "gives up replicas beyond its minimum to make room for others"
GROWS = "restarts from its checkpoint with more replicas"
PREEMPTOR_LEFT = "the job that it was to make room for no longer needs it"


@dataclass(slots=True)
class Preempted:
    """What became of a plan's evictions: jobs ordered to leave, preemptors that were left out."""

    ordered: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Preemption:
    """Writes one plan's evictions, resizes, withdrawals and holds under a lease."""

    lease: HeldLease
    snapshot: Snapshot
    plan: Plan
    now: datetime

    def commit(self, started: Collection[str]) -> Preempted:
        """`started`: jobs of the plan that were placed; their holds have served. Raises LeaseLostError."""
        done = Preempted()
        self._withdraw()
        by_preemptor: dict[str, list[Eviction]] = defaultdict(list)
        for eviction in self.plan.evictions:
            by_preemptor[eviction.preemptor].append(eviction)
        for preemptor, evictions in by_preemptor.items():
            self._in_turn(done, preemptor, partial(self._evict, preemptor, evictions))
        for resize in self.plan.resizes:
            self._in_turn(done, resize.job, partial(self._grow, resize))
        self._drop(started)
        return done

    def _in_turn(self, done: Preempted, job: str, act: Callable[[], list[str]]) -> None:
        """One group in a transaction of its own; a group that no longer holds leaves no trace."""
        try:
            with log.writing():
                hold(self.lease)
                done.ordered += act()
        except ConflictError as error:
            logger.info("preemption for %s skipped: %s", job, error.detail)
            done.outdated.append(job)
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
            done.outdated.append(job)

    def _evict(self, preemptor: str, evictions: Iterable[Eviction]) -> list[str]:
        version = next((j.version for j in self.snapshot.waiting if j.id == preemptor), None)
        job = Job.objects.select_for_update(of=("self",)).filter(pk=preemptor).first()
        if job is None or job.phase != Phase.PENDING or job.version != version:
            raise ConflictError(f"{preemptor} is no longer the job that was planned")
        ordered = []
        for eviction in evictions:
            attempt = _open_attempt(eviction.job, eviction.attempt)
            if attempt is not None:
                self._order(eviction, attempt, job)
                ordered.append(eviction.job)
        kept = {preemptor, *(e.job for e in evictions if e.keeps_replicas)}
        holds = [each for each in self.plan.holds if each.job in kept]
        write_holds(self.lease.cluster_id, self.snapshot.cluster.name, holds, self.now)
        return ordered

    def _order(self, eviction: Eviction, attempt: Attempt, preemptor: Job) -> None:
        order_eviction(
            attempt,
            rule=eviction.rule.value,
            message=SHRINKS if eviction.keeps_replicas else MESSAGES[eviction.rule],
            ordered_by=ORDERED_BY,
            now=self.now,
            preemptor=preemptor,
            keeps_replicas=eviction.keeps_replicas,
            lost_gpu_seconds=eviction.lost_gpu_seconds,
            numbers=eviction.numbers,
            refused=eviction.refused,
        )

    def _grow(self, resize: Resize) -> list[str]:
        attempt = _open_attempt(resize.job, resize.attempt)
        if attempt is None:
            raise ConflictError(f"{resize.job} is no longer the job that was planned")
        numbers = {
            "from_replicas": resize.from_replicas,
            "to_replicas": resize.to_replicas,
            "gain_seconds": resize.gain_seconds,
        }
        order_eviction(
            attempt,
            rule="grow",
            message=GROWS,
            ordered_by=ORDERED_BY,
            now=self.now,
            keeps_replicas=resize.to_replicas,
            numbers=numbers,
        )
        return [resize.job]

    def _withdraw(self) -> None:
        if not self.plan.withdrawn:
            return
        rows = EvictionRow.objects.filter(
            EvictionRow.OPEN,
            attempt__job__in=self.plan.withdrawn,
            preemptor__isnull=False,
            signalled_at__isnull=True,
        )
        for eviction in rows.select_related("cluster", "attempt"):
            try:
                with log.writing():
                    hold(self.lease)
                    withdraw_eviction(eviction, message=PREEMPTOR_LEFT, now=self.now)
            except ConflictError:
                # Its pods were told in this moment: it completes.
                continue

    def _drop(self, started: Collection[str]) -> None:
        """Holds that the plan no longer keeps, but for those whose start was left for the next cycle."""
        kept = {each.job for each in self.plan.holds}
        left = {start.job for start in self.plan.starts} - set(started)
        gone = [h.job for h in self.snapshot.holds if h.job not in kept | left]
        drop_holds(self.lease, self.snapshot.cluster.name, gone, self.now)


def _open_attempt(job: str, number: int) -> Attempt | None:
    """The attempt, unless it has ended or is stopping already."""
    return (
        Attempt.objects.select_related("job")
        .filter(job=job, number=number, ended_at__isnull=True, stop_cause="")
        .first()
    )
