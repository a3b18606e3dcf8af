"""The transition table, pair by pair, and the one function that follows it."""

import itertools
import threading
from datetime import timedelta

import pytest
from django.db import connection

from controlplane.common.errors import ConflictError
from controlplane.common.models import Event
from queues.lifecycle import TRANSITIONS, Outcome, Phase, may_follow
from queues.models import Job, JobDependency, Queue
from queues.services.lifecycle import transition_job
from tenants.models import User
from tests.factories import NOW, in_phase, make_job

ALLOWED = {
    ("pending", "held"),
    ("pending", "placed"),
    ("pending", "finished"),
    ("held", "pending"),
    ("held", "finished"),
    ("placed", "starting"),
    ("placed", "stopping"),
    ("starting", "running"),
    ("starting", "stopping"),
    ("running", "stopping"),
    ("stopping", "pending"),
    ("stopping", "finished"),
}
PAIRS = list(itertools.product(Phase, Phase))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda phase: phase.value)
def test_may_follow_agrees_with_the_design_for_every_pair(before: Phase, after: Phase) -> None:
    assert may_follow(before, after) == ((before.value, after.value) in ALLOWED)


def test_transitions_name_every_phase() -> None:
    assert set(TRANSITIONS) == set(Phase)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_transition_job_does_what_the_table_says_for_every_pair(train: Queue, ravi: User) -> None:
    for before, after in PAIRS:
        job = in_phase(make_job(train, ravi), before)
        version, events = job.version, Event.objects.filter(job=job.id).count()
        outcome = Outcome.CANCELLED if after is Phase.FINISHED else ""
        if (before.value, after.value) in ALLOWED:
            transition_job(job, after, actor="ravi", now=NOW, outcome=outcome)
            job.refresh_from_db()
            assert (job.phase, job.version) == (after, version + 1), (before, after)
            event = Event.objects.get(job=job.id, kind="job.phase")
            assert (event.numbers["from"], event.numbers["to"]) == (before.value, after.value)
            assert (event.tenant, event.cluster, event.actor) == ("research", "demo", "ravi")
        else:
            with pytest.raises(ConflictError):
                transition_job(job, after, actor="ravi", now=NOW, outcome=outcome)
            job.refresh_from_db()
            assert (job.phase, job.version) == (before, version), (before, after)
            assert Event.objects.filter(job=job.id).count() == events


@pytest.mark.django_db
@pytest.mark.sqlite
def test_transition_job_refuses_whoever_read_an_older_phase(job: Job) -> None:
    late = Job.objects.get(pk=job.pk)
    transition_job(job, Phase.HELD, actor="ravi", now=NOW)
    with pytest.raises(ConflictError, match="somebody was first"):
        transition_job(late, Phase.PLACED, actor="scheduler", now=NOW)
    assert Job.objects.get(pk=job.pk).phase == Phase.HELD


@pytest.mark.django_db
@pytest.mark.sqlite
def test_returning_to_pending_forgets_the_last_verdict_and_start(job: Job) -> None:
    in_phase(job, Phase.STOPPING)
    Job.objects.filter(pk=job.pk).update(
        class_key="k", reason_code="waiting_for_nodes", started_at=NOW
    )
    job.refresh_from_db()
    transition_job(job, Phase.PENDING, actor="cluster", now=NOW)
    job.refresh_from_db()
    assert (job.class_key, job.reason_code, job.started_at) == ("", "not_yet_considered", None)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_chain_that_needed_success_is_cancelled_with_the_cause(train: Queue, ravi: User) -> None:
    first, second, third, patient = (make_job(train, ravi) for _ in range(4))
    for job, on, condition in (
        (second, first, "succeeded"),
        (third, second, "succeeded"),
        (patient, first, "finished"),
    ):
        JobDependency.objects.create(job=job, on=on, condition=condition)
    transition_job(first, Phase.FINISHED, actor="ravi", now=NOW, outcome=Outcome.CANCELLED)
    for job in (second, third, patient):
        job.refresh_from_db()
    assert (second.phase, second.outcome) == ("finished", "cancelled")
    assert first.id in second.message
    assert second.id in third.message
    assert patient.phase == "pending"


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_chain_goes_on_after_success(train: Queue, ravi: User) -> None:
    first, second = make_job(train, ravi), make_job(train, ravi)
    JobDependency.objects.create(job=second, on=first, condition="succeeded")
    in_phase(first, Phase.STOPPING)
    transition_job(first, Phase.FINISHED, actor="cluster", now=NOW, outcome=Outcome.SUCCEEDED)
    second.refresh_from_db()
    assert second.phase == "pending"


@pytest.mark.django_db(transaction=True)
def test_only_one_of_many_who_move_a_job_at_once_succeeds(train: Queue, ravi: User) -> None:
    """Eight threads, each with its own connection, race for the same job, six times over."""
    for _ in range(6):
        job = make_job(train, ravi)
        wins = _race(job, threads=8)
        job.refresh_from_db()
        assert wins == 1
        assert job.version == 2
        assert Event.objects.filter(job=job.id, kind="job.phase").count() == 1


def _race(job: Job, threads: int) -> int:
    barrier, won, lock = threading.Barrier(threads), [], threading.Lock()

    def attempt(number: int) -> None:
        mine = Job.objects.select_related("tenant", "queue__cluster").get(pk=job.pk)
        barrier.wait(timeout=10)
        to = Phase.PLACED if number % 2 else Phase.HELD
        try:
            transition_job(mine, to, actor=str(number), now=NOW + timedelta(seconds=number))
        except ConflictError:
            return
        finally:
            connection.close()
        with lock:
            won.append(number)

    running = [threading.Thread(target=attempt, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=20)
    return len(won)
