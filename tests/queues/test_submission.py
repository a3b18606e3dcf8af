"""Submitting one job or five hundred: what is stored, what collides, what is refused, what it costs."""

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

from controlplane.common.errors import (
    ApplicationError,
    ConflictError,
    InvalidError,
    UnavailableError,
)
from controlplane.common.models import Event
from queues import ids
from queues.models import Job, JobDependency, JobRole
from queues.services import planner, submission
from queues.services.jobs import BatchResult, cancel_job, submit_batch, submit_job
from queues.services.planner import Never
from queues.services.validation import validate_job
from queues.specs import JobSpec
from tenants.models import Tenant, User
from tests.factories import NOW, actor_of, make_job, make_member
from tests.queues.payloads import FULL, GOOD, ROLES

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def submit(user: User, payload: dict[str, Any], **options: Any) -> Job:
    """Through validation, as every door does."""
    actor = actor_of(user)
    return submit_job(actor, validate_job(actor, payload, NOW), NOW, **options)


def batch(user: User, payloads: list[Any], **options: Any) -> list[BatchResult]:
    """Through validation too."""
    return submit_batch(actor_of(user), payloads, NOW, **options)


def problems(results: list[BatchResult]) -> list[str]:
    """Code of each refusal, empty for a stored job."""
    return [result.problem.code if result.problem else "" for result in results]


def test_a_submitted_job_is_stored_with_its_role_and_event(shop: Tenant, ravi: User) -> None:
    job = Job.objects.get(pk=submit(ravi, FULL).pk)
    assert (job.phase, job.version, job.attempt_number) == ("pending", 1, 0)
    assert (job.user, job.tenant, job.queue.name) == (ravi, shop, "train")
    assert job.job8 == "j" + job.id[-8:].lower()
    assert job.reason_code == "not_yet_considered"
    assert (job.checkpoint_interval_seconds, job.checkpoint_notice) == (1800, "signal")
    assert job.volumes == [{"claim": "data", "mount_path": "/data", "read_only": True}]
    role = job.roles.get()
    assert (role.topology_level, role.topology_mode, role.tensor_parallel) == (
        "leaf",
        "required",
        8,
    )
    event = Event.objects.get(job=job.id)
    assert (event.kind, event.tenant, event.cluster) == ("job.submitted", "research", "demo")


def test_roles_are_stored_in_order(shop: Tenant, ravi: User) -> None:
    job = submit(ravi, ROLES)
    assert [role.name for role in job.roles.order_by("position")] == ["trainer", "reader"]
    assert job.decides == "trainer"


def test_an_external_id_is_unique_in_its_tenant_only(shop: Tenant, ravi: User) -> None:
    first = submit(ravi, GOOD | {"external_id": "ci-1"})
    with pytest.raises(ConflictError) as caught:
        submit(ravi, GOOD | {"external_id": "ci-1"})
    assert caught.value.extra == {"job": first.pk}
    mei = make_member(Tenant.objects.get(slug="vision"), "mei")
    submit(mei, GOOD | {"external_id": "ci-1", "tenant": "vision"})


@pytest.mark.django_db(transaction=True)
def test_of_many_who_take_one_external_id_at_once_one_succeeds(shop: Tenant, ravi: User) -> None:
    threads, answers = 6, []
    barrier = threading.Barrier(threads)

    def take() -> None:
        try:
            barrier.wait(timeout=10)
            answers.append(submit(ravi, GOOD | {"external_id": "race"}).pk)
        except ApplicationError as error:
            answers.append(error.code)
        finally:
            connection.close()

    running = [threading.Thread(target=take) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=30)
    assert sorted(answers)[:-1] == ["external_id_taken"] * (threads - 1)
    assert Job.objects.filter(external_id="race").count() == 1


