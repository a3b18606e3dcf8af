"""Why one job waits, who is ahead of it, and what would make it start: each change is tried by the planner. Pure.

Called by `questions`, with a clock that says when to stop trying.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.core.calendar.ends import end_or_none, planned_end
from scheduler.core.inputs.jobs import NO_TOPOLOGY, Ask, Role, WaitingJob
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Plan
from scheduler.core.planner import plan
from scheduler.core.reasons import FOR_EVER, Number, Reason, ReasonCode
from scheduler.core.whatif import SimulationVerdict, simulate

Json = dict[str, Any]
MOST_AHEAD = 20
# A job further back in line has no estimate: too much can happen before it.
MOST_ESTIMATED = 1_000
HIGH_PRIORITY = 900

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
class Question:
    """A waiting job, the snapshot it waits in, the plan of that, and what the planner may remember.

    allowed: (flavor, model) pairs of the job's queue, in order of preference.
    """

    snapshot: Snapshot
    base: Plan
    job: WaitingJob
    allowed: Sequence[tuple[str, str]]
    options: Options
    memo: Memo


def explanation(question: Question, has_time: Callable[[], bool]) -> Json:
    """Reasons, checks, jobs ahead, planned start, counterfactuals (fewer when time runs out)."""
    job = question.job
    reasons = reasons_of(question.base, job.id)
    start = estimated_start(question.snapshot, question.base, job, question.options, question.memo)
    found: list[Json] = []
    for change, ask in _changes(question, reasons):
        if not has_time():
            break
        # Sizes are tried from the largest: one that starts now makes smaller ones pointless.
        if "replicas" not in change or not any(map(_is_smaller_and_starts, found)):
            found.append(_tried(question, change, ask))
    return {
        "reasons": [reason_json(reason) for reason in reasons],
        "checks": checks_of(reasons),
        "ahead": list(_ahead(question)),
        "starts_at": start,
        "counterfactuals": found,
    }


def reasons_of(made: Plan, job: str) -> tuple[Reason, ...]:
    """All reasons of a waiting job, its own first."""
    own = made.own_reasons.get(job)
    key = made.classes.get(job)
    of_class = made.verdicts[key].reasons if key is not None and key in made.verdicts else ()
    return (own, *of_class) if own is not None else of_class


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
    snapshot: Snapshot,
    base: Plan,
    job: WaitingJob,
    options: Options,
    memo: Memo,
    *,
    most: int = MOST_ESTIMATED,
) -> float | None:
    """When the job starts if every job runs to its limit and nothing new arrives; None when nobody can say.

    A job behind `most` others in line has none.
    """
    if any(start.job == job.id for start in base.starts):
        return base.now
    booked = planned_start(base, job.id)
    if booked is not None or job.id in base.own_reasons or job.id not in base.order:
        return booked
    position = base.order.index(job.id)
    if position >= most:
        return None
    made = plan(snapshot, replace(options, estimates=position + 1), memo)
    return planned_start(made, job.id)


def planned_start(made: Plan, job: str) -> float | None:
    """When a plan lets a waiting job start: its booking, else its estimate; None when it says nothing."""
    for booking in made.bookings:
        if booking.job == job:
            return booking.starts_at
    for estimate in made.estimates:
        if estimate.job == job:
            return estimate.starts_at
    return None


def _ahead(question: Question) -> Iterator[Json]:
    """Running jobs that hold what it could use, soonest end first; then waiting jobs before it in the plan."""
    flavors, now = set(question.job.ask.flavors), question.snapshot.now
    holders = [job for job in question.snapshot.running if job.flavor in flavors and job.seats]
    holders.sort(key=lambda job: (planned_end(job, now), job.id))
    for job in holders[:MOST_AHEAD]:
        end = end_or_none(planned_end(job, now))
        yield {"job": job.id, "gpus": job.gpus, "state": "running", "expected_end": end}
    known = {job.id: job for job in question.snapshot.waiting}
    until = {booking.job: booking.until for booking in question.base.bookings}
    order = question.base.order
    before = order[: order.index(question.job.id)] if question.job.id in order else ()
    waiting = [known[job] for job in before if flavors & set(known[job].ask.flavors)]
    for ahead in waiting[:MOST_AHEAD]:
        yield {
            "job": ahead.id,
            "gpus": ahead.ask.gpus,
            "state": "waiting",
            "expected_end": until.get(ahead.id),
        }


# --- what would make it start ---


def _is_smaller_and_starts(tried: Json) -> bool:
    return "replicas" in tried["change"] and tried["verdict"] == SimulationVerdict.STARTS_NOW


def _tried(question: Question, change: Json, ask: Ask) -> Json:
    """What the planner says of the job with another ask, all else as it is."""
    snapshot = question.snapshot
    others = tuple(job for job in snapshot.waiting if job.id != question.job.id)
    changed = replace(question.job, ask=ask, version=question.job.version)
    found = simulate(replace(snapshot, waiting=others), changed, question.options, question.memo)
    starts = found.verdict is SimulationVerdict.STARTS_NOW
    return {
        "change": change,
        "verdict": found.verdict.value,
        "starts_at": snapshot.now if starts else planned_start(found.plan, changed.id),
    }


def _changes(question: Question, reasons: tuple[Reason, ...]) -> Iterator[tuple[Json, Ask]]:
    """Changes worth trying for these reasons, the smallest first."""
    ask = question.job.ask
    codes = {reason.code for reason in reasons}
    if codes & {code for codes in GATES.values() for code in codes}:
        return
    yield from _other_topology(ask, question.snapshot.cluster.levels)
    yield from _fewer_replicas(ask, reasons)
    yield from _shorter(ask, reasons)
    if ask.min_cuda is not None and ReasonCode.WAITING_FOR_DRIVER in codes:
        yield {"min_cuda": None}, replace(ask, min_cuda=None)
    yield from _other_nodes(ask)
    yield from _other_flavors(ask, question.allowed)
    if ask.priority < HIGH_PRIORITY and not codes & FOR_EVER:
        yield {"priority": HIGH_PRIORITY}, replace(ask, priority=HIGH_PRIORITY)


def _other_topology(ask: Ask, levels: Sequence[str]) -> Iterator[tuple[Json, Ask]]:
    required = [role.topology.required for role in ask.roles if role.topology.required]
    if not required:
        return
    level = required[0]
    wider = levels[: levels.index(level)] if level in levels else levels
    for other in reversed(wider):
        change = {"topology": {"level": other, "mode": "required"}}
        yield change, _with_topology(ask, required=other, preferred=None)
    change = {"topology": {"level": level, "mode": "preferred"}}
    yield change, _with_topology(ask, required=None, preferred=level)


def _with_topology(ask: Ask, *, required: str | None, preferred: str | None) -> Ask:
    def changed(role: Role) -> Role:
        if role.topology.required is None:
            return role
        topology = replace(NO_TOPOLOGY, required=required, preferred=preferred)
        return replace(role, topology=topology)

    return replace(ask, roles=tuple(changed(role) for role in ask.roles))


def _fewer_replicas(ask: Ask, reasons: tuple[Reason, ...]) -> Iterator[tuple[Json, Ask]]:
    """The number of replicas that the reasons say would fit, for a job of one role."""
    if len(ask.roles) != 1:
        return
    role = ask.roles[0]
    gpus = role.per_replica.gpus
    fitting: set[int] = set()
    for reason in reasons:
        numbers = reason.numbers
        for name in ("free_replicas", "replicas_there", "most_replicas"):
            fitting.add(_whole(numbers.get(name)))
        for name in ("available_gpus", "most_gpus"):
            fitting.add(_whole(numbers.get(name)) // gpus if gpus else 0)
    for replicas in sorted((n for n in fitting if 0 < n < role.least_replicas), reverse=True):
        smaller = replace(role, replicas=replicas, min_replicas=replicas)
        yield {"replicas": replicas}, replace(ask, roles=(smaller,))


def _shorter(ask: Ask, reasons: tuple[Reason, ...]) -> Iterator[tuple[Json, Ask]]:
    longest = [_whole(reason.numbers.get("longest_seconds")) for reason in reasons]
    for seconds in sorted({s for s in longest if s >= 60}, reverse=True):
        if ask.max_runtime_seconds is None or seconds < ask.max_runtime_seconds:
            yield {"max_runtime_seconds": seconds}, replace(ask, max_runtime_seconds=seconds)


def _other_nodes(ask: Ask) -> Iterator[tuple[Json, Ask]]:
    if ask.node_selector:
        yield {"node_selector": {}}, replace(ask, node_selector=())
    if ask.exclude_nodes:
        yield {"exclude_nodes": []}, replace(ask, exclude_nodes=frozenset())


def _other_flavors(ask: Ask, allowed: Sequence[tuple[str, str]]) -> Iterator[tuple[Json, Ask]]:
    for flavor, model in allowed:
        if flavor not in ask.flavors:
            yield {"gpu_model": [model]}, replace(ask, flavors=(flavor,))


def _whole(number: Number) -> int:
    return int(number) if isinstance(number, int | float) else 0


def reason_json(reason: Reason) -> Json:
    """A reason as plain values; `for_ever` says that no passing of time removes it."""
    return {
        "code": reason.code.value,
        "numbers": dict(reason.numbers),
        "for_ever": reason.code in FOR_EVER,
    }
