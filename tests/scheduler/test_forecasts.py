"""Estimates are ranges that learn from what earlier ones came to, rewritten only when they move, and judged openly."""

from datetime import datetime, timedelta

import pytest
from rest_framework.test import APIClient

from queues.lifecycle import EndedBy
from queues.models import Attempt, Estimate, Forecast, Job
from queues.services.attempts import end_attempt, mark_running
from queues.services.retention import prune
from scheduler.apply.release import release_placements
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.selectors.forecasts import accuracy_of, calibration_of
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


@pytest.fixture
def world() -> World:
    return rows.make_world(2, nodes_per_leaf=2)


def settle(loop: ClusterLoop, now: datetime) -> None:
    while loop.tick(now) is Tick.CYCLED:
        pass


def finish(job: Job, now: datetime) -> None:
    attempt = Attempt.objects.get(job=job, ended_at__isnull=True)
    end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=now)
    release_placements(attempt.placements.all(), now)


def learnt(world: World, ratio: float, count: int = 40) -> None:
    """So many earlier jobs whose bound was an hour and that waited `ratio` of it."""
    for number, job in enumerate(rows.add_jobs(world, count, phase="held")):
        made_at = NOW - timedelta(days=1, seconds=number)
        Forecast.objects.create(
            cluster=world.cluster,
            job=job,
            attempt=1,
            made_at=made_at,
            planned_at=made_at + timedelta(hours=1),
            p50=made_at + timedelta(minutes=30),
            p90=made_at + timedelta(hours=1),
            started_at=made_at + timedelta(hours=ratio),
        )


def waiting(world: World, loop: ClusterLoop) -> Job:
    """A job that waits for two that run for an hour at most."""
    running = rows.add_jobs(world, 2, max_runtime_seconds=3600, grace_seconds=0)
    settle(loop, NOW)
    for attempt in Attempt.objects.filter(job__in=running):
        mark_running(attempt, now=NOW)
    job = rows.add_job(world, replicas=2, max_runtime_seconds=3600)
    settle(loop, NOW + timedelta(seconds=1))
    loop.tick(NOW + timedelta(seconds=11))  # estimates are made every ten seconds at most
    return job


def test_estimate_is_a_range_from_what_came_true(world: World) -> None:
    learnt(world, 0.25)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    job = waiting(world, loop)
    estimate = Estimate.objects.get(job=job)
    assert estimate.p90 is not None
    assert (estimate.p50 - NOW).total_seconds() == pytest.approx(900, abs=15)
    assert (estimate.p90 - NOW).total_seconds() == pytest.approx(900, abs=15)
    forecast = Forecast.objects.get(job=job)
    assert (forecast.planned_at - NOW).total_seconds() == pytest.approx(3600, abs=15)
    assert (forecast.attempt, forecast.started_at) == (1, None)


def test_without_experience_the_bound_is_the_latest(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    job = waiting(world, loop)
    estimate = Estimate.objects.get(job=job)
    assert estimate.p90 is not None
    assert (estimate.p50 - NOW).total_seconds() == pytest.approx(1800, abs=15)
    assert (estimate.p90 - NOW).total_seconds() == pytest.approx(3600, abs=15)


def test_only_the_first_estimate_of_a_wait_is_kept_and_the_start_closes_it(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    job = waiting(world, loop)
    first = Forecast.objects.get(job=job)
    later = NOW + timedelta(minutes=20)
    settle(loop, later)
    loop.tick(later + timedelta(seconds=11))
    assert Forecast.objects.get(job=job).p50 == first.p50
    for other in Job.objects.filter(phase="running"):
        finish(other, later)
    settle(loop, later + timedelta(seconds=12))
    forecast = Forecast.objects.get(job=job)
    assert forecast.started_at == later + timedelta(seconds=12)
    assert not Estimate.objects.filter(job=job).exists()
    found = accuracy_of(world.cluster)
    assert (found.starts, found.before_p50, found.before_p90) == (1, 1.0, 1.0)


def test_estimate_that_hardly_moves_is_not_written_again(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    job = waiting(world, loop)
    made_at = Estimate.objects.get(job=job).made_at
    for second in range(12, 40, 3):
        loop.tick(NOW + timedelta(seconds=second))
    assert Estimate.objects.get(job=job).made_at == made_at


def test_accuracy_is_the_share_that_came_true_and_the_api_tells_it(world: World) -> None:
    learnt(world, 0.4, count=30)
    learnt(world, 0.8, count=20)
    learnt(world, 2.0, count=10)
    found = accuracy_of(world.cluster)
    assert found.starts == 60
    assert found.before_p50 == pytest.approx(0.5)
    assert found.before_p90 == pytest.approx(50 / 60)
    client = APIClient()
    client.force_login(world.users["research"])
    answer = client.get("/api/v1/clusters/demo/estimates/").json()
    assert answer["starts"] == 60
    assert answer["before_p90"] == pytest.approx(0.833, abs=0.001)


def test_only_what_was_known_counts(world: World) -> None:
    """A job that has not started teaches nothing yet."""
    learnt(world, 0.25)
    before = calibration_of(world.cluster.pk).range_for(0.0, 3600.0)
    job = rows.add_job(world, phase="held")
    Forecast.objects.create(
        cluster=world.cluster, job=job, attempt=1, made_at=NOW, planned_at=NOW, p50=NOW, p90=NOW
    )
    assert calibration_of(world.cluster.pk).range_for(0.0, 3600.0) == before


def test_forecasts_are_forgotten_after_thirty_days(world: World) -> None:
    learnt(world, 0.5, count=3)
    assert prune(NOW + timedelta(days=28))["forecasts"] == 0
    assert prune(NOW + timedelta(days=30))["forecasts"] == 3
