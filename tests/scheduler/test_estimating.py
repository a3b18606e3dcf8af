"""Estimates come a slice at a time: no start waits for them, and what they say is what one plan would say."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from queues.models import Attempt, Estimate, Job
from queues.services.attempts import mark_running
from scheduler.core.inputs.snapshot import Options
from scheduler.core.memo import Memo
from scheduler.core.planner import estimating, plan
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.snapshot.warm import WarmSnapshot
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]
LATER = NOW + timedelta(seconds=30)


@pytest.fixture
def world() -> World:
    """Eight nodes, all taken for an hour."""
    made = rows.make_world(8, nodes_per_leaf=4)
    rows.add_job(made, replicas=8, max_runtime_seconds=3600)
    settle(ClusterLoop(made.cluster.pk, made.cluster.name, "first"))
    mark_running(Attempt.objects.get(), now=NOW)
    return made


def settle(loop: ClusterLoop) -> None:
    while loop.tick(NOW) is Tick.CYCLED:
        pass
    loop.stop()


def hurried(world: World) -> tuple[ClusterLoop, Callable[[], None]]:
    """A loop whose clock runs so fast that every slice has time for one step; and what lets it have time."""
    seconds = [0.0]
    pace = [10.0]

    def clock() -> float:
        seconds[0] += pace[0]
        return seconds[0]

    def calm() -> None:
        pace[0] = 0.0

    return ClusterLoop(world.cluster.pk, world.cluster.name, "worker", clock=clock), calm


def test_round_goes_on_slice_by_slice_and_is_written_at_its_end(world: World) -> None:
    jobs = rows.add_jobs(world, 6, replicas=8, max_runtime_seconds=600)
    loop, calm = hurried(world)
    ticks = 0
    while not Estimate.objects.exists():
        loop.tick(LATER + timedelta(seconds=ticks))
        ticks += 1
        assert ticks < 20, "the round never ends"
    assert ticks > len(jobs)
    calm()
    told = dict(Estimate.objects.values_list("job_id", "p90"))
    assert told.keys() == {job.pk for job in jobs}
    assert sorted(told, key=lambda job: str(told[job])) == [job.pk for job in jobs]


def test_gang_that_comes_while_a_round_is_open_starts_in_the_next_tick(world: World) -> None:
    rows.add_nodes(world, 1, nodes_per_leaf=4, leaves_per_spine=2, first=8)
    rows.add_jobs(world, 6, replicas=8, max_runtime_seconds=600)
    loop, _calm = hurried(world)
    loop.tick(LATER)
    loop.tick(LATER + timedelta(seconds=1))
    assert not Estimate.objects.exists()
    small = rows.add_job(world, replicas=1, max_runtime_seconds=300)
    assert loop.tick(LATER + timedelta(seconds=2)) is Tick.CYCLED
    small.refresh_from_db()
    assert small.phase == "placed"
    for second in range(3, 20):
        loop.tick(LATER + timedelta(seconds=second))
    assert Estimate.objects.count() == 6
    assert not Estimate.objects.filter(job=small).exists()


def test_job_that_started_since_the_round_began_gets_no_estimate(world: World) -> None:
    jobs = rows.add_jobs(world, 3, replicas=8, max_runtime_seconds=600)
    loop, _calm = hurried(world)
    loop.tick(LATER)
    Job.objects.filter(pk=jobs[0].pk).update(
        phase="finished", outcome="cancelled", finished_at=LATER
    )
    for second in range(1, 12):
        loop.tick(LATER + timedelta(seconds=second))
    assert set(Estimate.objects.values_list("job_id", flat=True)) == {jobs[1].pk, jobs[2].pk}


def test_slices_say_what_one_plan_says(world: World) -> None:
    for number in range(12):
        rows.add_job(
            world,
            "vision" if number % 2 else "research",
            replicas=1 + number % 8,
            max_runtime_seconds=600 * (1 + number % 5),
        )
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    snapshot = warm.snapshot(LATER.timestamp())
    whole = {e.job: e.starts_at for e in plan(snapshot, Options(estimates=12)).estimates}
    lazily = {e.job: e.starts_at for e in estimating(snapshot, Options(estimates=12), Memo())}
    assert whole == lazily
    assert len(whole) == 12


def test_quiet_slice_ends_when_the_log_says_something_new(world: World) -> None:
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    assert not warm.is_behind()
    rows.add_job(world, replicas=8)
    assert warm.is_behind()
    warm.refresh()
    assert not warm.is_behind()
