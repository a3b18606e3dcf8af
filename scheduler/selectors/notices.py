"""What a running attempt is to be told: that it will be stopped, why and by when. Read by `attempts/me/notice/` and by
whoever writes the pods' annotation.

An order that waits for a checkpoint is told ahead of its stop to jobs that asked to be told so (`checkpoint.notice`
poll or file): they save, report it, and leave at once. Everyone else hears of it when the pods are told.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queues.models import Attempt, Job
from queues.selectors.answers import time_text
from scheduler.models import Eviction, EvictionRule

ANNOTATION = "muster.dev/notice"
TOLD_AHEAD = frozenset({"poll", "file"})
KINDS = {
    EvictionRule.PRIORITY: "preemption",
    EvictionRule.RECLAIM: "preemption",
    EvictionRule.FAIR_SHARE: "preemption",
    EvictionRule.SHRINK: "resize",
    EvictionRule.GROW: "resize",
    EvictionRule.MAINTENANCE: "maintenance",
    EvictionRule.DRAIN: "maintenance",
    EvictionRule.HEALTH: "maintenance",
}
# A job hears of its time limit as long before as it needs for a checkpoint, and so much more.
LIMIT_AHEAD = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Notice:
    """kind: preemption, maintenance, resize or time_limit. deadline: by when the job is stopped in any case."""

    kind: str
    deadline: datetime

    @property
    def answer(self) -> dict[str, Any]:
        """As the contract has it."""
        return {"kind": self.kind, "deadline": time_text(self.deadline)}

    @property
    def text(self) -> str:
        """One line of JSON, for the annotation and so for the file."""
        return json.dumps(self.answer)


def notice_of(attempt: Attempt, now: datetime) -> Notice | None:
    """What the attempt is to be told at `now`; None: nothing. Two queries; needs `attempt.job`."""
    job = attempt.job
    eviction = (
        Eviction.objects.filter(Eviction.OPEN, attempt=attempt).order_by("-pk").first()
        if attempt.ended_at is None
        else None
    )
    if eviction is not None and (eviction.signalled_at or job.checkpoint_notice in TOLD_AHEAD):
        return Notice(KINDS[EvictionRule(eviction.rule)], _deadline(eviction, attempt, job))
    return _limit(attempt, job, now)


def _deadline(eviction: Eviction, attempt: Attempt, job: Job) -> datetime:
    """When its containers are killed, or, as long as it is only asked to save, when it is stopped."""
    if eviction.signalled_at is not None:
        grace = attempt.stop_grace_seconds
        since = attempt.stop_requested_at or eviction.signalled_at
        return since + timedelta(seconds=job.grace_seconds if grace is None else grace)
    saving = timedelta(seconds=job.checkpoint_grace_seconds or job.grace_seconds)
    return eviction.latest_at or eviction.ordered_at + saving


def _limit(attempt: Attempt, job: Job, now: datetime) -> Notice | None:
    if attempt.started_at is None or job.max_runtime_seconds is None or attempt.ended_at:
        return None
    deadline = attempt.started_at + timedelta(seconds=job.max_runtime_seconds)
    saving = timedelta(seconds=job.checkpoint_grace_seconds or job.grace_seconds)
    return Notice("time_limit", deadline) if now >= deadline - saving - LIMIT_AHEAD else None
