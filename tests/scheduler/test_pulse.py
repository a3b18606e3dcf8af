"""The loop as a thread, and as a real Celery worker: without a broker, through a lost database, until SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from controlplane.celery import app
from queues.models import Attempt, Job, Placement
from scheduler.loop.cycle import ClusterLoop
from scheduler.loop.pulse import Pulse
from scheduler.models import ClusterState, Lease, Seat
from scheduler.tasks import nudge_clusters
from tests.scheduler import rows
from tests.scheduler.rows import World
from tests.services.session import free_port

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world() -> World:
    return rows.make_world(16)


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> float:
    """Seconds until `holds` first held; fails after the deadline."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, "it never came to hold"
        time.sleep(0.005)
    return time.monotonic() - began


@contextmanager
def beating(holder: str = "worker") -> Iterator[Pulse]:
    pulse = Pulse(holder=holder)
    pulse.start()
    try:
        yield pulse
    finally:
        pulse.stop()


def _placed(job: Job) -> bool:
    return Placement.objects.filter(attempt__job=job).exists()


def _leads() -> bool:
    return ClusterState.objects.filter(considered_at__isnull=False).exists()


def test_submitted_gang_is_placed_when_the_log_says_so_not_at_the_next_beat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.loop.pulse.BEAT_SECONDS", 600.0)
    with beating():
        wait_until(_leads, seconds=60)
        for _ in range(3):
            job = rows.add_job(world, gpus_per_replica=8, replicas=2)
            wait_until(partial(_placed, job), seconds=60)


def test_nudge_makes_it_beat(world: World) -> None:
    with beating() as pulse:
        wait_until(_leads)
        nudge_clusters.apply()
        wait_until(lambda: not pulse._follower._interrupted.is_set())


def test_lease_is_given_back_at_the_end(world: World) -> None:
    with beating():
        wait_until(_leads)
        assert Lease.objects.get().holder == "worker"
    assert Lease.objects.get().expires_at is None


def test_two_workers_racing_never_take_a_seat_twice(world: World) -> None:
    jobs = []
    with beating("one"), beating("two"):
        wait_until(_leads)
        for number in range(6):
            jobs += rows.add_jobs(world, 5, replicas=1 + number % 3, gpus_per_replica=4)
            if number % 2:
                # The leader is thought dead while it is at work.
                Lease.objects.update(expires_at=rows.NOW)
        wait_until(lambda: Attempt.objects.count() + _waiting_with_reason() == len(jobs))
    seats = list(Seat.objects.values_list("node_id", "index"))
    assert len(seats) == len(set(seats))
    assert Attempt.objects.count() == Job.objects.filter(phase="placed").count() > 0
    for attempt in Attempt.objects.all():
        role = attempt.job.roles.get()
        assert attempt.placements.count() == role.replicas
        held = Seat.objects.filter(placement__attempt=attempt).count()
        assert held == role.replicas * role.gpus_per_replica


def _waiting_with_reason() -> int:
    return Job.objects.filter(phase="pending").exclude(class_key="").count()


def test_beat_goes_on_after_the_database_was_away(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server that could go away")
    with beating():
        wait_until(_leads)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        job = rows.add_job(world)
        wait_until(lambda: _placed(job))


@contextmanager
def celery_worker(*, broker: str) -> Iterator[subprocess.Popen[bytes]]:
    """The scheduler's worker as `make run` starts it, on the test's database."""
    found = connection.settings_dict
    url = f"sqlite:///{found['NAME']}"
    if connection.vendor == "postgresql":
        url = f"postgresql://{found['USER']}@{found['HOST']}:{found['PORT']}/{found['NAME']}"
    command = ("-A", "controlplane", "worker", "-Q", "scheduler", "-P", "solo", "-n", "test@%h")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", *command, "--without-mingle", "--without-gossip"],
        cwd=ROOT,
        env=os.environ
        | {
            "DATABASE_URL": url,
            "CELERY_BROKER_URL": broker,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        },
    )
    try:
        yield worker
    finally:
        if worker.poll() is None:
            worker.kill()
        worker.wait(10)


@pytest.mark.slow
@pytest.mark.processes
def test_jobs_start_while_the_broker_is_away_and_sigterm_ends_cleanly(world: World) -> None:
    with celery_worker(broker=f"redis://127.0.0.1:{free_port()}/0") as worker:
        wait_until(_leads, seconds=60)
        job = rows.add_job(world)
        assert wait_until(lambda: _placed(job)) < 3
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(15) == 0
    assert Lease.objects.get().expires_at is None


@pytest.mark.slow
@pytest.mark.processes
def test_worker_killed_at_work_is_replaced_and_every_job_is_placed_once(world: World) -> None:
    jobs = rows.add_jobs(world, 40, gpus_per_replica=2)
    (Path(os.environ["VAR"]) / "broker").mkdir(parents=True, exist_ok=True)
    with celery_worker(broker=settings.CELERY_BROKER_URL) as worker:
        wait_until(Attempt.objects.exists, seconds=60)
        worker.kill()
        worker.wait(10)
    Lease.objects.update(expires_at=rows.NOW)
    with beating():
        wait_until(lambda: Attempt.objects.count() == len(jobs))
    assert Seat.objects.count() == 80
    assert Job.objects.filter(phase="placed").count() == 40


def test_pacemaker_is_part_of_the_worker() -> None:
    assert "scheduler.pacemaker:Pacemaker" in app.steps["worker"]


@pytest.mark.parametrize(
    ("seconds", "started", "more", "rest"),
    [
        (0.0, False, False, 0.0),  # nothing was planned: listen on
        (0.02, False, False, 0.15),  # of a burst one reading is enough
        (0.02, True, False, 0.0),  # what has started is seen to at once
        (0.4, True, False, 0.4),  # planning takes half a core at most
        (5.0, False, False, 1.0),
        (5.0, False, True, 0.0),  # starts were left
    ],
)
def test_rest_after_a_cycle(
    monkeypatch: pytest.MonkeyPatch, seconds: float, started: bool, more: bool, rest: float
) -> None:
    loop = ClusterLoop(1, "demo", "worker")
    monkeypatch.setattr(ClusterLoop, "has_started", started)
    monkeypatch.setattr(ClusterLoop, "wants_more", more)
    assert Pulse(_loops={1: loop})._rest(seconds) == rest
