"""How attempts stop and end, many at once or one. Called by `services.attempts` and by the cluster process.

A fixed number of statements for all that go alike: when a node's rack goes, or thousands of short jobs come to their
end together, what each of them needs is a share of a few statements. Jobs are locked first, in one order for everybody
(where the database locks rows), so that a cancel and an end that come together are put in an order.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import Count, F, Q, Sum

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.checkpoints import Saves
from queues.lifecycle import (
    INFRASTRUCTURE_ENDS,
    INFRASTRUCTURE_WINDOW_SECONDS,
    AfterAttempt,
    EndedBy,
    Phase,
    RestartBudget,
    after_attempt,
)
from queues.models import Attempt, Job, Placement
from queues.services.lifecycle import Move, locked_jobs, move_jobs, record_job_event

CLUSTER = "cluster"
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
# What others may have written since the caller read the attempt.
_REREAD = (
    "ended_at",
    "stop_cause",
    "stop_requested_at",
    "started_at",
    "last_checkpoint_at",
    "message",
    "refused",
    "cause_removed",
    "elsewhere",
)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """An attempt to stop, and why. `refused`: Kubernetes said no to its pods; `elsewhere`: it is to be tried again."""

    attempt: Attempt
    cause: EndedBy
    grace_seconds: int
    message: str
    refused: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """An attempt of which nothing runs any more, and how it ended."""

    attempt: Attempt
    ended_by: EndedBy
    message: str
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class _End:
    """An ending as it is written, with its job and what follows."""

    job: Job
    attempt: Attempt
    ended_by: EndedBy
    message: str
    exit_code: int | None
    follows: AfterAttempt


def stop_attempts(orders: Sequence[StopOrder], *, actor: str, now: datetime) -> list[Attempt]:
    """Ask for the pods of all these attempts to be stopped; their rows are brought up to date in place.

    The rules are those of `services.attempts.stop_attempt`. Answers the attempts that are stopping now; those that
    have ended are left out. Raises ConflictError, and changes nothing, when somebody moves one of the jobs meanwhile.
    """
    with log.writing():
        jobs = _locked_jobs([order.attempt for order in orders])
        _reread([order.attempt for order in orders])
        still = [order for order in orders if order.attempt.ended_at is None]
        new = [
            order
            for order in still
            if not order.attempt.stop_cause
            or _cancel_wins(jobs[order.attempt.job_id], order.attempt, order.cause, now)
        ]
        moves = [
            Move(job, Phase.STOPPING, message=order.message)
            for order in new
            if (job := jobs[order.attempt.job_id]).phase != Phase.STOPPING
        ]
        move_jobs(moves, actor=actor, now=now)
        _write_stops(new, now)
        for order in new:
            _record_stop(jobs[order.attempt.job_id], order, actor, now)
    return [order.attempt for order in still]


def end_attempts(endings: Sequence[Ending], *, now: datetime) -> list[Job]:
    """Close all these attempts and move their jobs on; their rows are brought up to date in place.

    The rules are those of `services.attempts.end_attempt`. Answers the jobs that moved on; attempts that had ended
    before are left out. Raises ConflictError, and changes nothing, when somebody moves one of the jobs meanwhile.
    """
    with log.writing():
        attempts = [ending.attempt for ending in endings]
        jobs = _locked_jobs(attempts)
        _reread(attempts)
        still = [ending for ending in endings if ending.attempt.ended_at is None]
        unlucky = [e.attempt for e in still if e.ended_by is not EndedBy.SUCCEEDED]
        faults = _faults_of(unlucky, now)
        ends = [_end(jobs[ending.attempt.job_id], ending, faults) for ending in still]
        _close(ends, now)
        _move_on(ends, now)
    return [end.job for end in ends]


def saves_of(attempt: Attempt, job: Job) -> Saves:
    """What is known of the attempt's checkpoints."""
    return Saves(
        started_at=attempt.started_at,
        reported_at=attempt.last_checkpoint_at,
        interval_seconds=job.checkpoint_interval_seconds,
        grace_seconds=job.checkpoint_grace_seconds or 0,
    )


