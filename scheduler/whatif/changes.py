"""Any change of a cluster, tried by the planner: who starts, waits longer, is evicted. Pure but for the mirror.

A change arrives as JSON, validated by `scheduler.services.changes`; several are made one after the other. Whoever runs
where a change leaves no room goes back in line, and shows up among those that start when there is another place.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scheduler.core.calendar.ends import saved_at
from scheduler.core.inputs.cluster import Crossing, Node, OutCause, Window, WindowKind
from scheduler.core.inputs.jobs import RunningJob, WaitingJob
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Plan
from scheduler.core.resources import NOTHING
from scheduler.core.whatif import Difference, difference
from scheduler.selectors.asks import waiting_from_json
from scheduler.whatif.explain import reason_json
from scheduler.whatif.mirror import OPTIONS, Mirror
from scheduler.whatif.quotas import with_quotas

Json = dict[str, Any]
# A later start is noticed for so many jobs in order.
ESTIMATED = 100


@dataclass(slots=True)
class Changed:
    """A snapshot as changed so far. leaving: jobs that the changes themselves stop; submitted: ids of new jobs.

    ages: when jobs were submitted, asked of those that go back in line: running jobs do not bear it.
    """

    snapshot: Snapshot
    ages: Callable[[Collection[str]], Mapping[str, float]]
    leaving: list[RunningJob] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def send_away(self, goes: Callable[[RunningJob], bool], lost: Collection[str] = ()) -> None:
        """Put running jobs back in line; `lost` nodes are gone, replicas elsewhere may stay where they are."""
        away = [job for job in self.snapshot.running if goes(job)]
        gone = {job.id for job in away}
        ages = self.ages(gone)
        back = [_back_in_line(job, ages.get(job.id, job.placed_at), lost) for job in away]
        self.leaving += away
        self.snapshot = replace(
            self.snapshot,
            running=tuple(job for job in self.snapshot.running if job.id not in gone),
            waiting=(*self.snapshot.waiting, *back),
        )


def ask_change(mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
    """{"changes": […]} → the plan's id, and jobs that start, wait longer, are stopped, can never run.

    Raises KeyError or ValueError for a change that is not understood.
    """
    before = mirror.snapshot(now)
    changed = Changed(before, mirror.ages)
    for each in sent["changes"]:
        _MADE_BY[each["kind"]](changed, each)
    options = replace(OPTIONS, estimates=ESTIMATED)
    found = difference(before, changed.snapshot, options, (mirror.memo, mirror.memo_changed))
    return answer(found, changed, now)


def answer(found: Difference, changed: Changed, now: float) -> Json:
    """The difference as plain values, names of all jobs told."""
    new = set(changed.submitted)
    # `waits_longer` of a job that starts in both plans, or of one that the change itself put in line, says nothing.
    away = {job.id for job in changed.leaving}
    stopped = [_stopped(job, now) for job in changed.leaving] + [
        {
            "job": eviction.job,
            "lost_gpu_seconds": round(eviction.lost_gpu_seconds),
            "rule": eviction.rule.value,
        }
        for eviction in found.evicted
    ]
    return {
        "plan_id": _plan_id(found.plan_id, changed.leaving),
        "starts": [
            {"job": start.job, "nodes": list(start.nodes), "gpus": start.gpus}
            for start in found.starts
        ],
        "waits_longer": [job for job in found.waits_longer if job not in away | new],
        "evicted": stopped,
        "never": becomes_infeasible(found.before, found.after),
        "over": [asdict(over) for over in found.over_admissions],
        "submitted": [_submitted(job, found.after) for job in changed.submitted],
    }


def becomes_infeasible(before: Plan, after: Plan) -> list[str]:
    """Jobs that can never run after the change, and could before."""
    could_not = {finish.job for finish in before.finishes}
    return [finish.job for finish in after.finishes if finish.job not in could_not]


def _submitted(job: str, made: Plan) -> Json:
    starts = any(start.job == job for start in made.starts)
    reason = None if starts else made.reason_of(job)
    estimate = next((e.starts_at for e in made.estimates if e.job == job), None)
    return {
        "job": job,
        "reason": None if reason is None else reason_json(reason),
        "starts_at": made.now if starts else estimate,
    }


def _stopped(job: RunningJob, now: float) -> Json:
    return {"job": job.id, "lost_gpu_seconds": round(_lost(job, now)), "rule": "drain"}


def _lost(job: RunningJob, now: float) -> float:
    """GPU seconds since the job's last checkpoint, or since it started."""
    if job.started_at is None:
        return 0.0
    return job.gpus * max(0.0, now - max(job.started_at, saved_at(job, now) or 0.0))


