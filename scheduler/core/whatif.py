"""Questions about plans: would this job start, what does this change change?

Every answer is the difference between plans made by the one entry point; nothing is guessed.
Called by the submit form, simulations, quota previews, drains and windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.core.calendar.ends import planned_end
from scheduler.core.calendar.windows import Stay, blocks
from scheduler.core.inputs.jobs import RunningJob, WaitingJob
from scheduler.core.inputs.quotas import QueueState
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Estimate, Eviction, OverAdmission, Plan, Start
from scheduler.core.planner import DEFAULT_OPTIONS, plan
from scheduler.core.quota.accounts import Accounts, QuotaView
from scheduler.core.reasons import FOR_EVER, Numbers, Reason, ReasonCode
from scheduler.core.topology.fragments import LevelState, level_states


class SimulationVerdict(StrEnum):
    """What would become of a job submitted now."""

    STARTS_NOW = "starts_now"
    QUEUED = "queued"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Simulation:
    """The answer to "would this fit?".

    `start` is the placement when it starts now; `estimate` the planned start when it does not
    (None: not estimated). `quota_before` and `quota_after` are the tenant's state for the flavor
    that the job gets, or for its first flavor. `evictions` are those made for this job.
    """

    verdict: SimulationVerdict
    reason: Reason | None
    reasons: tuple[Reason, ...]
    start: Start | None
    estimate: Estimate | None
    quota_before: QuotaView | None
    quota_after: QuotaView | None
    evictions: tuple[Eviction, ...]
    plan: Plan


def simulate(
    snapshot: Snapshot,
    job: WaitingJob,
    options: Options = DEFAULT_OPTIONS,
    memo: Memo | None = None,
) -> Simulation:
    """What would become of `job` if it were submitted to this snapshot (it is not in it)."""
    made = plan(replace(snapshot, waiting=(*snapshot.waiting, job)), options, memo)
    start = next((start for start in made.starts if start.job == job.id), None)
    closed = _closed(snapshot, job)
    if closed is not None:
        start = None
    before, after = _quota_views(snapshot, job, start)
    reasons = () if start is not None else _reasons(made, job, closed)
    return Simulation(
        verdict=_verdict(start, reasons),
        reason=reasons[0] if reasons else None,
        reasons=reasons,
        start=start,
        estimate=next((e for e in made.estimates if e.job == job.id), None),
        quota_before=before,
        quota_after=after,
        evictions=tuple(e for e in made.evictions if e.preemptor == job.id),
        plan=made,
    )


def fragmentation(
    snapshot: Snapshot, memo: Memo | None = None
) -> dict[str, tuple[LevelState, ...]]:
    """Per flavor the state of each level, widest first: how whole is what is free?"""
    kept = Memo() if memo is None else memo
    lenses = kept.lenses(snapshot)
    free = kept.ledger(snapshot).free
    return {name: level_states(lens.grid, free[name]) for name, lens in lenses.items()}


def _closed(snapshot: Snapshot, job: WaitingJob) -> Reason | None:
    for queue in snapshot.queues:
        if queue.name == job.ask.queue and queue.state is QueueState.CLOSED:
            return Reason(ReasonCode.QUEUE_CLOSED, {"queue": queue.name})
    return None


def _reasons(made: Plan, job: WaitingJob, closed: Reason | None) -> tuple[Reason, ...]:
    found: list[Reason] = [] if closed is None else [closed]
    own = made.own_reasons.get(job.id)
    if own is not None:
        found.append(own)
    key = made.classes.get(job.id)
    if key is not None:
        found.extend(made.verdicts[key].reasons)
    return tuple(found)


def _verdict(start: Start | None, reasons: tuple[Reason, ...]) -> SimulationVerdict:
    if start is not None:
        return SimulationVerdict.STARTS_NOW
    if reasons and (reasons[0].code in FOR_EVER or reasons[0].code is ReasonCode.QUEUE_CLOSED):
        return SimulationVerdict.NEVER
    return SimulationVerdict.QUEUED


def _quota_views(
    snapshot: Snapshot, job: WaitingJob, start: Start | None
) -> tuple[QuotaView | None, QuotaView | None]:
    flavor = start.flavor if start is not None else next(iter(job.ask.flavors), None)
    if flavor is None:
        return None, None
    accounts = Accounts(snapshot)
    before = accounts.view(job.ask.tenant, flavor)
    gpus = start.gpus if start is not None else job.ask.gpus
    accounts.add(job.ask, flavor, gpus)
    return before, accounts.view(job.ask.tenant, flavor)


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes between two plans, by job id.

    `starts` start only after the change; `waits_longer` start now only without it, or are
    estimated or booked later with it; `evicted` are stopped only with it. `over_admissions` are
    those that the change makes. `plan_id` is the identity of the plan after the change.
    """

    plan_id: str
    starts: tuple[Start, ...]
    waits_longer: tuple[str, ...]
    evicted: tuple[Eviction, ...]
    over_admissions: tuple[OverAdmission, ...]
    before: Plan
    after: Plan