def _locked_jobs(attempts: Iterable[Attempt]) -> dict[str, Job]:
    return {job.pk: job for job in locked_jobs({attempt.job_id for attempt in attempts})}


def _reread(attempts: Sequence[Attempt]) -> None:
    rows = Attempt.objects.filter(pk__in=[attempt.pk for attempt in attempts])
    found = {row[0]: row[1:] for row in rows.values_list("pk", *_REREAD)}
    for attempt in attempts:
        for name, value in zip(_REREAD, found[attempt.pk], strict=True):
            setattr(attempt, name, value)


# --- stops ---


def _cancel_wins(job: Job, attempt: Attempt, cause: EndedBy, now: datetime) -> bool:
    if cause is not EndedBy.CANCELLED:
        return False
    before = EndedBy(attempt.stop_cause)
    return _what_follows(job, attempt, before, _faults_of([attempt], now)).phase is Phase.PENDING


def _write_stops(orders: Sequence[StopOrder], now: datetime) -> None:
    for order in orders:
        attempt = order.attempt
        attempt.stop_cause, attempt.stop_requested_at = (
            order.cause,
            attempt.stop_requested_at or now,
        )
        attempt.stop_grace_seconds = order.grace_seconds
        attempt.message, attempt.refused = order.message, order.refused
        attempt.elsewhere = order.elsewhere
    alike = _grouped(
        (
            (
                o.cause,
                o.attempt.stop_requested_at,
                o.grace_seconds,
                o.message,
                o.refused,
                o.elsewhere,
            ),
            o.attempt.pk,
        )
        for o in orders
    )
    for (cause, asked_at, grace_seconds, message, refused, elsewhere), ids in alike.items():
        Attempt.objects.filter(pk__in=ids).update(
            stop_cause=cause,
            stop_requested_at=asked_at,
            stop_grace_seconds=grace_seconds,
            message=message,
            refused=refused,
            elsewhere=elsewhere,
        )


def _record_stop(job: Job, order: StopOrder, actor: str, now: datetime) -> None:
    record_job_event(
        job,
        "attempt.stopping",
        actor=actor,
        now=now,
        message=order.message,
        numbers={
            "attempt": order.attempt.number,
            "cause": order.cause.value,
            "grace_seconds": order.grace_seconds,
        },
    )


# --- ends ---

# Attempts that ended by the infrastructure's fault in the last day, by job and whether Kubernetes had refused them.
_Faults = Mapping[tuple[str, bool], int]


def _faults_of(attempts: Sequence[Attempt], now: datetime) -> _Faults:
    if not attempts:
        return {}
    since = now - timedelta(seconds=INFRASTRUCTURE_WINDOW_SECONDS)
    rows = Attempt.objects.filter(
        Q(ended_by__in=INFRASTRUCTURE_ENDS) | Q(elsewhere=True, ended_by=EndedBy.START_FAILED),
        job_id__in={attempt.job_id for attempt in attempts},
        ended_at__gt=since,
    ).order_by()
    counted = rows.values("job_id", "refused").annotate(n=Count("pk"))
    return {(job, refused): n for job, refused, n in counted.values_list("job_id", "refused", "n")}


def _end(job: Job, ending: Ending, faults: _Faults) -> _End:
    """How it ends, by what is in its rows now."""
    attempt, ended_by, message = ending.attempt, ending.ended_by, ending.message
    if ended_by is EndedBy.FAILED and attempt.stop_cause == EndedBy.NODE_FAILURE:
        # Found to be the hardware's fault meanwhile (`services.blame`).
        ended_by, message = EndedBy.NODE_FAILURE, attempt.message
    follows = _what_follows(job, attempt, ended_by, faults)
    if attempt.stop_cause == EndedBy.CANCELLED and follows.phase is Phase.PENDING:
        ended_by, message = EndedBy.CANCELLED, attempt.message
        follows = _what_follows(job, attempt, ended_by, faults)
    return _End(job, attempt, ended_by, message, ending.exit_code, follows)


