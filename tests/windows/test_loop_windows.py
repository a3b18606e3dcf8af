"""Windows and the loop together: nobody is placed into a window that is known, except where a stop is planned."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from queues.models import Attempt, Job
from queues.services.attempts import mark_running
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import Node, Occurrence
from scheduler.selectors.windows import windows_of
from scheduler.services.windows import cancel_window, sync_occurrences
from tests.scheduler import rows
from tests.scheduler.people import add_people
from tests.scheduler.rows import World
from tests.windows.builders import HOUR, add_window, leaf, run_gang
from tests.windows.test_occurrences import Clock, operator

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
SAVING: dict[str, Any] = {"checkpoint_interval_seconds": 600, "checkpoint_grace_seconds": 60}


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def run(world: World, now: datetime) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while loop.tick(now) is Tick.CYCLED:
        pass
    loop.stop()


def leaf_of(job: Job) -> set[str]:
    nodes = Node.objects.filter(name__in=rows.nodes_of(job))
    return {node.domains["leaf"] for node in nodes}


def test_only_jobs_that_end_before_or_save_are_placed_ahead_of_a_window(world: World) -> None:
    now = timezone.now()
    row = add_window(world, starts_at=now + 2 * HOUR, ends_at=now + 4 * HOUR)
    sync_occurrences(row, now)
    long = rows.add_jobs(world, 5, max_runtime_seconds=3 * 3600)
    run(world, now)
    assert [leaf_of(job) for job in long[:4]] == [{"leaf-00"}] * 4
    assert leaf_of(long[4]) == set()
    long[4].refresh_from_db()
    assert long[4].reason_code == "waiting_for_maintenance"
    short = rows.add_job(world, max_runtime_seconds=3600)
    saving = rows.add_job(world, max_runtime_seconds=9 * 3600, **SAVING)
    run(world, now)
    assert leaf_of(short) == {"leaf-01"}
    assert leaf_of(saving) == {"leaf-01"}


def test_who_has_left_a_draining_leaf_does_not_come_straight_back(world: World) -> None:
    now = timezone.now()
    row = add_window(
        world,
        starts_at=now + timedelta(minutes=8),
        ends_at=now + 2 * HOUR,
        crossing="checkpointable",
    )
    sync_occurrences(row, now)
    run_gang(world, [4], now=now - HOUR, max_runtime_seconds=None, **SAVING)
    run(world, now)
    assert Occurrence.objects.get().state == "draining"
    (window,) = windows_of(world.cluster, now)
    assert window.crossing == "never"
    blocked = rows.add_jobs(world, 5, max_runtime_seconds=9 * 3600, **SAVING)
    run(world, now)
    assert not any("leaf-01" in leaf_of(job) for job in blocked)
    assert sum(bool(rows.nodes_of(job)) for job in blocked) == 4


def test_a_cancelled_window_lets_jobs_in_at_once(world: World) -> None:
    now = timezone.now()
    row = add_window(
        world, starts_at=now + 2 * HOUR, ends_at=now + 4 * HOUR, nodes={"flavor": "h100"}
    )
    sync_occurrences(row, now)
    job = rows.add_job(world, max_runtime_seconds=3 * 3600)
    run(world, now)
    assert rows.nodes_of(job) == []
    cancel_window(operator(), row.pk, None, "", now)
    run(world, now)
    assert len(rows.nodes_of(job)) == 1
    assert Attempt.objects.count() == 1


@pytest.mark.slow
def test_a_month_long_job_works_on_through_weekly_windows_on_every_leaf(world: World) -> None:
    now = timezone.now().replace(microsecond=0)
    days = {"leaf-00": 2, "leaf-01": 5}
    for name, number in days.items():
        start = now + timedelta(days=number)
        row = add_window(
            world, starts_at=start, ends_at=start + 2 * HOUR, nodes=leaf(name), rrule="FREQ=WEEKLY"
        )
        sync_occurrences(row, now)
    month = 30 * 86_400
    job = rows.add_job(world, replicas=4, max_runtime_seconds=month, grace_seconds=30, **SAVING)
    clock = Clock(world, now=now, step=timedelta(minutes=1))
    starts = sorted(
        now + timedelta(days=number + 7 * week) for number in days.values() for week in range(3)
    )
    where = [go_on(world, job, now)]
    for start in starts:
        clock.now = start - timedelta(minutes=25)
        while clock.now < start:
            clock.now += clock.step
            clock.beat()
        assert Occurrence.objects.get(starts_at=start).state == "open"
        clock.now += clock.step
        clock.beat()
        where.append(go_on(world, job, clock.now))
        clock.now = start + 2 * HOUR + clock.step
        clock.beat()
        clock.beat()
        assert Occurrence.objects.get(starts_at=start).state == "over"
    assert where[1:] == ["leaf-01", "leaf-00"] * 3
    moved = Attempt.objects.filter(job=job, ended_at__isnull=False)
    lost = [each.lost_gpu_seconds for each in moved]
    print(f"{len(moved)} moves in three weeks, {sum(lost)} GPU s lost of {32 * 21 * 86_400}")
    assert {each.ended_by for each in moved} == {"maintenance"}
    assert max(lost) <= 32 * 180


def go_on(world: World, job: Job, now: datetime) -> str:
    """Let the loop place the job where it can, and its pods run; the leaf."""
    run(world, now)
    attempt = Attempt.objects.get(job=job, ended_at__isnull=True)
    mark_running(attempt, now=now)
    (name,) = leaf_of(job)
    return name
