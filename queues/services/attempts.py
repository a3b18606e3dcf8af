"""Attempts: begun by `scheduler.apply`, stopped by people, limits and evictions, ended by the cluster process.

Each function locks the job's row first (where the database locks rows), so that a cancel and an end that come
together are put in an order; what decides are the conditional updates and the unique index of open attempts.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F
from django.utils.crypto import salted_hmac

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Cluster, Flavor, Job
from queues.services.ends import Ending, StopOrder, end_attempts, stop_attempts
from queues.services.ends import saves_of as saves_of
from queues.services.lifecycle import record_job_event, transition_job, transition_jobs

SCHEDULER = "scheduler"
CLUSTER = "cluster"
TOKEN_PREFIX = "mat_"  # noqa: S105  a prefix by which people and scanners know the kind of token


@dataclass(frozen=True, slots=True)
class Beginning:
    """A job that is to begin its next attempt, and how it is placed.

    Levels are names, empty for "none asked" and "crosses the widest". The job needs tenant and queue__cluster loaded.
    """

    job: Job
    flavor: Flavor | None
    asked_level: str
    achieved_level: str


def begin_attempt(
    job: Job,
    *,
    cluster: Cluster,
    flavor: Flavor | None,
    asked_level: str,
    achieved_level: str,
    now: datetime,
) -> Attempt:
    """`begin_attempts` for one job."""
    beginning = Beginning(job, flavor, asked_level, achieved_level)
    return begin_attempts([beginning], cluster=cluster, now=now)[0]


def begin_attempts(
    beginnings: Sequence[Beginning], *, cluster: Cluster, now: datetime
) -> list[Attempt]:
    """Open each job's next attempt and move the jobs to `placed`. The caller writes placements and seats.

    A fixed number of statements for all. Raises ConflictError, and changes nothing, when one of the jobs is no
    longer pending.
    """
    if not beginnings:
        return []
    with log.writing():
        jobs = [each.job for each in beginnings]
        transition_jobs(jobs, Phase.PLACED, actor=SCHEDULER, now=now)
        ids = [job.pk for job in jobs]
        Job.objects.filter(pk__in=ids).update(
            attempt_number=F("attempt_number") + 1, backoff_until=None
        )
        for job in jobs:
            job.attempt_number, job.backoff_until = job.attempt_number + 1, None
        attempts = Attempt.objects.bulk_create(
            [_new_attempt(each, cluster, now) for each in beginnings]
        )
        for each in beginnings:
            _record_placed(each, now)
    return attempts


def _new_attempt(beginning: Beginning, cluster: Cluster, now: datetime) -> Attempt:
    job = beginning.job
    return Attempt(
        job=job,
        number=job.attempt_number,
        cluster=cluster,
        flavor=beginning.flavor,
        placed_at=now,
        token_hash=hash_of(token_of(job.pk, job.attempt_number)),
        asked_level=beginning.asked_level,
        achieved_level=beginning.achieved_level,
    )


def _record_placed(beginning: Beginning, now: datetime) -> None:
    flavor = beginning.flavor
    record_job_event(
        beginning.job,
        "attempt.placed",
        actor=SCHEDULER,
        now=now,
        numbers={
            "attempt": beginning.job.attempt_number,
            "flavor": flavor.name if flavor else None,
            "level": beginning.achieved_level,
        },
    )


def token_of(job_id: str, number: int) -> str:
    """The attempt's own token (MUSTER_TOKEN): derived from the project's key, so that it is stored nowhere."""
    digest = salted_hmac("muster.attempt", f"{job_id}/{number}", algorithm="sha256").hexdigest()
    return f"{TOKEN_PREFIX}{digest}"


def hash_of(token: str) -> str:
    """SHA-256 of a token in hexadecimal, as `Attempt.token_hash` keeps it."""
    return hashlib.sha256(token.encode()).hexdigest()


def mark_starting(attempt: Attempt, *, now: datetime) -> Job:
    """The pods are bound: `placed` → `starting`. Does nothing in any other phase."""
    with log.writing():
        job = _locked_job(attempt)
        if job.phase == Phase.PLACED:
            transition_job(job, Phase.STARTING, actor=CLUSTER, now=now)
    return job


def mark_running(attempt: Attempt, *, now: datetime) -> Job:
    """Every container runs: the attempt has started and the job is `running`. Repeating it changes nothing."""
    with log.writing():
        job = _locked_job(attempt)
        if job.phase == Phase.PLACED:
            transition_job(job, Phase.STARTING, actor=CLUSTER, now=now)
        if job.phase == Phase.STARTING:
            transition_job(job, Phase.RUNNING, actor=CLUSTER, now=now)
            Attempt.objects.filter(pk=attempt.pk).update(started_at=now)
            attempt.started_at = now
            record_job_event(
                job, "attempt.started", actor=CLUSTER, now=now, numbers={"attempt": attempt.number}
            )
    return job


def stop_attempt(  # noqa: PLR0913  one door for every stop
    attempt: Attempt,
    *,
    cause: EndedBy,
    grace_seconds: int,
    message: str,
    actor: str,
    now: datetime,
    refused: bool = False,
) -> Attempt:
    """Ask for the attempt's pods to be stopped: the job goes to `stopping`, `stop_cause` says why.

    A stop that is already under way keeps its cause, except that a cancel wins over one after which the job
    would run again. Raises ConflictError when the attempt has ended. `refused`: Kubernetes said no to the pods.
    """
    order = StopOrder(attempt, cause, grace_seconds, message, refused=refused)
    if not stop_attempts([order], actor=actor, now=now):
        raise _has_ended(attempt)
    return attempt


def end_attempt(
    attempt: Attempt,
    *,
    ended_by: EndedBy,
    message: str,
    exit_code: int | None,
    now: datetime,
) -> Job:
    """Close the attempt and move the job on: `pending` for another one, or `finished` (`after_attempt`).

    Raises ConflictError when the attempt has ended before. A cancel that came in meanwhile wins over an end
    after which the job would run again.
    """
    jobs = end_attempts([Ending(attempt, ended_by, message, exit_code)], now=now)
    if not jobs:
        raise _has_ended(attempt)
    return jobs[0]


def _has_ended(attempt: Attempt) -> ConflictError:
    return ConflictError(
        f"attempt {attempt.number} of {attempt.job_id} has ended", code="attempt_ended"
    )


def _locked_job(attempt: Attempt) -> Job:
    """The job as it is now, its row locked where the database can."""
    return (
        Job.objects.select_for_update(of=("self",))
        .select_related("tenant", "queue__cluster")
        .get(pk=attempt.job_id)
    )
