"""A database restored from an hour ago: gangs that run are adopted or shown as unclaimed, and none is killed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.db import connection

from controlplane.common.models import Event
from queues.models import Attempt, Job, Placement
from scheduler.models import ClusterState, Drift, ForeignPod, Lease, Seat
from tests.reconcile.world import World, nodes_in, seats_of

pytestmark = pytest.mark.slow
FORGETTABLE = (Event, Seat, Placement, Attempt, Job, Lease)


@pytest.fixture
def live(world: World) -> World:
    """The simulated cluster's clock is the wall's; an hour is made by moving ours."""
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def copied() -> list[str]:
    """All rows of jobs and what they hold, as a backup has them."""
    tables: Iterable[Any] = (Job, Attempt, Placement, Seat)
    parents = [*Job.objects.all()]
    roles = [role for job in parents for role in job.roles.all()]
    rows = [*parents, *roles, *(r for t in tables if t is not Job for r in t.objects.all())]
    return [serializers.serialize("json", [row]) for row in rows]


def restored(world: World, backup: list[str]) -> None:
    """Put the backup in place of what is there, and begin again an hour later, planner and all."""
    world.stop()
    world.loop = None
    for table in (Seat, Placement, Attempt, ForeignPod, Drift, Lease, Job):
        table.objects.all().delete()
    for text in backup:
        for found in serializers.deserialize("json", text):
            found.save()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for table in (Attempt, Placement, Seat):
                name = table._meta.db_table
                cursor.execute(
                    f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), "
                    f"(SELECT coalesce(max(id), 1) FROM {name}))"
                )
    world.clock.shift += timedelta(hours=1)
    ClusterState.objects.update(heard_at=world.clock() - timedelta(hours=1))


def uids(world: World) -> set[str]:
    return {pod.uid for pod in world.pods() if not pod.finished and not pod.terminating}


def test_gang_that_began_after_the_backup_is_adopted(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    backup = copied()
    live.until_phase(job, "running")
    before = uids(live)
    nodes = {pod.node for pod in live.pods()}
    restored(live, backup)
    job.refresh_from_db()
    assert (job.phase, job.attempts.count()) == ("pending", 0)
    live.start()
    live.until_phase(job, "running", plan=False)
    assert uids(live) == before, "the very same pods"
    assert set(Placement.objects.filter(attempt__job=job).values_list("node", flat=True)) == nodes
    assert (job.attempt_number, seats_of(job)) == (1, 16)
    live.until(lambda: not ForeignPod.objects.filter(unclaimed=True).exists())
    assert Event.objects.filter(kind="attempt.adopted", job=job.pk).count() == 1
    live.until_phase(job, "running")
    assert job.attempts.count() == 1
    live.delete_pod(live.pods()[0])
    live.until(lambda: job.attempts.filter(ended_by="node_failure").exists())


def test_gang_that_is_planned_again_before_it_was_seen_keeps_its_pods(live: World) -> None:
    """The worst order: the planner is quicker than the cluster process, and gives the same number."""
    job = live.submit(replicas=2, gpus=4, run_seconds="forever", sigterm_seconds=0.1)
    backup = copied()
    live.until_phase(job, "running")
    before = uids(live)
    nodes = {pod.node for pod in live.pods()}
    restored(live, backup)
    ForeignPod.objects.all().delete()
    ClusterState.objects.update(heard_at=live.clock(), watch="live")
    live.until_phase(job, "placed")
    live.start()
    live.until_phase(job, "running", plan=False)
    assert uids(live) == before
    assert set(Placement.objects.filter(attempt__job=job).values_list("node", flat=True)) == nodes
    assert Seat.objects.count() == 8


def test_gang_whose_job_is_in_no_row_is_unclaimed_and_runs_on(live: World) -> None:
    first = live.submit(run_seconds=0.2)
    live.until_phase(first, "finished")
    backup = copied()
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    before = uids(live)
    restored(live, backup)
    live.start()
    live.until(lambda: ForeignPod.objects.filter(unclaimed=True).count() == 2, plan=False)
    for _ in range(4):
        live.forward(31)
        live.until(lambda: True, 1)
    assert uids(live) == before
    drift = live.until(lambda: list(Drift.objects.filter(kind="unclaimed", healed_at=None)))
    assert {d.detail for d in drift} == {"no row of its job"}
    # Their GPUs count as used: nothing is placed on them.
    other = live.submit(replicas=3, gpus=8)
    for _ in range(5):
        live.plan()
    other.refresh_from_db()
    assert other.phase == "pending"


def test_gang_that_ended_since_the_backup_is_not_started_under_its_old_number(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1, max_restarts=3)
    live.until_phase(job, "running")
    backup = copied()
    live.delete_pod(live.pods()[0])
    live.until(lambda: job.attempts.filter(number=1, ended_at__isnull=False).exists())
    live.forward(11)
    live.until(lambda: job.attempts.filter(number=2, started_at__isnull=False).exists())
    second = uids(live)
    restored(live, backup)
    live.start()
    live.until(lambda: job.attempts.filter(number=1, ended_at__isnull=False).exists(), plan=False)
    live.until(lambda: job.attempts.filter(number=2, started_at__isnull=False).exists(), 30)
    assert uids(live) == second
