"""Whose fault the end of an attempt was, as found out afterwards. Called by `scheduler`'s health services.

A program whose GPU dies exits with an error a moment before anybody knows why. Until its attempt has ended, the blame
can still go to the hardware, so that the job's own restarts are not used up.
"""

from datetime import datetime

from controlplane.common import log
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job
from queues.services.lifecycle import record_job_event


def blame_infrastructure(attempt: Attempt, message: str, now: datetime) -> bool:
    """Let an open attempt that stops because it failed end as `node_failure`; False where nothing is to change."""
    with log.writing():
        changed = Attempt.objects.filter(
            pk=attempt.pk, ended_at__isnull=True, stop_cause=EndedBy.FAILED
        ).update(stop_cause=EndedBy.NODE_FAILURE, message=message)
        if not changed:
            return False
        attempt.stop_cause, attempt.message = EndedBy.NODE_FAILURE, message
        job = Job.objects.select_related("tenant", "queue__cluster").get(pk=attempt.job_id)
        record_job_event(
            job,
            "attempt.blamed",
            actor="health",
            now=now,
            message=message,
            numbers={"attempt": attempt.number, "cause": EndedBy.NODE_FAILURE.value},
        )
    return True


def mark_cause_removed(attempt: Attempt) -> None:
    """What was at fault takes no pods any more: the job's first restart need not wait for it."""
    Attempt.objects.filter(pk=attempt.pk, ended_at__isnull=True).update(cause_removed=True)
    attempt.cause_removed = True
