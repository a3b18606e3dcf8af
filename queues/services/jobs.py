"""What people do with jobs: submit, cancel, hold, release, requeue, change. Called by API, pages and commands.

Acts take a job or its id; a job that the actor may not see is not found, one that they may see but not touch is
forbidden. Each act is one transaction; where somebody else was first it looks again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ApplicationError, ConflictError, FieldError, InvalidError
from queues import reasons
from queues.lifecycle import ACTIVE_PHASES, EndedBy, Outcome, Phase
from queues.models import Job
from queues.selectors.jobs import job_of, open_attempt
from queues.services import submission
from queues.services.attempts import stop_attempt
from queues.services.changes import change
from queues.services.lifecycle import transition_job
from queues.services.planner import Never, planner
from queues.services.validation import MOST_JOBS_IN_A_BATCH, validate_batch
from queues.specs import JobSpec
from tenants.access import Actor, require_act_on

ON_INFEASIBLE = ("wait", "reject", "finish")
# How often an act looks again when somebody moved the job between its look and its write.
MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one job of a batch: stored, or refused."""

    job: Job | None = None
    problem: ApplicationError | None = None


def submit_job(actor: Actor, spec: JobSpec, now: datetime, *, on_infeasible: str = "wait") -> Job:
    """Store a validated job. Raises ConflictError for an `external_id` in use.

    on_infeasible: what to do with a job that can never run. `wait` asks nobody; `reject` raises InvalidError,
    `finish` stores it as finished (`infeasible`); both raise UnavailableError where no planner answers.
    """
    never = _judge(actor, {0: spec}, on_infeasible, now)
    if on_infeasible == "reject" and 0 in never:
        raise _infeasible(never[0])
    stored = _store(actor, {0: spec}, never, now)
    if 0 in stored.refused:
        raise stored.refused[0]
    return stored.jobs[0]


def submit_batch(
    actor: Actor, payloads: Sequence[Any], now: datetime, *, on_infeasible: str = "wait"
) -> list[BatchResult]:
    """Validate and store up to 500 jobs, each for itself: a refused one does not hold up the others.

    Raises InvalidError when there are too many, and as `submit_job` when no planner answers.
    """
    if len(payloads) > MOST_JOBS_IN_A_BATCH:
        message = _("must have at most {most} jobs").format(most=MOST_JOBS_IN_A_BATCH)
        raise InvalidError(message, errors=(FieldError("/jobs", "too_many", message),))
    members = validate_batch(actor, payloads, now)
    specs = {member.index: member.spec for member in members if member.spec is not None}
    refused: dict[int, ApplicationError] = {
        member.index: member.problem for member in members if member.problem is not None
    }
    never = _judge(actor, specs, on_infeasible, now)
    if on_infeasible == "reject":
        refused |= {index: _infeasible(why) for index, why in never.items()}
        specs = {index: spec for index, spec in specs.items() if index not in never}
    stored = _store(actor, specs, never, now)
    refused |= stored.refused
    return [BatchResult(stored.jobs.get(i), refused.get(i)) for i in range(len(payloads))]


def _judge(
    actor: Actor, specs: Mapping[int, JobSpec], on_infeasible: str, now: datetime
) -> dict[int, Never]:
    """Which of the jobs can never run; nobody is asked where it makes no difference."""
    if on_infeasible == "wait" or not specs:
        return {}
    answers = planner().never(list(specs.values()), actor.name, now)
    return {index: never for index, never in zip(specs, answers, strict=True) if never is not None}


def _infeasible(never: Never) -> InvalidError:
    return InvalidError(
        reasons.sentence(never.code, never.numbers),
        code="infeasible",
        hint=reasons.hint(never.code, never.numbers),
        extra={"reason": reasons.answer(never.code, never.numbers)},
    )


def _store(
    actor: Actor, specs: Mapping[int, JobSpec], never: Mapping[int, Never], now: datetime
) -> submission.Stored:
    with log.writing():
        stored = submission.store(specs, actor.user, now)
        for index, why in never.items():
            job = stored.jobs.get(index)
            if job is not None and job.phase == Phase.PENDING:
                transition_job(
                    job,
                    Phase.FINISHED,
                    actor="muster",
                    now=now,
                    outcome=Outcome.INFEASIBLE,
                    message=reasons.sentence(why.code, why.numbers),
                )
    return stored


# --- acts on one job ---


def cancel_job(actor: Actor, job: Job | str, reason: str, now: datetime) -> Job:
    """End the job: at once where it waits, with grace where it has pods. Repeating it changes nothing.

    Raises ConflictError for a job that has finished otherwise.
    """
    return _act(actor, job, lambda found: _cancel(actor, found, reason, now))


