"""What pods tell → changes of placement rows. Pure but for the rows in memory, which it keeps true.

Called by `tick`. `RowChanges` collects what the database has still to be told, so that a tick
writes each row once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from scheduler.kube.seen import PodSeen
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from scheduler.reconcile.story import DELETED_BY_OTHERS, End, Story, is_waiting_error, tell
from scheduler.reconcile.wanted import matches

MESSAGE_LIMIT = 4096
# `end_reason` of a pod that gives no word itself.
STOPPED = "Stopped"
VANISHED = "Gone"


@dataclass(slots=True)
class RowChanges:
    """Columns to write, by placement; and the attempts whose pods have changed."""

    columns: dict[int, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    attempts: set[tuple[str, int]] = field(default_factory=set)

    def set(self, attempt: AttemptLife, placement: PlacementLife, **values: Any) -> None:
        """Change the row in memory, and note what differs."""
        for name, value in values.items():
            if getattr(placement, name) != value:
                setattr(placement, name, value)
                self.columns[placement.id][name] = value
                self.attempts.add(attempt.key)


def take_pods(
    attempt: AttemptLife, pods: Iterable[PodSeen], changes: RowChanges, now: datetime
) -> str | None:
    """Bring an attempt's placements up to what its pods tell; a pod that was bound elsewhere is
    told in the answer."""
    by_uid = {pod.uid: pod for pod in pods}
    elsewhere = None
    for placement in attempt.placements:
        if placement.gone_at is not None:
            continue
        if not placement.pod_uid:
            _adopt(attempt, placement, by_uid.values(), changes, now)
        if not placement.pod_uid:
            continue
        pod = by_uid.get(placement.pod_uid)
        if pod is None:
            note_gone(attempt, placement, changes, now)
            continue
        _take_story(attempt, placement, pod, changes, now)
        if pod.node is not None and pod.node != placement.node:
            elsewhere = f"pod {pod.name} was bound to {pod.node}, not to {placement.node}"
    return elsewhere


def _adopt(
    attempt: AttemptLife,
    placement: PlacementLife,
    pods: Iterable[PodSeen],
    changes: RowChanges,
    now: datetime,
) -> None:
    """Find the pod that was created, though we died before we could write that down."""
    found = next((pod for pod in pods if matches(pod, placement)), None)
    if found is not None:
        note_created(attempt, placement, found, changes, now)


def note_created(
    attempt: AttemptLife,
    placement: PlacementLife,
    pod: PodSeen,
    changes: RowChanges,
    now: datetime,
) -> None:
    """The placement has its pod."""
    changes.set(attempt, placement, pod_uid=pod.uid, created_at=now, pod_phase=pod.phase)


def note_gone(
    attempt: AttemptLife, placement: PlacementLife, changes: RowChanges, now: datetime
) -> None:
    """The placement's pod is no longer there."""
    if placement.ended_at is None:
        reason = STOPPED if placement.delete_sent_at else VANISHED
        changes.set(attempt, placement, ended_at=now, end_reason=reason, exit_code=None)
    changes.set(attempt, placement, gone_at=now, waiting_reason="", waiting_since=None)


def _take_story(
    attempt: AttemptLife,
    placement: PlacementLife,
    pod: PodSeen,
    changes: RowChanges,
    now: datetime,
) -> None:
    story = tell(pod, now)
    changes.set(attempt, placement, pod_phase=story.phase)
    if placement.bound_at is None and pod.node == placement.node:
        changes.set(attempt, placement, bound_at=now)
    if placement.started_at is None and story.started_at is not None:
        changes.set(attempt, placement, started_at=story.started_at)
    if placement.ended_at is None and story.end is not None:
        changes.set(attempt, placement, **_end_columns(placement, pod, story))
    if placement.ended_at is None:
        changes.set(attempt, placement, **_waiting_columns(placement, story, now))


def _waiting_columns(placement: PlacementLife, story: Story, now: datetime) -> dict[str, Any]:
    if not story.waiting_reason:
        return {"waiting_reason": "", "waiting_since": None, "message": ""}
    both_errors = is_waiting_error(placement.waiting_reason) and is_waiting_error(
        story.waiting_reason
    )
    # Kubernetes alternates between ErrImagePull and ImagePullBackOff: one error, since the first.
    same = both_errors or placement.waiting_reason == story.waiting_reason
    since = placement.waiting_since if same and placement.waiting_since else now
    message = story.waiting_message[:MESSAGE_LIMIT]
    if both_errors and placement.message and len(placement.message) > len(message):
        message = placement.message  # "Back-off pulling image" says less than why
    return {
        "waiting_reason": story.waiting_reason[:64],
        "waiting_since": since,
        "message": message,
    }


def _end_columns(placement: PlacementLife, pod: PodSeen, story: Story) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "ended_at": story.ended_at,
        "exit_code": story.exit_code,
        "end_reason": story.reason[:64],
        "message": story.message[:MESSAGE_LIMIT],
        "waiting_reason": "",
        "waiting_since": None,
    }
    if placement.delete_sent_at is None and _was_cut_short(pod, story):
        # Whatever it exited with when told to end is not its own end.
        columns |= {"exit_code": None, "end_reason": DELETED_BY_OTHERS}
    return columns


def _was_cut_short(pod: PodSeen, story: Story) -> bool:
    """True when somebody deleted the pod before its program had ended."""
    if pod.deleting_since is None or story.end is not End.EXIT or story.ended_at is None:
        return False
    asked_at = pod.deleting_since - timedelta(seconds=pod.deletion_grace_seconds or 0)
    return story.ended_at >= asked_at


def fresh_try(placement: PlacementLife, pod_name: str) -> Mapping[str, Any]:
    """The columns of a placement whose pod is to be made again under the next name."""
    return {
        "try_number": placement.try_number + 1,
        "pod_name": pod_name,
        "pod_uid": "",
        "pod_phase": "",
        "exit_code": None,
        "end_reason": "",
        "message": "",
        "waiting_reason": "",
        **dict.fromkeys(
            (
                *("created_at", "bound_at", "delete_requested_at", "delete_sent_at"),
                *("waiting_since", "started_at", "ended_at", "gone_at"),
            )
        ),
    }
