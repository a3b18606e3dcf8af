"""Attempts: begun, stopped and ended; every end leads where DESIGN section 4 says."""

import pytest

from controlplane.common.errors import ConflictError
from controlplane.common.models import Event
from queues.lifecycle import EndedBy, Outcome, Phase, RestartBudget, after_attempt, backoff_seconds
from queues.models import Attempt, Job, Queue
from queues.services.attempts import (
    end_attempt,
    hash_of,
    mark_running,
    mark_starting,
    stop_attempt,
    token_of,
)
from tenants.models import User
from tests.factories import later, make_job, place_job, run_job

GENEROUS = RestartBudget(max_restarts=3)
SPENT = RestartBudget(
    max_restarts=3, restarts_used=3, on_preemption="stop", infrastructure_faults=10
)
AFTER = [
    # end, with a budget left, with everything spent and on_preemption: stop
    (EndedBy.SUCCEEDED, "succeeded", "succeeded"),
    (EndedBy.FAILED, "pending", "failed"),
    (EndedBy.CANCELLED, "cancelled", "cancelled"),
    (EndedBy.TIMED_OUT, "timed_out", "timed_out"),
    (EndedBy.PREEMPTED, "pending", "preempted"),
    (EndedBy.NODE_FAILURE, "pending", "node_failure"),
    (EndedBy.MAINTENANCE, "pending", "pending"),
    (EndedBy.RESIZE, "pending", "pending"),
    (EndedBy.REQUEUED, "pending", "pending"),
    (EndedBy.PLACEMENT_MISS, "pending", "node_failure"),
    (EndedBy.START_FAILED, "failed", "failed"),
    (EndedBy.STALLED, "pending", "failed"),
]


def test_the_table_of_ends_is_complete() -> None:
    assert {end for end, _, _ in AFTER} == set(EndedBy)


@pytest.mark.parametrize(("end", "generous", "spent"), AFTER)
def test_after_attempt_leads_where_the_design_says(end: EndedBy, generous: str, spent: str) -> None:
    for budget, expected in ((GENEROUS, generous), (SPENT, spent)):
        follows = after_attempt(end, budget)
        assert (follows.outcome or follows.phase) == expected
        assert (follows.phase is Phase.FINISHED) == (follows.outcome is not None)


@pytest.mark.parametrize("end", list(EndedBy))
def test_only_own_failures_use_up_restarts_and_only_faults_back_off(end: EndedBy) -> None:
    follows = after_attempt(end, GENEROUS)
    assert follows.uses_restart == (end in {EndedBy.FAILED, EndedBy.STALLED})
    assert bool(follows.backoff_seconds) == (end in {EndedBy.NODE_FAILURE, EndedBy.PLACEMENT_MISS})


def test_a_start_that_only_took_too_long_is_tried_elsewhere_within_the_budget_of_faults() -> None:
    follows = after_attempt(EndedBy.START_FAILED, RestartBudget(elsewhere=True))
    assert (follows.phase, follows.backoff_seconds) == (Phase.PENDING, 10)
    spent = RestartBudget(elsewhere=True, infrastructure_faults=10)
    assert after_attempt(EndedBy.START_FAILED, spent).outcome is Outcome.NODE_FAILURE


def test_backoff_doubles_from_ten_seconds_to_ten_minutes() -> None:
    assert [backoff_seconds(n) for n in range(1, 9)] == [10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.django_db
@pytest.mark.sqlite
def test_begin_attempt_places_the_job_and_keeps_only_the_hash_of_its_token(job: Job) -> None:
    attempt = place_job(job)
    job.refresh_from_db()
    assert (job.phase, job.attempt_number, attempt.number) == ("placed", 1, 1)
    assert attempt.token_hash == hash_of(token_of(job.id, 1))
    assert token_of(job.id, 1) != token_of(job.id, 2)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_begin_attempt_refuses_a_job_that_is_not_pending(job: Job) -> None:
    place_job(job)
    with pytest.raises(ConflictError):
        place_job(job)
    assert Attempt.objects.filter(job=job).count() == 1


@pytest.mark.django_db
@pytest.mark.sqlite
def test_an_attempt_passes_through_every_phase(job: Job) -> None:
    attempt = place_job(job)
    mark_starting(attempt, now=later(1))
    mark_running(attempt, now=later(2))
    mark_running(attempt, now=later(3))
    attempt.refresh_from_db()
    assert attempt.started_at == later(2)
    ended = end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=later(9))
    assert (ended.phase, ended.outcome, ended.exit_code) == ("finished", "succeeded", 0)
    kinds = list(Event.objects.filter(job=job.id).order_by("seq").values_list("kind", flat=True))
    assert kinds.count("job.phase") == 5
    assert [kind for kind in kinds if kind != "job.phase"] == [
        "attempt.placed",
        "attempt.started",
        "attempt.ended",
    ]


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize(("end", "generous", "spent"), AFTER)
def test_end_attempt_moves_the_job_as_the_table_says(
    train: Queue, ravi: User, end: EndedBy, generous: str, spent: str
) -> None:
    job = make_job(train, ravi, max_restarts=1)
    attempt = run_job(job)
    ended = end_attempt(attempt, ended_by=end, message="why", exit_code=None, now=later(60))
    assert (ended.outcome or ended.phase) == generous
    attempt.refresh_from_db()
    assert (attempt.ended_by, attempt.ended_at, attempt.message) == (end, later(60), "why")