def difference(
    before: Snapshot,
    after: Snapshot,
    options: Options = DEFAULT_OPTIONS,
    memos: tuple[Memo | None, Memo | None] = (None, None),
) -> Difference:
    """What a change of the snapshot changes: quotas, nodes, windows, jobs, anything.

    `memos` are the caller's for the two snapshots. The plan after the change can be applied by its
    id while the versions that it touches have not moved.
    """
    old, new = plan(before, options, memos[0]), plan(after, options, memos[1])
    starting = {start.job for start in old.starts}
    stopped = {eviction.job for eviction in old.evictions}
    over = set(old.over_admissions)
    return Difference(
        plan_id=new.identity,
        starts=tuple(start for start in new.starts if start.job not in starting),
        waits_longer=_waits_longer(after, old, new),
        evicted=tuple(e for e in new.evictions if e.job not in stopped),
        over_admissions=tuple(o for o in new.over_admissions if o not in over),
        before=old,
        after=new,
    )


def _waits_longer(after: Snapshot, old: Plan, new: Plan) -> tuple[str, ...]:
    """Jobs whose known start gets later; a job without any known start before is left out."""
    then, now = _start_times(old), _start_times(new)
    return tuple(
        job.id
        for job in after.waiting
        if job.id in then and now.get(job.id, float("inf")) > then[job.id]
    )


def _start_times(made: Plan) -> dict[str, float]:
    times = {e.job: float("inf") if e.starts_at is None else e.starts_at for e in made.estimates}
    times |= {booking.job: booking.starts_at for booking in made.bookings}
    return times | {start.job: made.now for start in made.starts}


def extension_refusal(
    snapshot: Snapshot,
    job_id: str,
    max_runtime_seconds: float | None,
    options: Options = DEFAULT_OPTIONS,
) -> Reason | None:
    """Why a running job's limit may not be extended: WAITING_FOR_BOOKING when a booking would
    move later, WAITING_FOR_MAINTENANCE when the job would run into a window; None when it may.

    Raises KeyError when the job does not run.
    """
    job = next((job for job in snapshot.running if job.id == job_id), None)
    if job is None:
        raise KeyError(job_id)
    longer = replace(job, ask=replace(job.ask, max_runtime_seconds=max_runtime_seconds))
    crossed = _window_crossed(snapshot, job, longer)
    if crossed is not None:
        return crossed
    running = tuple(longer if other is job else other for other in snapshot.running)
    old = plan(snapshot, options)
    later = _start_times(plan(replace(snapshot, running=running), options))
    for booking in old.bookings:
        if later.get(booking.job, float("inf")) > booking.starts_at:
            spent = snapshot.now - (job.started_at or job.placed_at)
            numbers: Numbers = {
                "booked_job": booking.job,
                "booked_at": booking.starts_at,
                "longest_seconds": max(0.0, booking.starts_at - snapshot.now + spent),
                "needed_gpus": job.gpus,
            }
            return Reason(ReasonCode.WAITING_FOR_BOOKING, numbers)
    return None


def _window_crossed(snapshot: Snapshot, job: RunningJob, longer: RunningJob) -> Reason | None:
    before, after = planned_end(job, snapshot.now), planned_end(longer, snapshot.now)
    nodes = {seat.node for seat in job.seats}
    for window in sorted(snapshot.windows, key=lambda w: (w.starts_at, w.id)):
        stay = Stay(job.ask, job.id, snapshot.now, after)
        newly_reached = before <= window.starts_at < after and bool(window.nodes & nodes)
        if newly_reached and blocks(window, stay):
            numbers: Numbers = {
                "flavor": job.flavor,
                "needed_replicas": len(job.seats),
                "needed_gpus": job.gpus,
                "needed_nodes": len(nodes),
                "window": window.id,
                "starts_at": window.starts_at,
                "longest_seconds": window.starts_at - (job.started_at or job.placed_at),
            }
            return Reason(ReasonCode.WAITING_FOR_MAINTENANCE, numbers)
    return None
