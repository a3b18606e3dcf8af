"""Many attempts that stop and end together: as each alone would, in a number of statements that does not grow."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job, JobDependency, Queue
from queues.services.attempts import end_attempt, stop_attempt
from queues.services.ends import Ending, StopOrder, end_attempts, stop_attempts
from tenants.models import User
from tests.factories import later, make_job, run_job

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

MANY = 12


def running(queue: Queue, user: User, many: int) -> list[Attempt]:
    return [run_job(make_job(queue, user), first_node=n) for n in range(many)]


def stops(attempts: list[Attempt], cause: EndedBy = EndedBy.SUCCEEDED) -> list[StopOrder]:
    return [StopOrder(attempt, cause, 30, "why") for attempt in attempts]


def endings(attempts: list[Attempt], ended_by: EndedBy = EndedBy.SUCCEEDED) -> list[Ending]:
    return [Ending(attempt, ended_by, "why", 0) for attempt in attempts]


@pytest.mark.parametrize("ended_by", [EndedBy.SUCCEEDED, EndedBy.NODE_FAILURE, EndedBy.FAILED])
def test_many_end_as_each_alone_would(train: Queue, ravi: User, ended_by: EndedBy) -> None:
    alone, *together = running(train, ravi, 4)
    stop_attempt(
        alone, cause=ended_by, grace_seconds=30, message="why", actor="cluster", now=later(50)
    )
    end_attempt(alone, ended_by=ended_by, message="why", exit_code=0, now=later(60))
    stop_attempts(stops(together, ended_by), actor="cluster", now=later(50))
    end_attempts(endings(together, ended_by), now=later(60))
    expected, said = _rows(alone), _events(alone)
    for attempt in together:
        assert _rows(attempt) == expected
        assert _events(attempt) == said


def _rows(attempt: Attempt) -> tuple[object, ...]:
    row = Attempt.objects.select_related("job").get(pk=attempt.pk)
    job = row.job
    return (
        (row.stop_cause, row.stop_requested_at, row.stop_grace_seconds, row.ended_by, row.ended_at),
        (row.message, row.lost_gpu_seconds),
        (job.phase, job.outcome, job.version, job.message, job.exit_code, job.backoff_until),
        (job.finished_at, job.reason_code, job.restarts_used),
    )


def _events(attempt: Attempt) -> list[tuple[str, dict[str, object]]]:
    rows = Event.objects.filter(job=attempt.job_id, at__gte=later(50)).order_by("seq")
    return [(row.kind, row.numbers) for row in rows]


def test_statements_do_not_grow_with_the_number_of_attempts(train: Queue, ravi: User) -> None:
    counts = []
    for many in (2, MANY):
        attempts = running(train, ravi, many)
        with CaptureQueriesContext(connection) as seen:
            stop_attempts(stops(attempts), actor="cluster", now=later(50))
            end_attempts(endings(attempts), now=later(60))
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_one_that_has_ended_is_left_out_and_the_others_end(train: Queue, ravi: User) -> None:
    first, *others = running(train, ravi, 3)
    end_attempt(first, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=later(40))
    assert stop_attempts(stops([first, *others]), actor="cluster", now=later(50)) == others
    ended = end_attempts(endings([first, *others]), now=later(60))
    assert [job.pk for job in ended] == [attempt.job_id for attempt in others]
    assert Attempt.objects.get(pk=first.pk).ended_at == later(40)


def test_a_cancel_among_them_keeps_its_word(train: Queue, ravi: User) -> None:
    cancelled, lost = running(train, ravi, 2)
    stop_attempt(
        cancelled,
        cause=EndedBy.CANCELLED,
        grace_seconds=5,
        message="not needed",
        actor="ravi",
        now=later(45),
    )
    stop_attempts(stops([cancelled, lost], EndedBy.NODE_FAILURE), actor="cluster", now=later(50))
    end_attempts(endings([cancelled, lost], EndedBy.NODE_FAILURE), now=later(60))
    outcomes = {a.job_id: (a.ended_by, a.job.phase, a.job.outcome) for a in _fresh(cancelled, lost)}
    assert outcomes[cancelled.job_id] == ("cancelled", "finished", "cancelled")
    assert outcomes[lost.job_id] == ("node_failure", "pending", "")


def test_starts_that_took_too_long_count_as_faults(train: Queue, ravi: User) -> None:
    (attempt,) = running(train, ravi, 1)
    order = StopOrder(attempt, EndedBy.START_FAILED, 30, "not all started", elsewhere=True)
    stop_attempts([order], actor="cluster", now=later(50))
    (job,) = end_attempts(endings([attempt], EndedBy.START_FAILED), now=later(60))
    assert (job.phase, job.backoff_until) == ("pending", later(70))
    again = run_job(Job.objects.get(pk=job.pk), now=later(70))
    (job,) = end_attempts(endings([again], EndedBy.NODE_FAILURE), now=later(90))
    assert job.backoff_until == later(110)


def test_what_depends_on_one_that_failed_is_cancelled_with_it(train: Queue, ravi: User) -> None:
    good, bad = running(train, ravi, 2)
    waiting = {a.job_id: make_job(train, ravi) for a in (good, bad)}
    for on, job in waiting.items():
        JobDependency.objects.create(job=job, on_id=on, condition="succeeded")
    endings_of_both = [
        Ending(good, EndedBy.SUCCEEDED, "", 0),
        Ending(bad, EndedBy.FAILED, "exited with 1", 1),
    ]
    end_attempts(endings_of_both, now=later(60))
    found = {on: Job.objects.get(pk=job.pk).outcome for on, job in waiting.items()}
    assert found == {good.job_id: "", bad.job_id: "cancelled"}


def _fresh(*attempts: Attempt) -> list[Attempt]:
    return list(
        Attempt.objects.select_related("job").filter(pk__in=[attempt.pk for attempt in attempts])
    )
