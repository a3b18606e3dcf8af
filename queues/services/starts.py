"""Many attempts at once: their pods are bound, their pods run. Called by the cluster process.

Thousands of jobs may start within seconds; what each of them needs is a handful of statements for all. The rules
are those of `mark_starting` and `mark_running` in `attempts`, which the caller falls back to on a conflict.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.db.models import F

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Attempt, Job
from queues.services.lifecycle import record_job_event, transition_jobs

CLUSTER = "cluster"


def mark_many_starting(attempt_ids: Collection[int], *, now: datetime) -> int:
    """The pods of these attempts are bound: their jobs go `placed` → `starting`; how many were `placed`.

    Raises ConflictError, and changes nothing, when somebody moves one of the jobs meanwhile.
    """
    with log.writing():
        placed = _in_phase(_locked_jobs(attempt_ids), Phase.PLACED)
        transition_jobs(placed, Phase.STARTING, actor=CLUSTER, now=now)
    return len(placed)


def mark_many_running(attempt_ids: Collection[int], *, now: datetime) -> set[int]:
    """Every container of these attempts runs: they have started, their jobs are `running`.

    Answers the attempts that were started by this call. Raises ConflictError, and changes nothing, when somebody
    moves one of the jobs meanwhile.
    """
    with log.writing():
        jobs = _locked_jobs(attempt_ids)
        transition_jobs(_in_phase(jobs, Phase.PLACED), Phase.STARTING, actor=CLUSTER, now=now)
        starting = _in_phase(jobs, Phase.STARTING)
        transition_jobs(starting, Phase.RUNNING, actor=CLUSTER, now=now)
        return _note_started(starting, attempt_ids, now)


def _locked_jobs(attempt_ids: Collection[int]) -> list[Job]:
    """The jobs whose last attempt is one of these, in one order for everybody, locked where the database can."""
    return list(
        Job.objects.select_for_update(of=("self",))
        .select_related("tenant", "queue__cluster")
        .filter(attempts__in=attempt_ids, attempts__number=F("attempt_number"))
        .order_by("pk")
    )


def _in_phase(jobs: Iterable[Job], phase: Phase) -> list[Job]:
    return [job for job in jobs if job.phase == phase]


def _note_started(jobs: Sequence[Job], attempt_ids: Collection[int], now: datetime) -> set[int]:
    ids = {job.pk for job in jobs}
    started = Attempt.objects.filter(pk__in=attempt_ids, job_id__in=ids, ended_at__isnull=True)
    found = set(started.values_list("pk", flat=True))
    Attempt.objects.filter(pk__in=found).update(started_at=now)
    for job in jobs:
        record_job_event(
            job, "attempt.started", actor=CLUSTER, now=now, numbers={"attempt": job.attempt_number}
        )
    return found
