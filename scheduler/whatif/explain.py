"""Why one job waits, who is ahead of it, and what would make it start: each change is tried by the planner. Pure.

Called by `questions`, with a clock that says when to stop looking for a start far ahead.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.core.calendar.ends import end_or_none, planned_end
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.snapshot import Effort, Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Plan
from scheduler.core.planner import estimating
from scheduler.core.reasons import FOR_EVER, Reason, ReasonCode
from scheduler.whatif.ahead import Kept, Lookout
from scheduler.whatif.trials import Trial, can_help, reasons_of, trials_of

Json = dict[str, Any]
MOST_AHEAD = 20
# A job further back in line has no estimate: too much can happen before it.
MOST_ESTIMATED = 1_000
# How long one estimate takes is known after so many.
FEW = 8

# The checks in the planner's order, each with the reasons that it gives. A check behind a closed gate is not made.
GATES: Mapping[str, tuple[ReasonCode, ...]] = {
    "cluster": (
        ReasonCode.CLUSTER_UNREACHABLE,
        ReasonCode.CLUSTER_PAUSED,
        ReasonCode.CLUSTER_OBSERVING,
    ),
    "queue": (ReasonCode.QUEUE_HELD, ReasonCode.QUEUE_CLOSED),
    "dependencies": (ReasonCode.WAITING_FOR_DEPENDENCY,),
    "begin_time": (ReasonCode.BEGIN_TIME,),
    "backoff": (ReasonCode.BACKOFF,),
    "kubernetes": (ReasonCode.REFUSED_BY_KUBERNETES,),
}
CHECKS: Mapping[str, tuple[ReasonCode, ...]] = {
    "quota_ceiling": (ReasonCode.EXCEEDS_QUOTA_FOR_EVER,),
    "cluster_size": (ReasonCode.EXCEEDS_CLUSTER_FOR_EVER,),
    "limits": (ReasonCode.USER_LIMIT,),
    "quota": (ReasonCode.WAITING_FOR_QUOTA,),
    "fair_share": (ReasonCode.WAITING_FOR_FAIR_SHARE,),
    "driver": (ReasonCode.WAITING_FOR_DRIVER,),
    "health": (ReasonCode.UNHEALTHY_NODES,),
    "nodes": (ReasonCode.WAITING_FOR_NODES,),
    "topology": (ReasonCode.WAITING_FOR_TOPOLOGY,),
    "reservations": (ReasonCode.WAITING_FOR_RESERVATION,),
    "maintenance": (ReasonCode.WAITING_FOR_MAINTENANCE,),
    "priority": (ReasonCode.HIGHER_PRIORITY_AHEAD,),
    "bookings": (ReasonCode.WAITING_FOR_BOOKING,),
}


@dataclass(frozen=True, slots=True)
class State:
    """What jobs wait in: the snapshot, the plan of that, and what the planner may remember.

    models: model label by flavor.
    """

    snapshot: Snapshot
    base: Plan
    models: Mapping[str, str]
    options: Options
    memo: Memo


def explanation(
    state: State, job: WaitingJob, lookout: Lookout, seconds_left: Callable[[], float]
) -> Json:
    """Reasons, checks, jobs ahead, planned start, and what would help, with the moment at which that was tried."""
    reasons = reasons_of(state.base, job.id)
    kept = lookout.of(job, state.snapshot.now) or try_out(state, [job], lookout)[0]
    return {
        "reasons": [reason_json(reason) for reason in reasons],
        "checks": checks_of(reasons),
        "ahead": list(_ahead(state, job)),
        "starts_at": estimated_start(state, job, seconds_left),
        "counterfactuals": [trial.as_json() for trial in kept.trials],
        "counterfactuals_at": kept.made_at,
    }


def try_out(state: State, jobs: Sequence[WaitingJob], lookout: Lookout) -> list[Kept]:
    """Find what would help each of these jobs, in one plan, and keep it."""
    hopeful = [job for job in jobs if can_help(reasons_of(state.base, job.id))]
    found: dict[str, tuple[Trial, ...]] = {}
    if hopeful:
        found = trials_of(state.snapshot, hopeful, state.models, state.options, state.memo)
    return [lookout.keep(job, state.snapshot.now, found.get(job.id, ())) for job in jobs]


def checks_of(reasons: Iterable[Reason]) -> list[Json]:
    """Each check in order: held (true), failed with numbers (false), or not reached behind a closed gate (null)."""
    failed = {reason.code: reason for reason in reasons}
    closed = False
    checks: list[Json] = []
    for group in (GATES, CHECKS):
        for name, codes in group.items():
            reason = next((failed[code] for code in codes if code in failed), None)
            ok = False if reason else (None if closed else True)
            checks.append(
                {"check": name, "ok": ok, "numbers": dict(reason.numbers) if reason else {}}
            )
            closed = closed or (reason is not None and name in GATES)
    return checks


def estimated_start(
    state: State, job: WaitingJob, seconds_left: Callable[[], float] = lambda: math.inf
) -> float | None:
    """When the job starts if every job runs to its limit and nothing new arrives; None when nobody can say.

    A job behind `MOST_ESTIMATED` others in line has none; nor has one that could not be reached while there is time, as
    the first few of the line show.
    """
    base = state.base
    if any(start.job == job.id for start in base.starts):
        return base.now
    booked = booked_start(base, job.id)
    if booked is not None or job.id in base.own_reasons or job.id not in base.order:
        return booked
    position = base.order.index(job.id)
    if position >= MOST_ESTIMATED:
        return None
    options = replace(state.options, estimates=position + 1, effort=Effort.DECIDE)
    began: float | None = None
    for done, estimate in enumerate(estimating(state.snapshot, options, state.memo)):
        if estimate.job == job.id:
            return estimate.starts_at
        left = seconds_left()
        began = left if began is None else began
        if left <= 0 or (done >= FEW and (began - left) / done * (position - done) > left):
            return None
    return None


def booked_start(made: Plan, job: str) -> float | None:
    """When a waiting job is booked to start; None without a booking."""
    return next((b.starts_at for b in made.bookings if b.job == job), None)


def _ahead(state: State, job: WaitingJob) -> Iterator[Json]:
    """Running jobs that hold what it could use, soonest end first; then waiting jobs before it in the plan."""
    flavors, now = set(job.ask.flavors), state.snapshot.now
    holders = [other for other in state.snapshot.running if other.flavor in flavors and other.seats]
    holders.sort(key=lambda other: (planned_end(other, now), other.id))
    for holder in holders[:MOST_AHEAD]:
        end = end_or_none(planned_end(holder, now))
        yield {"job": holder.id, "gpus": holder.gpus, "state": "running", "expected_end": end}
    known = {other.id: other for other in state.snapshot.waiting}
    until = {booking.job: booking.until for booking in state.base.bookings}
    order = state.base.order
    before = order[: order.index(job.id)] if job.id in order else ()
    waiting = [known[other] for other in before if flavors & set(known[other].ask.flavors)]
    for ahead in waiting[:MOST_AHEAD]:
        yield {
            "job": ahead.id,
            "gpus": ahead.ask.gpus,
            "state": "waiting",
            "expected_end": until.get(ahead.id),
        }


def reason_json(reason: Reason) -> Json:
    """A reason as plain values; `for_ever` says that no passing of time removes it."""
    return {
        "code": reason.code.value,
        "numbers": dict(reason.numbers),
        "for_ever": reason.code in FOR_EVER,
    }
