"""The one writer of a job's phase. Called by every service, here or in `scheduler`, that moves a job on."""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import Outcome, Phase, may_follow
from queues.models import Job, JobDependency
from queues.reasons import BACKOFF, NOT_YET_CONSIDERED, REFUSED


def transition_job(  # noqa: PLR0913  one door for every move
    job: Job,
    to: Phase,
    *,
    actor: str,
    now: datetime,
    outcome: str = "",
    message: str = "",
    exit_code: int | None = None,
    backoff_until: datetime | None = None,
    refused: bool = False,
) -> Job:
    """Move `job` from the phase that it was read in to `to`, and write `job.phase`.

    Raises ConflictError when the table does not allow it, or when somebody moved the job since it was read.
    `job` is changed in place and returned. A finished job takes those along that can no longer start because
    of it. `outcome` is needed for, and only for, `finished`; `backoff_until` is for `pending` alone, and
    `refused` for a back-off because Kubernetes said no: `message` is what it said.
    """
    move = Move(job, to, outcome, message, exit_code, backoff_until, refused)
    with log.writing():
        _move(job, to, actor=actor, now=now, changes=_changes(move, now))
        if to is Phase.FINISHED:
            _cancel_dependents(job, now)
    return job


@dataclass(frozen=True, slots=True)
class Move:
    """A job and the phase that it is to go to; the rest as for `transition_job`.

    since: when it began to run, where that is noticed late.
    """

    job: Job
    to: Phase
    outcome: str = ""
    message: str = ""
    exit_code: int | None = None
    backoff_until: datetime | None = None
    refused: bool = False
    since: datetime | None = None


def transition_jobs(jobs: Sequence[Job], to: Phase, *, actor: str, now: datetime) -> None:
    """Move many jobs to one phase: `move_jobs` with nothing to say of any of them."""
    move_jobs([Move(job, to) for job in jobs], actor=actor, now=now)


def move_jobs(moves: Sequence[Move], *, actor: str, now: datetime) -> None:
    """Move many jobs, by one conditional UPDATE for all that go alike.

    Raises ConflictError, all or nothing inside the caller's transaction, as `transition_job` does for one.
    """
    alike: dict[tuple[Phase, Phase, tuple[tuple[str, Any], ...]], list[Job]] = defaultdict(list)
    for move in moves:
        columns = tuple(_changes(move, now).items())
        alike[Phase(move.job.phase), move.to, columns].append(move.job)
    with log.writing():
        for (before, to, columns), jobs in alike.items():
            _move_together(jobs, before, to, actor=actor, now=now, changes=dict(columns))
        finished = [move.job for move in moves if move.to is Phase.FINISHED]
        for job in _with_lost_dependents(finished):
            _cancel_dependents(job, now)


def _move_together(
    jobs: Sequence[Job],
    before: Phase,
    to: Phase,
    *,
    actor: str,
    now: datetime,
    changes: dict[str, Any],
) -> None:
    if not may_follow(before, to):
        raise ConflictError(
            f"jobs that are {before.value} cannot become {to.value}", code="wrong_phase"
        )
    ids = [job.pk for job in jobs]
    changed = Job.objects.filter(pk__in=ids, phase=before).update(
        version=F("version") + 1, **changes
    )
    if changed != len(ids):
        raise ConflictError("one of the jobs was moved by somebody else", code="phase_changed")
    for job in jobs:
        job.version += 1
        for column, value in changes.items():
            setattr(job, column, value)
        _record_phase(job, before, actor=actor, now=now)


def _changes(move: Move, now: datetime) -> dict[str, Any]:
    """The columns that go with a phase."""
    changes: dict[str, Any] = {
        "phase": move.to,
        "message": move.message,
        "exit_code": move.exit_code,
        "refused_message": move.message if move.refused else "",
    }
    if move.to is Phase.PENDING:
        backing_off = REFUSED if move.refused else BACKOFF
        return changes | {
            "reason_code": backing_off if move.backoff_until else NOT_YET_CONSIDERED,
            "reason_since": now,
            "class_key": "",
            "backoff_until": move.backoff_until,
            "started_at": None,
        }
    changes |= {"reason_code": "", "reason_since": None, "class_key": ""}
    if move.to is Phase.FINISHED:
        return changes | {"outcome": move.outcome, "finished_at": now}
    return changes | ({"started_at": move.since or now} if move.to is Phase.RUNNING else {})