def test_a_job8_in_use_is_drawn_again(
    shop: Tenant, ravi: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Job.objects.get(external_id="stored")
    clash = f"job_{'0' * 18}{taken.pk[-8:]}"
    draws = [iter([clash]), ids.new_job_ids(NOW, 1)]

    def draw(_now: datetime, _count: int) -> Iterator[str]:
        return draws.pop(0)

    monkeypatch.setattr(submission, "new_job_ids", draw)
    assert submit(ravi, GOOD).pk != clash
    assert draws == []


def test_ids_of_a_batch_rise_in_order(shop: Tenant, ravi: User) -> None:
    stored = [result.job.pk for result in batch(ravi, [GOOD] * 50) if result.job]
    assert stored == sorted(stored)
    assert len({Job.objects.get(pk=pk).job8 for pk in stored}) == 50


def test_a_batch_answers_for_each_job_by_itself(shop: Tenant, ravi: User) -> None:
    results = batch(
        ravi,
        [
            GOOD,
            GOOD | {"replicas": 0},
            7,
            GOOD | {"external_id": "stored"},
            GOOD | {"external_id": "twice"},
            GOOD | {"external_id": "twice"},
            GOOD | {"tenant": "vision"},
        ],
    )
    assert problems(results) == [
        "",
        "invalid",
        "invalid",
        "external_id_taken",
        "",
        "external_id_taken",
        "invalid",
    ]
    assert Job.objects.exclude(external_id="stored").count() == 2


def test_a_batch_keeps_dependencies_between_its_members(shop: Tenant, ravi: User) -> None:
    results = batch(
        ravi,
        [
            GOOD | {"external_id": "b", "depends_on": [{"external_id": "a"}]},
            GOOD | {"external_id": "a"},
            GOOD | {"depends_on": [{"external_id": "stored", "on": "finished"}]},
        ],
    )
    assert problems(results) == ["", "", ""]
    found = JobDependency.objects.values_list("job__external_id", "on__external_id", "condition")
    assert set(found) == {("b", "a", "succeeded"), (None, "stored", "finished")}


def test_more_than_five_hundred_jobs_are_refused_whole(shop: Tenant, ravi: User) -> None:
    with pytest.raises(InvalidError, match="500"):
        batch(ravi, [GOOD] * 501)


def test_five_hundred_jobs_cost_few_queries(
    shop: Tenant, ravi: User, django_assert_max_num_queries: Any
) -> None:
    payloads = [GOOD | {"external_id": f"x{n}"} for n in range(500)]
    # SQLite takes fewer variables a statement, so it needs more inserts.
    with django_assert_max_num_queries(30 if connection.vendor == "postgresql" else 60):
        results = batch(ravi, payloads)
    assert problems(results) == [""] * 500
    assert JobRole.objects.filter(job__external_id__startswith="x").count() == 500
    assert Event.objects.filter(kind="job.submitted").count() == 500


def test_a_job_whose_dependency_is_lost_already_ends_at_once_with_those_that_need_it(
    shop: Tenant, ravi: User
) -> None:
    failed = make_job(shop.queues.get(name="train"), ravi, external_id="failed")
    cancel_job(actor_of(ravi), failed, "no", NOW)
    results = batch(
        ravi,
        [
            GOOD | {"external_id": "second", "depends_on": [{"external_id": "failed"}]},
            GOOD | {"depends_on": [{"external_id": "second"}]},
            GOOD | {"depends_on": [{"external_id": "failed", "on": "finished"}]},
        ],
    )
    jobs = [result.job for result in results if result.job]
    assert [(job.phase, job.outcome) for job in jobs] == [
        ("finished", "cancelled"),
        ("finished", "cancelled"),
        ("pending", ""),
    ]
    assert failed.pk in jobs[0].message


def test_a_dependency_that_has_succeeded_holds_nothing_up(shop: Tenant, ravi: User) -> None:
    done = Job.objects.get(external_id="stored")
    Job.objects.filter(pk=done.pk).update(phase="finished", outcome="succeeded", finished_at=NOW)
    assert submit(ravi, GOOD | {"depends_on": [{"job": done.pk}]}).phase == "pending"


@pytest.mark.django_db(transaction=True)
def test_a_dependency_that_is_cancelled_while_its_dependents_come_in_strands_none(
    shop: Tenant, ravi: User
) -> None:
    """Whichever commits first: the dependent ends as cancelled, never waits for ever."""
    for _round in range(6):
        first = make_job(shop.queues.get(name="train"), ravi)
        dependent = _need_while_it_is_cancelled(first, ravi)
        assert Job.objects.get(pk=dependent).outcome == "cancelled"


def _need_while_it_is_cancelled(first: Job, user: User) -> str:
    barrier = threading.Barrier(2)
    made: list[str] = []

    def need() -> None:
        barrier.wait(timeout=10)
        made.append(submit(user, GOOD | {"depends_on": [{"job": first.pk}]}).pk)
        connection.close()

    def cancel() -> None:
        barrier.wait(timeout=10)
        cancel_job(actor_of(user), first.pk, "", NOW)
        connection.close()

    running = [threading.Thread(target=need), threading.Thread(target=cancel)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=30)
    return made[0]


class PlannerThatKnows(planner.NoPlanner):
    """Says that jobs of more than four replicas can never run."""

    def never(self, specs: Sequence[JobSpec], user: str, now: datetime) -> list[Never | None]:
        """By the number of replicas alone."""
        numbers = {"most_replicas": 4, "needed_replicas": 5, "level": "leaf", "flavor": "h100"}
        return [
            Never("exceeds_cluster_for_ever", numbers) if spec.roles[0].replicas > 4 else None
            for spec in specs
        ]

    def refuses_longer_run(
        self, job: Job, max_runtime_seconds: int | None, now: datetime
    ) -> str | None:
        """Nothing."""
        return None


@pytest.fixture
def knowing() -> Iterator[None]:
    """A planner that knows what can never run."""
    before = planner.register(PlannerThatKnows())
    yield
    planner.register(before)


def test_on_infeasible_reject_leaves_no_row(shop: Tenant, ravi: User, knowing: None) -> None:
    before = Job.objects.count()
    with pytest.raises(InvalidError) as caught:
        submit(ravi, GOOD | {"replicas": 5}, on_infeasible="reject")
    assert caught.value.code == "infeasible"
    assert "4 of 5 replicas" in caught.value.detail
    assert caught.value.extra["reason"]["code"] == "exceeds_cluster_for_ever"
    assert Job.objects.count() == before
    assert submit(ravi, GOOD | {"replicas": 4}, on_infeasible="reject").phase == "pending"


def test_on_infeasible_finish_ends_the_job_at_once(shop: Tenant, ravi: User, knowing: None) -> None:
    job = submit(ravi, GOOD | {"replicas": 5}, on_infeasible="finish")
    assert (job.phase, job.outcome) == ("finished", "infeasible")
    assert "leaf" in job.message


def test_on_infeasible_applies_to_each_member_of_a_batch(
    shop: Tenant, ravi: User, knowing: None
) -> None:
    payloads = [GOOD | {"replicas": count} for count in (4, 5, 6)]
    assert problems(batch(ravi, payloads, on_infeasible="reject")) == [
        "",
        "infeasible",
        "infeasible",
    ]
    finished = batch(ravi, payloads, on_infeasible="finish")
    assert [result.job.outcome for result in finished if result.job] == [
        "",
        "infeasible",
        "infeasible",
    ]


def test_without_a_planner_only_those_who_ask_are_refused(shop: Tenant, ravi: User) -> None:
    before = planner.register(planner.NoPlanner())
    try:
        assert submit(ravi, GOOD).phase == "pending"
        with pytest.raises(UnavailableError):
            submit(ravi, GOOD, on_infeasible="reject")
    finally:
        planner.register(before)