@pytest.mark.django_db
@pytest.mark.sqlite
def test_own_failures_end_the_job_once_its_restarts_are_used_up(train: Queue, ravi: User) -> None:
    job = make_job(train, ravi, max_restarts=2)
    for round_number in range(3):
        attempt = run_job(job)
        job = end_attempt(
            attempt, ended_by=EndedBy.FAILED, message="", exit_code=1, now=later(round_number)
        )
    assert (job.outcome, job.exit_code, job.restarts_used) == ("failed", 1, 2)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_the_eleventh_fault_within_a_day_ends_the_job_and_old_ones_are_forgotten(job: Job) -> None:
    for fault in range(10):
        attempt = run_job(job, later(fault))
        job = end_attempt(
            attempt, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=later(fault)
        )
        assert job.backoff_until == later(fault + backoff_seconds(fault + 1))
        assert job.reason_code == "backoff"
    next_day = 24 * 3600 + 5
    attempt = run_job(job, later(next_day))
    job = end_attempt(
        attempt, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=later(next_day)
    )
    assert job.phase == "pending"
    for second in range(6, 12):
        attempt = run_job(job, later(24 * 3600 + second))
        job = end_attempt(
            attempt,
            ended_by=EndedBy.PLACEMENT_MISS,
            message="",
            exit_code=None,
            now=later(24 * 3600 - 1),
        )
        if job.phase == "finished":
            break
    assert job.outcome == Outcome.NODE_FAILURE


@pytest.mark.django_db
@pytest.mark.sqlite
def test_stop_attempt_keeps_the_first_cause_but_a_cancel_wins_over_a_restart(job: Job) -> None:
    attempt = run_job(job)
    for cause in (EndedBy.PREEMPTED, EndedBy.MAINTENANCE):
        stop_attempt(
            attempt, cause=cause, grace_seconds=30, message="", actor="scheduler", now=later(1)
        )
        assert attempt.stop_cause == EndedBy.PREEMPTED
    stop_attempt(
        attempt, cause=EndedBy.CANCELLED, grace_seconds=5, message="no", actor="ravi", now=later(2)
    )
    assert (attempt.stop_cause, attempt.stop_grace_seconds) == (EndedBy.CANCELLED, 5)
    job = end_attempt(
        attempt, ended_by=EndedBy.CANCELLED, message="no", exit_code=None, now=later(3)
    )
    assert job.outcome == "cancelled"


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_cancel_does_not_rewrite_a_failure_that_ends_the_job_anyway(job: Job) -> None:
    attempt = run_job(job)
    stop_attempt(
        attempt,
        cause=EndedBy.FAILED,
        grace_seconds=5,
        message="exit 1",
        actor="cluster",
        now=later(1),
    )
    stop_attempt(
        attempt, cause=EndedBy.CANCELLED, grace_seconds=5, message="", actor="ravi", now=later(2)
    )
    assert attempt.stop_cause == EndedBy.FAILED


@pytest.mark.django_db
@pytest.mark.sqlite
def test_end_attempt_honours_a_cancel_that_its_caller_has_not_seen(job: Job) -> None:
    seen_before = run_job(job)
    fresh = Attempt.objects.get(pk=seen_before.pk)
    stop_attempt(
        fresh, cause=EndedBy.CANCELLED, grace_seconds=5, message="no", actor="ravi", now=later(1)
    )
    ended = end_attempt(
        seen_before, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=later(2)
    )
    assert (ended.outcome, ended.message) == ("cancelled", "no")


