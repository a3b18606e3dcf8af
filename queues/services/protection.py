"""A running job loses protection that it does not deserve: it may be preempted, by almost anybody.

Called by the rule about idle GPUs, where the job's queue says so.
"""

from datetime import datetime

from controlplane.common import log
from queues.models import Job
from queues.services.lifecycle import record_job_event

LOW_PRIORITY = 100


def lower_protection(job: Job, why: str, now: datetime) -> bool:
    """Make the job preemptible at low priority at most. False when it is so already."""
    priority = min(job.priority, LOW_PRIORITY)
    if job.preemptible and job.priority == priority:
        return False
    with log.writing():
        changed = Job.objects.filter(pk=job.pk, version=job.version).update(
            preemptible=True, priority=priority, version=job.version + 1
        )
        if not changed:
            return False
        record_job_event(
            job, "job.changed", actor="health", now=now, message=why,
            numbers={"preemptible": True, "priority": priority},
        )  # fmt: skip
    job.preemptible, job.priority, job.version = True, priority, job.version + 1
    return True
