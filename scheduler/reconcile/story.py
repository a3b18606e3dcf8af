"""What one pod tells: whether it waits, runs or has ended, and whose doing an end is. Pure.

Read by `tick`, which keeps it in placement rows, and by `ends`. Sources of the words: the
kubelet's admission (pkg/kubelet/lifecycle/predicate.go), its image and container errors
(pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from scheduler.kube.seen import ContainerSeen, PodSeen


class End(StrEnum):
    """How a pod ended, by whose doing. A placement row keeps it as exit code and reason (`end_of`)."""

    EXIT = "exit"  # its program ended, with a code
    REFUSED = "refused"  # the kubelet would not have it: a placement miss
    LOST = "lost"  # evicted, deleted or gone with its node: the infrastructure's doing
    DEADLINE = "deadline"  # the kubelet enforced the limit
    NOT_STARTED = "not_started"  # its command cannot be run


# The kubelet had no room, or its device manager would not give the device.
REFUSED_REASONS = frozenset(
    {
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "NodeAffinity",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "AdmissionError",
    }
)
REFUSED_PREFIX = "OutOf"
DEADLINE_REASON = "DeadlineExceeded"
# The runtime could not execute the command: the image or the command is wrong.
START_ERRORS = frozenset({"StartError", "ContainerCannotRun"})
# Nobody saw the program end: the node was rebooted under it (containerd,
# internal/cri/server/container_status.go), or the kubelet forgot it (pkg/kubelet/status).
UNSEEN_REASONS = frozenset({"Unknown", "ContainerStatusUnknown"})
# `end_reason` of a pod that somebody else deleted while its program ran: its end is not its own.
DELETED_BY_OTHERS = "Deleted"
# Waiting for ever unless somebody mends image, secret or command.
WAITING_ERRORS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
    }
)


@dataclass(frozen=True, slots=True)
class Story:
    """What a pod tells now. `end` None: it has not ended."""

    phase: str
    waiting_reason: str
    waiting_message: str
    started_at: datetime | None
    ended_at: datetime | None
    end: End | None
    exit_code: int | None
    reason: str
    message: str


def tell(pod: PodSeen, now: datetime) -> Story:
    """Read a pod. `now` stands in where the pod gives no time of its end."""
    waiting = _waiting(pod)
    end = _end(pod)
    last = _telling_container(pod)
    return Story(
        phase=pod.phase,
        waiting_reason=waiting.reason if waiting else "",
        waiting_message=waiting.message if waiting else "",
        started_at=_started_at(pod),
        ended_at=_ended_at(pod, now) if end is not None else None,
        end=end,
        exit_code=_exit_code(pod, end, last),
        reason=(pod.reason or (last.reason if last else "")) if end is not None else "",
        message=(pod.message or (last.message if last else "")) if end is not None else "",
    )


def end_of(reason: str, exit_code: int | None) -> End:
    """The end that a placement row tells of by its reason and exit code; the inverse of `tell`."""
    if reason == DEADLINE_REASON:
        return End.DEADLINE
    if reason in REFUSED_REASONS or reason.startswith(REFUSED_PREFIX):
        return End.REFUSED
    if reason in START_ERRORS:
        return End.NOT_STARTED
    if exit_code is None or reason in UNSEEN_REASONS:
        return End.LOST
    return End.EXIT


def is_waiting_error(reason: str) -> bool:
    """True for a reason that waiting alone does not cure."""
    return reason in WAITING_ERRORS


def _end(pod: PodSeen) -> End | None:
    if not pod.finished:
        return None
    if pod.phase == "Succeeded":
        return End.EXIT
    if pod.disruption or pod.reason:
        # Evicted, Preempting, Terminated (node shutdown), OutOf…: the pod says so itself, and
        # what its containers exited with is not their doing.
        return end_of(pod.reason, None)
    last = _telling_container(pod)
    return end_of(last.reason, last.exit_code) if last else End.LOST


def _exit_code(pod: PodSeen, end: End | None, last: ContainerSeen | None) -> int | None:
    if end not in (End.EXIT, End.NOT_STARTED):
        return None
    if last is None or last.exit_code is None:
        return 0 if pod.phase == "Succeeded" else None
    return last.exit_code


def _telling_container(pod: PodSeen) -> ContainerSeen | None:
    """The container whose end is the pod's: one that failed, else the main one."""
    ended = [c for c in pod.containers if c.state == "terminated"]
    failed = [c for c in ended if c.exit_code != 0]
    return next(iter(failed), None) or next((c for c in ended if not c.init), None)


def _waiting(pod: PodSeen) -> ContainerSeen | None:
    if pod.finished:
        return None
    waiting = [c for c in pod.containers if c.state == "waiting" and c.reason]
    # One that will never start says more than one that waits its turn.
    stuck = [c for c in waiting if c.reason in WAITING_ERRORS]
    return next(iter(stuck or waiting), None)


def _started_at(pod: PodSeen) -> datetime | None:
    main = pod.main
    if main is None or main.state not in ("running", "terminated"):
        return None
    return main.started_at if main.reason not in START_ERRORS else None


def _ended_at(pod: PodSeen, now: datetime) -> datetime:
    ends = [c.finished_at for c in pod.containers if c.finished_at is not None]
    return max(ends, default=now)