def _what_follows(job: Job, attempt: Attempt, ended_by: EndedBy, faults: _Faults) -> AfterAttempt:
    budget = RestartBudget(
        max_restarts=job.max_restarts,
        restarts_used=job.restarts_used,
        on_preemption=job.on_preemption,
        infrastructure_faults=faults.get((job.pk, attempt.refused), 0),
        refused=attempt.refused,
        cause_removed=attempt.cause_removed,
        elsewhere=attempt.elsewhere,
    )
    return after_attempt(ended_by, budget)


def _close(ends: Sequence[_End], now: datetime) -> None:
    lost = _lost_gpu_seconds(ends, now)
    alike = _grouped(
        ((end.ended_by, end.message, lost[end.attempt.pk]), end.attempt.pk) for end in ends
    )
    for (ended_by, message, seconds), ids in alike.items():
        closed = Attempt.objects.filter(pk__in=ids, ended_at__isnull=True).update(
            ended_at=now,
            ended_by=ended_by,
            message=message,
            lost_gpu_seconds=seconds,
            unknown_since=None,
        )
        if closed != len(ids):
            raise ConflictError("one of the attempts has ended", code="attempt_ended")
    for end in ends:
        attempt = end.attempt
        attempt.ended_at, attempt.ended_by, attempt.message = now, end.ended_by, end.message
        attempt.lost_gpu_seconds = lost[attempt.pk]
        _record_end(end, now)


def _record_end(end: _End, now: datetime) -> None:
    record_job_event(
        end.job,
        "attempt.ended",
        actor=CLUSTER,
        now=now,
        message=end.message,
        numbers={
            "attempt": end.attempt.number,
            "ended_by": end.ended_by.value,
            "lost_gpu_seconds": end.attempt.lost_gpu_seconds,
        },
    )


def _lost_gpu_seconds(ends: Sequence[_End], now: datetime) -> dict[int, int]:
    """GPU seconds of work that nobody has, by attempt: since the last checkpoint, reported or promised by the interval.

    Nothing is lost by success, nor by a start that never ran.
    """
    losing = {
        end.attempt.pk
        for end in ends
        if end.ended_by is not EndedBy.SUCCEEDED and end.attempt.started_at is not None
    }
    gpus = _gpus_of(losing)
    return {
        end.attempt.pk: int(saves_of(end.attempt, end.job).lost_seconds(now))
        * gpus.get(end.attempt.pk, 0)
        if end.attempt.pk in losing
        else 0
        for end in ends
    }


def _gpus_of(attempt_ids: Collection[int]) -> dict[int, int]:
    if not attempt_ids:
        return {}
    rows = Placement.objects.filter(attempt_id__in=attempt_ids).order_by()
    return dict(
        rows.values("attempt_id").annotate(total=Sum("gpus")).values_list("attempt_id", "total")
    )


def _move_on(ends: Sequence[_End], now: datetime) -> None:
    stopping = [
        Move(end.job, Phase.STOPPING, message=end.message)
        for end in ends
        if end.job.phase != Phase.STOPPING
    ]
    move_jobs(stopping, actor=CLUSTER, now=now)
    restarted = [end.job for end in ends if end.follows.uses_restart]
    if restarted:
        ids = [job.pk for job in restarted]
        Job.objects.filter(pk__in=ids).update(restarts_used=F("restarts_used") + 1)
        for job in restarted:
            job.restarts_used += 1
    move_jobs([_onward(end, now) for end in ends], actor=CLUSTER, now=now)


def _onward(end: _End, now: datetime) -> Move:
    follows = end.follows
    back_off = timedelta(seconds=follows.backoff_seconds)
    return Move(
        end.job,
        follows.phase,
        outcome=follows.outcome.value if follows.outcome else "",
        message=end.message,
        exit_code=end.exit_code,
        backoff_until=now + back_off if back_off else None,
        refused=end.attempt.refused and follows.phase is Phase.PENDING,
    )


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