@pytest.mark.django_db
@pytest.mark.sqlite
def test_an_attempt_ends_only_once(job: Job) -> None:
    attempt = run_job(job)
    end_attempt(attempt, ended_by=EndedBy.REQUEUED, message="", exit_code=None, now=later(1))
    with pytest.raises(ConflictError):
        end_attempt(attempt, ended_by=EndedBy.FAILED, message="", exit_code=1, now=later(2))
    with pytest.raises(ConflictError):
        stop_attempt(
            attempt,
            cause=EndedBy.CANCELLED,
            grace_seconds=1,
            message="",
            actor="ravi",
            now=later(2),
        )


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("interval", "end", "lost"),
    [
        (None, EndedBy.PREEMPTED, 16 * 100),
        (30, EndedBy.PREEMPTED, 16 * 10),
        (None, EndedBy.SUCCEEDED, 0),
    ],
)
def test_lost_work_is_counted_since_the_last_checkpoint(
    train: Queue, ravi: User, interval: int | None, end: EndedBy, lost: int
) -> None:
    job = make_job(train, ravi, replicas=2, checkpoint_interval_seconds=interval)
    attempt = run_job(job)
    end_attempt(attempt, ended_by=end, message="", exit_code=None, now=later(100))
    attempt.refresh_from_db()
    assert attempt.lost_gpu_seconds == lost


def test_refusal_by_kubernetes_backs_off_and_never_ends_the_job(job: Job) -> None:
    """More refusals in a row than the budget of faults: the quota may be raised tomorrow."""
    moment = later(0)
    for number in range(1, 14):
        attempt = place_job(job, moment)
        stop_attempt(
            attempt,
            cause=EndedBy.PLACEMENT_MISS,
            grace_seconds=1,
            message="exceeded quota: gpu",
            actor="cluster",
            now=moment,
            refused=True,
        )
        ended = end_attempt(
            attempt, ended_by=EndedBy.PLACEMENT_MISS, message="exceeded quota: gpu",
            exit_code=None, now=moment,
        )  # fmt: skip
        assert (ended.phase, ended.reason_code) == ("pending", "refused_by_kubernetes"), number
        assert ended.refused_message == "exceeded quota: gpu"
        job = Job.objects.get(pk=job.pk)
        assert job.backoff_until is not None
        assert (job.backoff_until - moment).total_seconds() <= 600
        moment = job.backoff_until
    place_job(job, moment)
    assert Job.objects.get(pk=job.pk).refused_message == ""


def refuse(attempt: Attempt, at: float) -> Job:
    """Kubernetes says no to the attempt's pods."""
    stop_attempt(
        attempt,
        cause=EndedBy.PLACEMENT_MISS,
        grace_seconds=0,
        message="exceeded quota",
        actor="cluster",
        now=later(at),
        refused=True,
    )
    return end_attempt(
        attempt,
        ended_by=EndedBy.PLACEMENT_MISS,
        message="exceeded quota",
        exit_code=None,
        now=later(at),
    )


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_job_that_kubernetes_refuses_backs_off_for_ever_and_says_what_was_said(job: Job) -> None:
    for turn in range(13):
        job = refuse(place_job(Job.objects.get(pk=job.pk), later(turn)), turn)
        assert (job.phase, job.reason_code) == ("pending", "refused_by_kubernetes")
        assert job.refused_message == "exceeded quota"
    assert job.backoff_until == later(12 + 600)
    attempt = run_job(Job.objects.get(pk=job.pk), later(20))
    job = end_attempt(
        attempt, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=later(21)
    )
    assert job.backoff_until == later(21 + 10), "refusals are no faults"


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_cancel_wins_over_a_refusal_however_many_there_were(job: Job) -> None:
    for turn in range(11):
        job = refuse(place_job(Job.objects.get(pk=job.pk), later(turn)), turn)
    attempt = place_job(Job.objects.get(pk=job.pk), later(20))
    for cause, refused in ((EndedBy.PLACEMENT_MISS, True), (EndedBy.CANCELLED, False)):
        stop_attempt(
            attempt,
            cause=cause,
            grace_seconds=0,
            message="",
            actor="x",
            now=later(20),
            refused=refused,
        )
    assert attempt.stop_cause == EndedBy.CANCELLED