def _move(job: Job, to: Phase, *, actor: str, now: datetime, changes: dict[str, Any]) -> None:
    """One conditional UPDATE: whoever read an older phase changes nothing."""
    before = Phase(job.phase)
    if not may_follow(before, to):
        raise ConflictError(
            f"job {job.id} is {before.value} and cannot become {to.value}", code="wrong_phase"
        )
    changed = Job.objects.filter(pk=job.pk, phase=before).update(
        version=F("version") + 1, **changes
    )
    if not changed:
        raise ConflictError(
            f"job {job.id} is no longer {before.value}: somebody was first", code="phase_changed"
        )
    job.version += 1
    for column, value in changes.items():
        setattr(job, column, value)
    _record_phase(job, before, actor=actor, now=now)


def _record_phase(job: Job, before: Phase, *, actor: str, now: datetime) -> None:
    numbers: dict[str, Any] = {"from": before.value, "to": str(job.phase)}
    if job.outcome:
        numbers["outcome"] = str(job.outcome)
    if job.exit_code is not None:
        numbers["exit_code"] = job.exit_code
    record_job_event(job, "job.phase", actor=actor, now=now, message=job.message, numbers=numbers)


def record_job_event(
    job: Job,
    kind: str,
    *,
    actor: str,
    now: datetime,
    message: str = "",
    numbers: dict[str, Any] | None = None,
) -> None:
    """Add an event about a job to the open block; reads its tenant, queue and cluster if not yet loaded."""
    log.record(
        log.NewEvent(
            kind=kind,
            at=now,
            tenant=job.tenant.slug,
            job=job.id,
            cluster=job.queue.cluster.name,
            actor=actor,
            message=message,
            numbers=numbers or {},
        )
    )


def locked_jobs(job_ids: Collection[str]) -> list[Job]:
    """The jobs as they are now, in one order for everybody, locked where the database can; in short transactions only.

    Of their columns only those that moving a job on needs are read. Thousands of jobs have few tenants and queues:
    those are read once, not joined to each row.
    """
    rows = Job.objects.select_for_update(of=("self",)).only(*_MOVED_BY).filter(pk__in=job_ids)
    return list(rows.prefetch_related("tenant", "queue__cluster").order_by("pk"))


# What `move_jobs`, the rules of what follows an attempt, and events need to know.
_MOVED_BY = (
    "tenant",
    "queue",
    "phase",
    "outcome",
    "version",
    "message",
    "exit_code",
    "attempt_number",
    "max_restarts",
    "restarts_used",
    "on_preemption",
    "checkpoint_interval_seconds",
    "checkpoint_grace_seconds",
)


def dependency_is_lost(condition: str, outcome: str) -> bool:
    """Whether a dependency on a job that finished with `outcome` can no longer be met."""
    return condition == "succeeded" and outcome != Outcome.SUCCEEDED


def lost_dependency_message(on: Job) -> str:
    """The cause that a job cancelled for a lost dependency bears."""
    return f"cancelled because {on.id}, which must succeed first, ended as {on.outcome}"


def _with_lost_dependents(finished: Sequence[Job]) -> list[Job]:
    """Those of the jobs that others needed to succeed, and that did not; one query for all."""
    lost = [job for job in finished if dependency_is_lost("succeeded", str(job.outcome))]
    if not lost:
        return []
    needed = JobDependency.objects.filter(on__in=lost, condition="succeeded").values_list("on_id")
    ids = {row[0] for row in needed}
    return [job for job in lost if job.pk in ids]


def _cancel_dependents(finished: Job, now: datetime) -> None:
    """Finish, as cancelled, every waiting job that needed `finished` to succeed, and those that needed these."""
    queue = deque([finished])
    while queue:
        on = queue.popleft()
        if not dependency_is_lost("succeeded", str(on.outcome)):
            continue
        for job in _waiting_for(on):
            move = Move(job, Phase.FINISHED, Outcome.CANCELLED, lost_dependency_message(on))
            _move(job, move.to, actor="muster", now=now, changes=_changes(move, now))
            queue.append(job)


def _waiting_for(on: Job) -> list[Job]:
    ids = JobDependency.objects.filter(on=on, condition="succeeded").values("job_id")
    return list(
        Job.objects.filter(pk__in=ids, phase__in=[Phase.PENDING, Phase.HELD])
        .select_related("tenant", "queue__cluster")
        .order_by("id")
    )
