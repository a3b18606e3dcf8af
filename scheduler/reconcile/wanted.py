"""Rows and view → what has to be done to Kubernetes now, and when there will be more. Pure.

Called by `tick` for each attempt that may need something; `enact` carries the actions out. Every
action may be carried out again, and is, until the rows say that it has been.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from queues.lifecycle import EndedBy
from scheduler.kube.burn_in import BurnInPod
from scheduler.kube.manifests import NOTICE_ANNOTATION, SCHEDULER
from scheduler.kube.pods import PodKey
from scheduler.kube.seen import OUR_PREFIX, PodSeen
from scheduler.logstore import LogKey
from scheduler.reconcile.ends import time_limit_at
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from scheduler.reconcile.view import AttemptKey, is_forgotten

FINISHED_KEPT_SECONDS = 3600
# After these the job comes back: it is told first, and has time to save (`checkpoint.notice`).
_NOTICED = {
    EndedBy.PREEMPTED: "preemption",
    EndedBy.MAINTENANCE: "maintenance",
    EndedBy.RESIZE: "resize",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """Create the Service, the Secret and the pods that are not there yet."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod to bind to one node."""

    placement_id: int
    pod: PodKey
    node: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind these pods, together."""

    key: AttemptKey
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """End a pod. Its log is kept first, and followed to its end, where `log` says so."""

    pod: PodKey
    grace_seconds: int
    key: AttemptKey | None = None
    placement_id: int | None = None
    log: LogKey | None = None
    running: bool = False


@dataclass(frozen=True, slots=True)
class KeepLog:
    """Keep the log of a pod that has ended. `lost` is a last line of ours, where it was lost."""

    key: AttemptKey
    pod: PodKey
    placement_id: int
    log: LogKey
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Notify:
    """Write the notice that the pod's file shows."""

    key: AttemptKey
    pod: PodKey
    notice: str


@dataclass(frozen=True, slots=True)
class RemoveObjects:
    """Delete the Service and the Secret of an attempt that has ended."""

    key: AttemptKey
    namespace: str
    service: str


@dataclass(frozen=True, slots=True)
class CheckStart:
    """Ask whether the pods that have not started are pulling their images."""

    key: AttemptKey
    pods: tuple[PodKey, ...]


@dataclass(frozen=True, slots=True)
class Cordon:
    """Make a node schedulable or not, as the row says."""

    node: str
    unschedulable: bool


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Put our taint on a node with this value (who wants it), or, empty, take it off."""

    node: str
    value: str


@dataclass(frozen=True, slots=True)
class LabelNode:
    """Give a node these labels; None takes one off."""

    node: str
    labels: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the end of somebody else's pod on a node that is drained, within its disruption budget."""

    node: str
    pod: PodKey


@dataclass(frozen=True, slots=True)
class MakeBurnIn:
    """Create the pod of a burn-in."""

    pod: BurnInPod

    @property
    def node(self) -> str:
        """The node that it is for."""
        return self.pod.node


OfNode = Cordon | TaintNode | LabelNode | Evict | MakeBurnIn
Action = Launch | Bind | Delete | KeepLog | Notify | RemoveObjects | CheckStart | OfNode


@dataclass(frozen=True, slots=True)
class Wants:
    """Actions of one attempt, and when there will be more by the clock alone."""

    actions: tuple[Action, ...]
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pods:
    """The attempt's pods as seen, by uid, and which placements' logs are kept already. `notice`: what
    orders to leave tell it; empty without one."""

    seen: Mapping[str, PodSeen]
    kept_logs: Set[int]
    may_start: bool
    check_start: bool = False
    notice: str = ""