def _plan_id(identity: str, leaving: Sequence[RunningJob]) -> str:
    """The plan's own identity; with jobs that the change itself stops, they and their versions count too."""
    if not leaving:
        return identity
    touched = sorted((job.id, job.attempt, job.version) for job in leaving)
    return hashlib.sha256(repr((identity, touched)).encode()).hexdigest()[:16]


def _back_in_line(job: RunningJob, submitted_at: float, lost: Collection[str]) -> WaitingJob:
    return WaitingJob(
        id=job.id,
        ask=job.ask,
        submitted_at=submitted_at,
        survivors=tuple(seat for seat in job.seats if seat.node not in lost) if lost else (),
        preemptions=job.preemptions,
        version=job.version,
    )


# --- one change each ---


def _submit(changed: Changed, sent: Mapping[str, Any]) -> None:
    job = waiting_from_json(sent["job"])
    changed.submitted.append(job.id)
    changed.snapshot = replace(changed.snapshot, waiting=(*changed.snapshot.waiting, job))


def _quotas(changed: Changed, sent: Mapping[str, Any]) -> None:
    changed.snapshot = with_quotas(changed.snapshot, sent)


def _drain(changed: Changed, sent: Mapping[str, Any]) -> None:
    """No new pods on the nodes; with `leave` those that run there go back in line."""
    names = frozenset(sent["nodes"])
    changed.snapshot = _with_nodes(changed.snapshot, names, _draining)
    if sent["leave"]:
        changed.send_away(lambda job: any(seat.node in names for seat in job.seats))


def _lose(changed: Changed, sent: Mapping[str, Any]) -> None:
    """The nodes are gone, and with them the gangs that had a replica there."""
    names = frozenset(sent["nodes"])
    nodes = tuple(node for node in changed.snapshot.nodes if node.name not in names)
    changed.snapshot = replace(changed.snapshot, nodes=nodes)
    changed.send_away(lambda job: any(seat.node in names for seat in job.seats), lost=names)


def _add(changed: Changed, sent: Mapping[str, Any]) -> None:
    """`count` nodes like the one named, empty and well, in the same domains. Raises ValueError for an unknown one."""
    like = next((n for n in changed.snapshot.nodes if n.name == sent["like"]), None)
    if like is None:
        raise ValueError(f"no node {sent['like']}")
    more = tuple(
        replace(like, name=f"{like.name}~{number:03d}", outs=(), foreign=NOTHING)
        for number in range(int(sent["count"]))
    )
    nodes = sorted((*changed.snapshot.nodes, *more), key=lambda node: node.name)
    changed.snapshot = replace(changed.snapshot, nodes=tuple(nodes))


def _window(changed: Changed, sent: Mapping[str, Any]) -> None:
    more = tuple(_core_window(each) for each in sent["windows"])
    windows = sorted((*changed.snapshot.windows, *more), key=lambda w: (w.starts_at, w.id))
    changed.snapshot = replace(changed.snapshot, windows=tuple(windows))


def _core_window(sent: Mapping[str, Any]) -> Window:
    return Window(
        id=str(sent["id"]),
        starts_at=float(sent["starts_at"]),
        ends_at=float(sent["ends_at"]),
        nodes=frozenset(sent["nodes"]),
        kind=WindowKind(sent["kind"]),
        crossing=Crossing(sent["crossing"]),
        admits_tenants=frozenset(sent["tenants"]),
        admits_queues=frozenset(sent["queues"]),
        admits_jobs=frozenset(sent["jobs"]),
        spare=bool(sent["spare"]),
    )


def _with_nodes(
    snapshot: Snapshot, names: Collection[str], change: Callable[[Node], Node]
) -> Snapshot:
    nodes: Iterable[Node] = (
        change(node) if node.name in names else node for node in snapshot.nodes
    )
    return replace(snapshot, nodes=tuple(nodes))


def _draining(node: Node) -> Node:
    return replace(node, outs=tuple(dict.fromkeys((*node.outs, OutCause.DRAINING))))


_MADE_BY: Mapping[str, Callable[[Changed, Mapping[str, Any]], None]] = {
    "submit": _submit,
    "quotas": _quotas,
    "drain": _drain,
    "lose": _lose,
    "add": _add,
    "window": _window,
}
