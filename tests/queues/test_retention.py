"""What is kept, for how long; what is deleted with it; and that a run stops when its time is over."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model

from controlplane.common.models import Event, IdempotencyKey
from queues.lifecycle import EndedBy
from queues.models import Attempt, Estimate, Job, JobDependency, JobRole, Placement, Queue
from queues.services import retention
from queues.services.attempts import end_attempt
from queues.services.retention import prune
from queues.tasks import prune_old_rows
from tenants.models import User
from tests.factories import NOW, make_job, run_job

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def ago(days: float) -> Any:
    """So many days before NOW."""
    return NOW - timedelta(days=days)


def finished(queue: Queue, user: User, days: float) -> Job:
    """A job that ran and ended so long ago."""
    job = make_job(queue, user)
    attempt = run_job(job, ago(days))
    end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=ago(days))
    attempt.placements.update(released_at=ago(days))
    return job


def test_a_job_whose_placement_still_holds_a_node_is_kept(train: Queue, ravi: User) -> None:
    old = finished(train, ravi, 500)
    Placement.objects.filter(attempt__job=old).update(released_at=None)
    found = prune(NOW)
    assert (found["jobs"], found["attempts"]) == (0, 0)


def test_jobs_go_after_400_days_with_all_that_is_theirs(train: Queue, ravi: User) -> None:
    old, recent = finished(train, ravi, 401), finished(train, ravi, 399)
    waiting = make_job(train, ravi, submitted_at=ago(500))
    assert prune(NOW)["jobs"] == 1
    assert set(Job.objects.values_list("pk", flat=True)) == {recent.pk, waiting.pk}
    for model in (Attempt, Placement, JobRole):
        path = {Attempt: "job", Placement: "attempt__job", JobRole: "job"}[model]
        assert not model._default_manager.filter(**{path: old.pk}).exists()


def test_lives_of_a_long_job_go_while_it_goes_on(train: Queue, ravi: User) -> None:
    job = make_job(train, ravi, max_restarts=9)
    attempt = run_job(job, ago(420))
    end_attempt(attempt, ended_by=EndedBy.PREEMPTED, message="", exit_code=None, now=ago(410))
    attempt.placements.update(released_at=ago(410))
    run_job(Job.objects.get(pk=job.pk), ago(1))
    assert prune(NOW)["attempts"] == 1
    assert [a.number for a in Attempt.objects.all()] == [2]


def test_a_job_that_others_wait_for_is_kept(train: Queue, ravi: User) -> None:
    old = finished(train, ravi, 500)
    JobDependency.objects.create(job=make_job(train, ravi), on=old, condition="succeeded")
    assert prune(NOW)["jobs"] == 0


@pytest.mark.parametrize(
    ("kind", "days"), [("events", 90), ("estimates", 30), ("idempotency_keys", 1)]
)
def test_small_rows_go_when_their_time_is_over(
    train: Queue, ravi: User, kind: str, days: int
) -> None:
    for age in (days - 0.1, days + 0.1):
        Event.objects.create(at=ago(age), kind="x")
        Estimate.objects.create(job=make_job(train, ravi), p50=NOW, made_at=ago(age))
        IdempotencyKey.objects.create(
            owner="o", key=str(age), request_hash="h", status=200, body={}, created_at=ago(age)
        )
    assert prune(NOW)[kind] >= 1
    model: type[Model] = {
        "events": Event,
        "estimates": Estimate,
        "idempotency_keys": IdempotencyKey,
    }[kind]
    column = {"events": "at", "estimates": "made_at", "idempotency_keys": "created_at"}[kind]
    assert model._default_manager.filter(**{f"{column}__gte": ago(days)}).exists()
    assert not model._default_manager.filter(**{f"{column}__lt": ago(days)}).exists()


def test_deletion_goes_in_batches_and_stops_when_its_time_is_over(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_BATCH", 3)
    Event.objects.bulk_create(Event(at=ago(100), kind="x") for _ in range(10))
    left = iter([True, True, False])
    assert prune(NOW, has_time=lambda: next(left, False))["events"] == 6
    assert Event.objects.count() == 4


def test_the_task_prunes(db: None) -> None:
    Event.objects.create(at=ago(1000), kind="x")
    assert prune_old_rows()["events"] == 1
