"""What keeps a job from being considered at all: the cluster, its queue, its own times."""

from __future__ import annotations

from scheduler.core.inputs.cluster import ClusterMode
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.quotas import Queue, QueueState
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.reasons import Numbers, Reason, ReasonCode


def cluster_gate(snapshot: Snapshot, options: Options) -> Reason | None:
    """Why nothing at all may start on this cluster."""
    cluster = snapshot.cluster
    if options.dry_mode:
        return None
    if not cluster.reachable:
        return Reason(ReasonCode.CLUSTER_UNREACHABLE, {"cluster": cluster.name})
    if cluster.mode is ClusterMode.PAUSED:
        return Reason(ReasonCode.CLUSTER_PAUSED, {"cluster": cluster.name})
    if cluster.mode is ClusterMode.OBSERVE:
        return Reason(ReasonCode.CLUSTER_OBSERVING, {"cluster": cluster.name})
    return None


def queue_gate(queue: Queue) -> Reason | None:
    """Why the queue starts nothing. A closed queue still starts what it holds."""
    if queue.state is QueueState.HELD:
        return Reason(ReasonCode.QUEUE_HELD, {"queue": queue.name})
    return None


def own_gate(job: WaitingJob, now: float) -> Reason | None:
    """What keeps this one job back, whatever its class."""
    if job.begin_at is job.backoff_until is job.refused_until is None and not job.depends_on:
        return None
    if job.depends_on:
        numbers: Numbers = {
            "open_dependencies": len(job.depends_on),
            "first_dependency": job.depends_on[0],
        }
        return Reason(ReasonCode.WAITING_FOR_DEPENDENCY, numbers)
    if job.begin_at is not None and job.begin_at > now:
        return Reason(ReasonCode.BEGIN_TIME, {"begin_at": job.begin_at})
    if job.backoff_until is not None and job.backoff_until > now:
        return Reason(ReasonCode.BACKOFF, {"backoff_until": job.backoff_until})
    if job.refused_until is not None and job.refused_until > now:
        refusal: Numbers = {"refused_until": job.refused_until, "refusal": job.refused_message}
        return Reason(ReasonCode.REFUSED_BY_KUBERNETES, refusal)
    return None
