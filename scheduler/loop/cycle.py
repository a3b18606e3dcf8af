"""One cluster's cycle: refresh the snapshot, plan, commit (DESIGN section 3). It never calls Kubernetes.

`ClusterLoop.tick` is called by the pacemaker every second and whenever the log has grown; it costs one query
when nothing has changed. All state that it keeps can be thrown away at any time: rows are the truth.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from controlplane.common import log
from queues.models import Cluster
from scheduler.apply.fence import HeldLease, LeaseLostError, hold
from scheduler.apply.holds import write_bookings
from scheduler.apply.plan import Applied, Told, apply_plan
from scheduler.apply.spoken import Spoken, read_spoken
from scheduler.core.inputs.snapshot import Options
from scheduler.core.memo import Memo
from scheduler.core.outputs import OverAdmission
from scheduler.core.planner import plan
from scheduler.loop import metrics
from scheduler.loop.estimating import Estimating
from scheduler.loop.lease import acquire, give_back, renew
from scheduler.loop.over_admission import tell_over_admissions
from scheduler.loop.preemption import Preemption
from scheduler.loop.silence import note_silence
from scheduler.loop.timetable import next_due
from scheduler.models import ClusterState
from scheduler.services.evictions import carry_out_evictions
from scheduler.services.occurrences import WindowTicker
from scheduler.snapshot.reading import consistent_reads
from scheduler.snapshot.warm import WarmSnapshot, differences

logger = logging.getLogger(__name__)

RENEW_AFTER = timedelta(seconds=3)
# A waiting job's verdict is never older than 10 s (DESIGN section 9).
CONSIDER_AFTER = timedelta(seconds=5)
# What depends on nothing but time (decayed usage, estimates) is looked at again so often.
REPLAN_AFTER = timedelta(seconds=30)
COMPARE_AFTER = timedelta(minutes=15)
# Long enough that planning anew for what is left costs little beside committing.
CYCLE_BUDGET_SECONDS = 4.0
# A slice of the estimates after a cycle, and in a tick without one; there it ends when the log says something new.
BUSY_SLICE_SECONDS = 0.2
QUIET_SLICE_SECONDS = 0.5
LOOK_UP_SECONDS = 0.05
OPTIONS = Options()


class Tick(Enum):
    """What a tick came to."""

    NOT_LEADER = "not_leader"
    IDLE = "idle"
    CYCLED = "cycled"


@dataclass(slots=True)
class _Kept:
    """What a leader keeps warm between cycles."""

    warm: WarmSnapshot
    spoken: Spoken
    windows: WindowTicker
    memo: Memo = field(default_factory=Memo)
    due: float | None = None
    again: bool = True
    has_started: bool = False
    doubtful: bool = False
    considered_at: datetime | None = None
    planned_at: datetime | None = None
    # None: not told yet by this worker.
    over_admissions: tuple[OverAdmission, ...] | None = None
    estimating: Estimating = field(default_factory=Estimating)
    compared_at: datetime | None = None


@dataclass(slots=True)
class ClusterLoop:
    """Plans for one cluster as long as it holds the lease. One thread uses it.

    holder: this worker's name, unique among workers. clock: seconds that only rise, for the cycle's budget.
    """

    cluster_id: int
    cluster: str
    holder: str
    clock: Callable[[], float] = time.monotonic
    options: Options = OPTIONS
    _lease: HeldLease | None = None
    _renewed_at: datetime | None = None
    _kept: _Kept | None = None

    def tick(self, now: datetime) -> Tick:
        """Run a cycle if one could change anything; otherwise say now and then that it was considered.

        DatabaseError passes through: call `forget` and go on.
        """
        try:
            lease = self._leader(now)
            if lease is None:
                return Tick.NOT_LEADER
            return self._tick(lease, now)
        except LeaseLostError as error:
            logger.warning("%s", error)
            self.forget()
            return Tick.NOT_LEADER

    @property
    def wants_more(self) -> bool:
        """Whether the last cycle left starts for the next one."""
        return self._kept is not None and self._kept.again

    @property
    def has_started(self) -> bool:
        """Whether the last cycle started a gang."""
        return self._kept is not None and self._kept.has_started

    def forget(self) -> None:
        """Drop the lease's token and all that is warm: the next tick starts cold."""
        self._lease = self._kept = None

    def stop(self) -> None:
        """Give the lease back, so that another worker goes on at once."""
        if self._lease is not None:
            give_back(self._lease)
        self.forget()

    def _leader(self, now: datetime) -> HeldLease | None:
        if self._lease is None:
            self._lease = acquire(self.cluster_id, self.holder)
            if self._lease is None:
                return None
            logger.info("planning for cluster %s", self.cluster)
            self._renewed_at = now
        elif self._renewed_at is None or now - self._renewed_at >= RENEW_AFTER:
            if not renew(self._lease):
                raise LeaseLostError(f"{self.holder} lost the lease of cluster {self.cluster}")
            self._renewed_at = now
        return self._lease

    def _tick(self, lease: HeldLease, now: datetime) -> Tick:
        kept = self._kept or self._start_cold(now)
        changed = kept.warm.refresh()
        self._see_off(lease, kept, now, changed=changed)
        if changed or kept.warm.evictions_open:
            changed = kept.warm.refresh() or changed
        if kept.doubtful and not changed:
            # The rows refused a start, and the log does not say why: trust the rows.
            kept = self._start_cold(now)
        elif _is_over(kept.compared_at, COMPARE_AFTER, now):
            kept = self._compared(kept, now)
        due = kept.due is not None and now.timestamp() >= kept.due
        if changed or due or kept.again or _is_over(kept.planned_at, REPLAN_AFTER, now):
            self._cycle(lease, kept, now)
            if not kept.again:
                self._estimate_meanwhile(lease, kept, now)
            return Tick.CYCLED
        self._estimate(lease, kept, now)
        if _is_over(kept.considered_at, CONSIDER_AFTER, now):
            self._consider(lease, kept, now)
        return Tick.IDLE

    def _see_off(self, lease: HeldLease, kept: _Kept, now: datetime, *, changed: bool) -> None:
        """Let windows and drains go on, and stop who was ordered to leave in an earlier tick, if it is time.

        In an earlier one: an order whose reason goes away at once is withdrawn before anybody is told.
        """

        def fence() -> None:
            hold(lease)

        if changed:
            kept.windows.cluster.refresh_from_db()
        kept.windows.tick(now, fence, changed=changed)
        if kept.warm.evictions_open:
            carry_out_evictions(self.cluster_id, now, fence)

    def _start_cold(self, now: datetime) -> _Kept:
        ClusterState.objects.get_or_create(cluster_id=self.cluster_id)
        with log.writing():
            # Of a database that was restored the cluster process has to say first what runs.
            note_silence(self.cluster_id, self.cluster, now)
        warm = WarmSnapshot(self.cluster_id, self.cluster)
        warm.refresh()
        cluster = Cluster.objects.get(pk=self.cluster_id)
        spoken = read_spoken(self.cluster_id)
        self._kept = _Kept(warm, spoken, WindowTicker(cluster), compared_at=now)
        return self._kept

    def _compared(self, kept: _Kept, now: datetime) -> _Kept:
        """The warm snapshot checked against a cold one; a difference is a defect, and the cold one goes on."""
        kept.compared_at = now
        cold = WarmSnapshot(self.cluster_id, self.cluster)
        with consistent_reads():
            kept.warm.refresh()
            cold.refresh()
        found = differences(kept.warm.snapshot(now.timestamp()), cold.snapshot(now.timestamp()))
        if not found:
            return kept
        self._report_defect(found, now)
        return self._start_cold(now)

    def _report_defect(self, found: list[str], now: datetime) -> None:
        metrics.SNAPSHOT_DEFECTS.labels(self.cluster).inc()
        logger.error("the warm snapshot of %s differs: %s", self.cluster, "; ".join(found))
        with log.writing():
            log.record(
                log.NewEvent(
                    kind="audit.snapshot_defect",
                    at=now,
                    cluster=self.cluster,
                    actor="scheduler",
                    numbers={"parts": [text.partition(":")[0] for text in found]},
                )
            )

    def _cycle(self, lease: HeldLease, kept: _Kept, now: datetime) -> None:
        began = self.clock()
        snapshot = kept.warm.snapshot(now.timestamp())
        made = plan(snapshot, self.options, kept.memo)
        applied = apply_plan(
            lease,
            snapshot,
            made,
            Told(kept.spoken, kept.warm.said),
            now,
            has_time=lambda: self.clock() - began < CYCLE_BUDGET_SECONDS,
        )
        for job in applied.started:
            kept.spoken.estimates.pop(job, None)
        stopped = Preemption(lease, snapshot, made, now).commit(applied.started)
        write_bookings(lease, made, kept.spoken, now)
        if made.over_admissions != kept.over_admissions:
            tell_over_admissions(self.cluster_id, made.over_admissions, now)
            kept.over_admissions = made.over_admissions
        most = self.options.max_starts
        kept.again = applied.left > 0 or (most is not None and len(made.starts) >= most)
        kept.has_started = bool(applied.started)
        kept.doubtful = bool(applied.outdated or stopped.outdated)
        kept.due = next_due(snapshot)
        kept.planned_at = now
        self._consider(lease, kept, now, cycle_seconds=self.clock() - began)
        self._count(applied, self.clock() - began)

    def _estimate_meanwhile(self, lease: HeldLease, kept: _Kept, now: datetime) -> None:
        """A slice of the estimates though something happens all the time: of the open round, or of one that is late."""
        until = self.clock() + BUSY_SLICE_SECONDS
        if kept.estimating.is_late(kept.planned_at, now):
            self._begin_estimates(lease, kept, now)
        kept.estimating.go_on(self.clock, lambda: self.clock() < until)

    def _estimate(self, lease: HeldLease, kept: _Kept, now: datetime) -> None:
        """A slice of the estimates while nothing happens: it ends as soon as something does."""
        until, look_up = self.clock() + QUIET_SLICE_SECONDS, self.clock() + LOOK_UP_SECONDS

        def has_time() -> bool:
            nonlocal look_up
            moment = self.clock()
            if moment < look_up:
                return True
            look_up = moment + LOOK_UP_SECONDS
            return moment < until and not kept.warm.is_behind()

        if kept.estimating.is_due(kept.planned_at, now):
            self._begin_estimates(lease, kept, now)
        kept.estimating.go_on(self.clock, has_time)

    def _begin_estimates(self, lease: HeldLease, kept: _Kept, now: datetime) -> None:
        snapshot = kept.warm.snapshot(now.timestamp())
        kept.estimating.begin(lease, snapshot, self.options, kept.spoken, now)

    def _consider(
        self,
        lease: HeldLease,
        kept: _Kept,
        now: datetime,
        *,
        cycle_seconds: float | None = None,
    ) -> None:
        """Say that every verdict holds now, in one row for the whole cluster."""
        changes: dict[str, object] = {"considered_at": now, "cycle_seq": kept.warm.seq}
        if cycle_seconds is not None:
            changes["cycle_ms"] = round(cycle_seconds * 1000)
        with log.writing():
            hold(lease)
            ClusterState.objects.filter(cluster_id=self.cluster_id).update(**changes)
            note_silence(self.cluster_id, self.cluster, now)
        kept.considered_at = now

    def _count(self, applied: Applied, seconds: float) -> None:
        metrics.CYCLE_SECONDS.labels(self.cluster).observe(seconds)
        metrics.PLAN_STARTS.labels(self.cluster).observe(
            len(applied.started) + len(applied.outdated)
        )
        metrics.STARTS.labels(self.cluster).inc(len(applied.started))
        metrics.OUTDATED.labels(self.cluster).inc(len(applied.outdated))


def _is_over(since: datetime | None, wait: timedelta, now: datetime) -> bool:
    return since is None or now - since >= wait
