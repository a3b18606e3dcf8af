"""Many attempts at once: their pods are bound, their pods run. Called by the cluster process.

Thousands of jobs may start within seconds; what each of them needs is a handful of statements for all. The rules
are those of `mark_starting` and `mark_running` in `attempts`, which the caller falls back to on a conflict.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Attempt, Job
from queues.services.lifecycle import (
    Move,
    locked_jobs,
    move_jobs,
    record_job_event,
    transition_jobs,
)

CLUSTER = "cluster"


def mark_many_starting(attempt_ids: Collection[int], *, now: datetime) -> int:
    """The pods of these attempts are bound: their jobs go `placed` → `starting`; how many were `placed`.

    Raises ConflictError, and changes nothing, when somebody moves one of the jobs meanwhile.
    """
    with log.writing():
        placed = _in_phase(_locked_jobs(attempt_ids), Phase.PLACED)
        transition_jobs(placed, Phase.STARTING, actor=CLUSTER, now=now)
    return len(placed)


def mark_many_running(
    attempt_ids: Collection[int], *, now: datetime, since: Mapping[int, datetime] | None = None
) -> dict[int, datetime]:
    """Every container of these attempts runs: they have started, their jobs are `running`.

    since: when those began that are noticed late; a time limit counts from there. Answers the attempts that were
    started by this call, and when each began. Raises ConflictError, and changes nothing, when somebody moves one of
    the jobs meanwhile.
    """
    with log.writing():
        jobs = _locked_jobs(attempt_ids)
        transition_jobs(_in_phase(jobs, Phase.PLACED), Phase.STARTING, actor=CLUSTER, now=now)
        starting = {job.pk: job for job in _in_phase(jobs, Phase.STARTING)}
        opened = Attempt.objects.filter(
            pk__in=attempt_ids, job_id__in=starting, ended_at__isnull=True
        )
        attempts = dict(opened.values_list("pk", "job_id"))
        began = {pk: (since or {}).get(pk, now) for pk in attempts}
        earlier = {attempts[pk]: moment for pk, moment in began.items() if moment != now}
        move_jobs(
            [Move(job, Phase.RUNNING, since=earlier.get(pk)) for pk, job in starting.items()],
            actor=CLUSTER,
            now=now,
        )
        _note_started(began)
        for job in starting.values():
            numbers = {"attempt": job.attempt_number}
            record_job_event(job, "attempt.started", actor=CLUSTER, now=now, numbers=numbers)
    return began


def _note_started(began: Mapping[int, datetime]) -> None:
    alike: dict[datetime, list[int]] = defaultdict(list)
    for pk, moment in began.items():
        alike[moment].append(pk)
    for moment, ids in alike.items():
        Attempt.objects.filter(pk__in=ids).update(started_at=moment)


def _locked_jobs(attempt_ids: Collection[int]) -> list[Job]:
    """The jobs whose last attempt is one of these."""
    numbers = dict(Attempt.objects.filter(pk__in=attempt_ids).values_list("job_id", "number"))
    return [job for job in locked_jobs(numbers) if job.attempt_number == numbers[job.pk]]


def _in_phase(jobs: Iterable[Job], phase: Phase) -> list[Job]:
    return [job for job in jobs if job.phase == phase]
