"""Questions to the planner and its answers as JSON. Pure but for the mirror that reads.

Every answer is made by plans of the planner's one entry point; nothing is guessed. Times are seconds since the
epoch; names of all jobs are told, the web process hides those that the reader may not see.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from scheduler.core.inputs.jobs import RunningJob
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Start
from scheduler.core.planner import plan
from scheduler.core.whatif import Simulation, difference, simulate
from scheduler.selectors.asks import waiting_from_json
from scheduler.whatif.changes import becomes_infeasible
from scheduler.whatif.explain import (
    State,
    estimated_start,
    explanation,
    reason_json,
    try_out,
)
from scheduler.whatif.mirror import OPTIONS, Mirror
from scheduler.whatif.quotas import with_quotas

Json = dict[str, Any]


class NotWaitingError(LookupError):
    """The job to explain does not wait on this cluster."""


def ask_simulation(
    mirror: Mirror,
    sent: Mapping[str, Any],
    now: float,
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> Json:
    """{"job"} → verdict, reasons, placement, estimate and quota of a job that is not stored.

    A job so far back in line that there is no time to go through all before it has no estimate.
    """
    snapshot = mirror.snapshot(now)
    job = waiting_from_json(sent["job"])
    found = simulate(snapshot, job, OPTIONS, mirror.memo)
    with_it = replace(snapshot, waiting=(*snapshot.waiting, job))
    state = State(with_it, found.plan, mirror.models, OPTIONS, mirror.memo)
    starts_at = estimated_start(state, job, seconds_left)
    return {
        "verdict": found.verdict.value,
        "reasons": [reason_json(reason) for reason in found.reasons],
        "start": start_json(found.start, snapshot) if found.start else None,
        **mirror.told(now, starts_at),
        "quota_before": asdict(found.quota_before) if found.quota_before else None,
        "quota_after": asdict(found.quota_after) if found.quota_after else None,
        "position": _position(found, job.id),
    }


def _position(found: Simulation, job: str) -> int | None:
    """How many waiting jobs are considered before it, counted from 1; None when it starts."""
    if found.start is not None or job not in found.plan.order:
        return None
    started = {start.job for start in found.plan.starts}
    before = found.plan.order[: found.plan.order.index(job)]
    return 1 + sum(1 for other in before if other not in started)


def ask_never(mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
    """{"jobs"} → for each job the reason for which it can never run, or null."""
    snapshot = mirror.snapshot(now)
    jobs = [waiting_from_json(job) for job in sent["jobs"]]
    # Alone against the cluster: what others hold or wait for makes nothing impossible, only later.
    empty = replace(snapshot, running=(), waiting=())
    answers: list[Json | None] = []
    for job in jobs:
        made = plan(replace(empty, waiting=(job,)), OPTIONS, mirror.memo_alone)
        finish = next((f for f in made.finishes if f.job == job.id), None)
        answers.append(reason_json(finish.reason) if finish else None)
    return {"never": answers}


def ask_explanation(
    mirror: Mirror,
    sent: Mapping[str, Any],
    now: float,
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> Json:
    """{"job"} (an id) → reasons, checks, jobs ahead, estimate, and what would make it start.

    Raises NotWaitingError.
    """
    snapshot = mirror.snapshot(now)
    job = next((job for job in snapshot.waiting if job.id == sent["job"]), None)
    if job is None:
        raise NotWaitingError(sent["job"])
    found = explanation(_state(mirror, snapshot), job, mirror.lookout, seconds_left)
    return {
        **found,
        **mirror.told(now, found["starts_at"]),
        "counterfactuals": [
            {**tried, **mirror.told(now, tried["starts_at"])} for tried in found["counterfactuals"]
        ],
    }


def look_ahead(mirror: Mirror, now: float) -> bool:
    """Try what would help a few of the first jobs in line, if that is due; False when nothing was to do."""
    if not mirror.lookout.is_due(mirror.warm.seq, now):
        return False
    state = _state(mirror, mirror.snapshot(now))
    try_out(state, mirror.lookout.few(state.snapshot, state.base), mirror.lookout)
    return True


def _state(mirror: Mirror, snapshot: Snapshot) -> State:
    return State(snapshot, mirror.base_plan(snapshot), mirror.models, OPTIONS, mirror.memo)


def ask_quotas(mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
    """{"tenant", "flavors", "queues", "users"} → what the tenant's new quotas would change."""
    before = mirror.snapshot(now)
    after = with_quotas(before, sent)
    found = difference(before, after, OPTIONS, (mirror.memo, mirror.memo_changed))
    return {
        "plan_id": found.plan_id,
        "starts": [start.job for start in found.starts],
        "waits_longer": list(found.waits_longer),
        "evicted": [eviction.job for eviction in found.evicted],
        "over": [asdict(over) for over in found.over_admissions],
        "never": becomes_infeasible(found.before, found.after),
    }


def ask_longer_run(mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
    """{"job", "max_runtime_seconds"} → jobs whose start a running job would delay by running so long."""
    before = mirror.snapshot(now)
    limit = sent["max_runtime_seconds"]

    def longer(job: RunningJob) -> RunningJob:
        return replace(job, ask=replace(job.ask, max_runtime_seconds=limit))

    running = tuple(longer(job) if job.id == sent["job"] else job for job in before.running)
    found = difference(before, replace(before, running=running), OPTIONS)
    return {"delays": list(found.waits_longer)}


def start_json(start: Start, snapshot: Snapshot) -> Json:
    """Where a gang would sit, each replica with its node's domains."""
    nodes = set(start.nodes)
    domains = {node.name: dict(node.domains) for node in snapshot.nodes if node.name in nodes}
    return {
        "flavor": start.flavor,
        "asked_level": start.asked_level,
        "achieved_level": start.achieved_level,
        "planned_stop_at": start.planned_stop_at,
        "seats": [
            {
                "role": seat.role,
                "replica": seat.replica,
                "rank": seat.rank,
                "node": seat.node,
                "gpus": seat.gpus,
                "domains": domains.get(seat.node, {}),
            }
            for seat in start.seats
        ],
    }