def wants_of(attempt: AttemptLife, pods: Pods, now: datetime) -> Wants:
    """All that is to be done for one attempt."""
    actions: list[Action] = []
    if attempt.ended_at is None and not attempt.stop_cause:
        actions += _to_start(attempt, pods, now)
    actions += _notices(attempt, pods, now)
    actions += _deletions(attempt, pods, now)
    actions += _strays(attempt, pods)
    actions += _logs(attempt, pods)
    if attempt.ended_at is not None and attempt.service_created_at is not None:
        actions.append(RemoveObjects(attempt.key, attempt.namespace, attempt.service))
    return Wants(tuple(actions), _due(attempt, now))


def _to_start(attempt: AttemptLife, pods: Pods, now: datetime) -> list[Action]:
    if not pods.may_start:
        return []
    actions: list[Action] = []
    if any(not p.pod_uid for p in attempt.placements):
        actions.append(Launch(attempt.key))
    elif bindings := tuple(_bindings(attempt, pods)):
        actions.append(Bind(attempt.key, bindings))
    if pods.check_start:
        waiting = tuple(
            pod_key(attempt, p) for p in attempt.placements if p.has_pod and p.started_at is None
        )
        actions.append(CheckStart(attempt.key, waiting))
    return actions


def _bindings(attempt: AttemptLife, pods: Pods) -> Iterable[Binding]:
    if any(p.gone_at is not None for p in attempt.placements):
        return  # the gang is not whole: what is missing is made first
    for placement in attempt.placements:
        seen = pods.seen.get(placement.pod_uid)
        by_us = seen is None or seen.scheduler == SCHEDULER
        if placement.bound_at is None and placement.ended_at is None and by_us:
            yield Binding(placement.id, pod_key(attempt, placement), placement.node)


def _notices(attempt: AttemptLife, pods: Pods, now: datetime) -> Iterable[Action]:
    if attempt.checkpoint_notice != "file" or attempt.ended_at is not None:
        return
    notice = pods.notice or notice_of(attempt, now) or ""
    for placement in attempt.placements:
        seen = pods.seen.get(placement.pod_uid)
        if seen is None or seen.finished or seen.terminating:
            continue
        if seen.annotations.get(NOTICE_ANNOTATION, "") != notice:
            yield Notify(attempt.key, pod_key(attempt, placement), notice)


def notice_of(attempt: AttemptLife, now: datetime) -> str | None:
    """The stop that is ahead by the attempt's own rows, as the notice file shows it; None without one."""
    if attempt.ended_at is not None:
        return None
    kind = _NOTICED.get(EndedBy(attempt.stop_cause)) if attempt.stop_cause else None
    if kind is not None and attempt.stop_requested_at is not None:
        return _notice(kind, delete_at(attempt))
    limit = time_limit_at(attempt)
    if attempt.stop_cause or limit is None:
        return None
    ahead = timedelta(seconds=attempt.checkpoint_grace_seconds or attempt.grace_seconds)
    return _notice("time_limit", limit) if now >= limit - ahead else None


def _notice(kind: str, deadline: datetime) -> str:
    return json.dumps({"kind": kind, "deadline": _stamp(deadline)})


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def delete_at(attempt: AttemptLife) -> datetime:
    """When the pods of a stopping attempt are told to end: at once, or, for a job that reads its
    notice, after the time that it needs to save, or as soon as it says that it has."""
    asked = attempt.stop_requested_at or attempt.placed_at
    noticed = attempt.stop_cause in _NOTICED and attempt.checkpoint_notice in ("poll", "file")
    if not noticed or attempt.started_at is None:
        return asked
    saving = timedelta(seconds=attempt.checkpoint_grace_seconds or 0)
    if attempt.last_checkpoint_at is not None and attempt.last_checkpoint_at > asked - saving:
        return asked
    return asked + saving


def _deletions(attempt: AttemptLife, pods: Pods, now: datetime) -> Iterable[Action]:
    if not attempt.stop_cause and attempt.ended_at is None:
        return
    for placement in attempt.placements:
        if not placement.has_pod or placement.pod_uid not in pods.seen:
            continue
        if placement.ended_at is None:
            if placement.delete_sent_at is None and now >= delete_at(attempt):
                yield _ending(attempt, placement)
        elif attempt.ended_at is not None and now >= _kept_until(placement):
            yield Delete(pod_key(attempt, placement), 1, attempt.key, placement.id)


