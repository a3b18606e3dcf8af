"""Where a waiting job stands: the numbers that lists show agree with the order in which jobs are counted."""

import random
from typing import Any

import pytest

from queues.lifecycle import Phase
from queues.models import Job
from queues.selectors.jobs import counts_by_phase, jobs_ahead, jobs_visible_to, queue_positions
from tenants.models import PlatformRole, Tenant, User
from tests.factories import (
    actor_of,
    in_phase,
    later,
    make_job,
    make_member,
    make_queue,
    make_tenant,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def test_positions_count_priority_then_age_then_id_in_each_queue(
    research: Tenant, ravi: User
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    queues = [make_queue(research, name) for name in ("one", "two")]
    jobs = [
        make_job(
            dice.choice(queues),
            ravi,
            priority=dice.choice([100, 500, 900]),
            submitted_at=later(dice.randrange(5)),
        )
        for _ in range(60)
    ]
    for job in dice.sample(jobs, 15):
        in_phase(job, dice.choice([Phase.HELD, Phase.FINISHED]))
    positions = queue_positions(jobs)
    pending = [job for job in jobs if job.phase == Phase.PENDING]
    assert set(positions) == {job.pk for job in pending}
    for queue in queues:
        mine = [job for job in pending if job.queue_id == queue.pk]
        mine.sort(key=lambda job: (-job.priority, job.submitted_at, job.pk))
        assert [positions[job.pk] for job in mine] == list(range(1, len(mine) + 1))
        for index, job in enumerate(mine):
            assert list(jobs_ahead(job)) == mine[:index]


def test_positions_of_a_page_cost_one_query(
    research: Tenant, ravi: User, django_assert_num_queries: Any
) -> None:
    queue = make_queue(research)
    jobs = [make_job(queue, ravi) for _ in range(20)]
    with django_assert_num_queries(1):
        queue_positions(jobs[5:15])
    with django_assert_num_queries(0):
        assert queue_positions([]) == {}


def test_counts_leave_out_what_is_finished_or_hidden(research: Tenant, ravi: User) -> None:
    queue = make_queue(research)
    for phase in Phase:
        in_phase(make_job(queue, ravi), phase)
    vision = make_tenant("vision")
    make_job(make_queue(vision), make_member(vision, "mei"))
    counts = counts_by_phase(jobs_visible_to(actor_of(ravi)))
    assert (counts["waiting"], counts["active"], counts["pending"]) == (2, 4, 1)
    assert "finished" not in counts


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        (PlatformRole.NONE, 0),
        (PlatformRole.ADMIN, 2),
        (PlatformRole.OPERATOR, 2),
        (PlatformRole.AUDITOR, 2),
    ],
)
def test_platform_roles_see_the_jobs_of_all_tenants(
    research: Tenant, ravi: User, role: PlatformRole, seen: int
) -> None:
    vision = make_tenant("vision")
    make_job(make_queue(research), ravi)
    make_job(make_queue(vision), make_member(vision, "mei"))
    assert jobs_visible_to(actor_of(make_user("somebody", role))).count() == seen
    assert jobs_visible_to(actor_of(ravi)).count() == 1
    assert Job.objects.count() == 2