def hold_job(actor: Actor, job: Job | str, reason: str, now: datetime) -> Job:
    """Keep a waiting job from starting; it keeps its age. Raises ConflictError once it has been placed."""
    return _act(actor, job, lambda found: _hold(actor, found, reason, now))


def release_job(actor: Actor, job: Job | str, reason: str, now: datetime) -> Job:
    """Let a held job wait again. Raises ConflictError for a job that is past waiting."""
    return _act(actor, job, lambda found: _release(actor, found, reason, now))


def requeue_job(actor: Actor, job: Job | str, reason: str, now: datetime) -> Job:
    """Stop an active job with grace and let it wait for another attempt.

    Raises ConflictError for one that is not active; a finished job is submitted anew instead.
    """
    return _act(actor, job, lambda found: _requeue(actor, found, reason, now))


def change_job(
    actor: Actor, job: Job | str, changes: Mapping[str, Any], version: int | None, now: datetime
) -> Job:
    """Change `priority`, `queue` or `max_runtime_seconds`; None as version means whatever it is now.

    Raises StaleError, InvalidError with pointers into `changes`, ConflictError for a job that is past it.
    """
    return _act(actor, job, lambda found: change(actor, found, changes, version, now))


def _act(actor: Actor, job: Job | str, act: Callable[[Job], None]) -> Job:
    """Look at the job as it is now, act, and look again where somebody was first."""
    job_id = job if isinstance(job, str) else job.pk
    for tries_left in reversed(range(MOST_TRIES)):
        found = job_of(actor, job_id)
        require_act_on(actor, found.tenant, found.user_id)
        try:
            with log.writing():
                act(found)
        except ConflictError as error:
            if error.code not in _WAS_FIRST or not tries_left:
                raise
        else:
            break
    return job_of(actor, job_id)


_WAS_FIRST = frozenset({"phase_changed", "attempt_ended"})


def _cancel(actor: Actor, job: Job, reason: str, now: datetime) -> None:
    if job.phase == Phase.FINISHED:
        if job.outcome != Outcome.CANCELLED:
            raise _wrong_phase(job, _("It has finished; there is nothing to cancel."))
    elif job.phase in ACTIVE_PHASES:
        _stop(actor, job, EndedBy.CANCELLED, reason, now)
    else:
        transition_job(
            job,
            Phase.FINISHED,
            actor=actor.name,
            now=now,
            outcome=Outcome.CANCELLED,
            message=reason,
        )


def _hold(actor: Actor, job: Job, reason: str, now: datetime) -> None:
    if job.phase == Phase.HELD:
        return
    if job.phase != Phase.PENDING:
        raise _wrong_phase(job, _("Only a waiting job can be held; cancel or requeue it instead."))
    transition_job(job, Phase.HELD, actor=actor.name, now=now, message=reason)


def _release(actor: Actor, job: Job, reason: str, now: datetime) -> None:
    if job.phase == Phase.PENDING:
        return
    if job.phase != Phase.HELD:
        raise _wrong_phase(job, _("Only a held job can be released."))
    transition_job(
        job,
        Phase.PENDING,
        actor=actor.name,
        now=now,
        message=reason,
        backoff_until=_still_ahead(job.backoff_until, now),
    )


def _still_ahead(moment: datetime | None, now: datetime) -> datetime | None:
    """Holding and releasing a job does not shorten its back-off."""
    return moment if moment is not None and moment > now else None


def _requeue(actor: Actor, job: Job, reason: str, now: datetime) -> None:
    if job.phase not in ACTIVE_PHASES:
        hint = (
            _("Submit it again to run it again.")
            if job.phase == Phase.FINISHED
            else _("It is waiting already.")
        )
        raise _wrong_phase(job, hint)
    _stop(actor, job, EndedBy.REQUEUED, reason, now)


def _stop(actor: Actor, job: Job, cause: EndedBy, reason: str, now: datetime) -> None:
    attempt = open_attempt(job)
    if attempt is None:
        raise ConflictError(_("The attempt has just ended."), code="attempt_ended")
    stop_attempt(
        attempt,
        cause=cause,
        grace_seconds=job.grace_seconds,
        message=reason,
        actor=actor.name,
        now=now,
    )


def _wrong_phase(job: Job, hint: str) -> ConflictError:
    state = str(Outcome(job.outcome).label if job.outcome else Phase(job.phase).label)
    return ConflictError(
        _("The job is {state}.").format(state=state),
        code="wrong_phase",
        hint=hint,
        extra={"phase": str(job.phase), "outcome": str(job.outcome) or None},
    )