def _ending(attempt: AttemptLife, placement: PlacementLife) -> Delete:
    grace = attempt.stop_grace_seconds
    return Delete(
        pod_key(attempt, placement),
        attempt.grace_seconds if grace is None else grace,
        attempt.key,
        placement.id,
        log_key(attempt, placement),
        running=placement.started_at is not None,
    )


def _kept_until(placement: PlacementLife) -> datetime:
    assert placement.ended_at is not None
    return placement.ended_at + timedelta(seconds=FINISHED_KEPT_SECONDS)


def _strays(attempt: AttemptLife, pods: Pods) -> Iterable[Action]:
    """Pods of the attempt under an older try, or made twice: ours, and wanted by no row."""
    wanted = {p.pod_uid for p in attempt.placements}
    open_names = {p.pod_name for p in attempt.placements if not p.pod_uid}
    for pod in pods.seen.values():
        asked_for = pod.uid in wanted or pod.name in open_names
        # One that was there before the attempt was planned was made for a life that rows forgot.
        if is_forgotten(pod, attempt.placed_at):
            continue
        if not asked_for and not pod.terminating and not pod.finished:
            yield Delete(PodKey(pod.namespace, pod.name, pod.uid), attempt.grace_seconds)


def _logs(attempt: AttemptLife, pods: Pods) -> Iterable[Action]:
    for placement in attempt.placements:
        if placement.ended_at is None or placement.id in pods.kept_logs or not placement.pod_uid:
            continue
        lost = _last_words(placement)
        if placement.pod_uid in pods.seen or lost:
            yield KeepLog(
                attempt.key,
                pod_key(attempt, placement),
                placement.id,
                log_key(attempt, placement),
                lost,
            )


def _last_words(placement: PlacementLife) -> str:
    """What a reader of the log should know of its end; empty where it never began, where the
    program ended itself, or where we ended it."""
    ours = placement.exit_code is not None or placement.delete_sent_at is not None
    if ours or placement.started_at is None:
        return ""
    at = _stamp(placement.ended_at) if placement.ended_at else ""
    who = f"{placement.role}-{placement.replica}"
    return f"[muster] {who} was lost on {placement.node} at {at}: {placement.end_reason or 'gone'}"


def _due(attempt: AttemptLife, now: datetime) -> datetime | None:
    dues: list[datetime] = []
    if attempt.ended_at is not None:
        dues += [_kept_until(p) for p in attempt.placements if p.ended_at and p.gone_at is None]
    elif attempt.stop_cause:
        dues.append(delete_at(attempt))
    elif (limit := time_limit_at(attempt)) and attempt.checkpoint_notice == "file":
        ahead = attempt.checkpoint_grace_seconds or attempt.grace_seconds
        dues.append(limit - timedelta(seconds=ahead))
    return min((due for due in dues if due > now), default=None)


def pod_key(attempt: AttemptLife, placement: PlacementLife) -> PodKey:
    """Namespace, name and uid of a placement's pod."""
    return PodKey(attempt.namespace, placement.pod_name, placement.pod_uid)


def log_key(attempt: AttemptLife, placement: PlacementLife) -> LogKey:
    """Where a placement's log is kept."""
    return LogKey(attempt.tenant, attempt.job_id, attempt.number, placement.role, placement.replica)


def matches(pod: PodSeen, placement: PlacementLife) -> bool:
    """True when a pod that was not recorded yet is the one that the placement asks for."""
    labels = pod.labels
    return (
        pod.name == placement.pod_name
        and labels.get(f"{OUR_PREFIX}role") == placement.role
        and labels.get(f"{OUR_PREFIX}replica") == str(placement.replica)
        and labels.get(f"{OUR_PREFIX}try") == str(placement.try_number)
    )
