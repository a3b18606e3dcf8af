"""What an API server, a network, nodes and a database do to the process; after each, all is right.

Right: every job ended as it should in one attempt unless a node was at fault, no GPU was held
twice, nothing unfinished is left, every seat is given back.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from queues.models import Job, Placement
from scheduler.kube.watching import Pace
from scheduler.models import ClusterState, ForeignPod, Seat
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow


@pytest.fixture
def live(world: World) -> World:
    """The world with its process running and all nodes seen."""
    world.pace = Pace(stall_seconds=1.0)
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def submit_some(world: World, count: int = 6) -> list[Job]:
    return [world.submit(replicas=2, run_seconds=0.5, log_lines=2) for _ in range(count)]


def most_gpus_at_once(world: World) -> int:
    """The most that unfinished pods ask of one node now."""
    used: Counter[str] = Counter()
    for pod in world.pods():
        if pod.node and not pod.finished:
            used[pod.node] += pod.requests.devices.get("nvidia.com/gpu", 0)
    return max(used.values(), default=0)


def see_through(world: World, jobs: list[Job], seconds: float = 60.0) -> None:
    """Until all have finished; a node is never asked for more than it has."""

    def all_finished() -> bool:
        assert most_gpus_at_once(world) <= 8
        ids = [job.pk for job in jobs]
        return not Job.objects.filter(pk__in=ids).exclude(phase="finished").exists()

    world.until(all_finished, seconds)
    for job in jobs:
        job.refresh_from_db()


def assert_nothing_is_left(world: World) -> None:
    world.until(lambda: not [p for p in world.pods() if not p.finished])
    world.until(lambda: Seat.objects.count() == 0)
    world.until(lambda: not Placement.objects.filter(released_at=None).exists())
    world.until(lambda: ForeignPod.objects.filter(namespace__startswith="muster-").count() == 0)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("api_error", {"share": 0.1, "status": 500}),
        ("api_error", {"share": 0.1, "status": 429, "retry_after_seconds": 0}),
        ("api_reset", {"share": 0.1}),
        # The call takes effect, its answer is lost: the worst, for creates, binds and deletes.
        ("api_reset", {"share": 0.2, "after": True}),
        ("api_error", {"share": 0.2, "status": 504, "after": True}),
        ("api_slow", {"share": 0.3, "wait_seconds": 0.5}),
    ],
)
def test_api_that_fails_now_and_then_changes_no_outcome(
    live: World, kind: str, parameters: dict[str, Any]
) -> None:
    live.fault(kind, **parameters)
    jobs = submit_some(live)
    see_through(live, jobs)
    live.end_faults()
    assert {job.outcome for job in jobs} == {"succeeded"}
    assert {job.attempts.count() for job in jobs} == {1}
    assert_nothing_is_left(live)


@pytest.mark.parametrize("kind", ["watch_drop", "watch_expire", "watch_silent"])
def test_watches_that_die_or_lie_are_made_again(live: World, kind: str) -> None:
    jobs = submit_some(live, 4)
    for _ in range(3):
        live.fault(kind, seconds=1.5)
        time.sleep(0.3)
        live.plan()
    see_through(live, jobs)
    assert {job.outcome for job in jobs} == {"succeeded"}
    assert_nothing_is_left(live)


def test_api_that_is_away_is_shown_and_nothing_is_concluded(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    live.fault("api_reset")
    live.fault("watch_drop")
    live.until(lambda: ClusterState.objects.filter(watch="unreachable").exists(), plan=False)
    live.forward(400)
    time.sleep(1.0)
    job.refresh_from_db()
    assert job.phase == "running", "unknown is not lost"
    live.end_faults()
    live.until(lambda: ClusterState.objects.filter(watch="live").exists(), plan=False)
    time.sleep(0.5)
    job.refresh_from_db()
    assert job.phase == "running"
    assert job.attempts.count() == 1


def test_database_connections_that_are_cut_are_made_again(live: World) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("an embedded database has no connections to cut")
    jobs = submit_some(live, 4)
    for _ in range(5):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        time.sleep(0.3)
        live.plan()
    see_through(live, jobs)
    assert {job.outcome for job in jobs} == {"succeeded"}
    assert_nothing_is_left(live)


def test_node_deleted_under_a_gang_moves_it_elsewhere(live: World) -> None:
    job = live.submit(replicas=2, run_seconds=4, sigterm_seconds=0.1)
    live.until_phase(job, "running")
    node = Placement.objects.get(attempt__job=job, replica=0).node
    live.api("DELETE", f"/api/v1/nodes/{node}")
    live.until(lambda: job.attempts.filter(ended_by="node_failure").exists())
    live.forward(11)
    see_through(live, [job])
    assert job.outcome == "succeeded"
    used = Placement.objects.filter(attempt__job=job, attempt__number=2)
    assert node not in used.values_list("node", flat=True)
    live.until(lambda: Seat.objects.count() == 0)


def test_unfinished_pod_of_an_ended_attempt_is_deleted(live: World) -> None:
    """A create whose request arrived after we had given the attempt up."""
    job = live.submit(run_seconds=0.3)
    see_through(live, [job])
    pod = live.pods()[0]
    live.forward(3601)
    live.until(lambda: live.pods() == [])
    late = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "labels": dict(pod.labels),
            "annotations": {"sim.muster.dev/run-seconds": "forever"},
        },
        "spec": {
            "schedulerName": "muster",
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    live.api("POST", "/api/v1/namespaces/muster-research/pods", late)
    assert live.pods()
    live.until(lambda: live.pods() == [])
    job.refresh_from_db()
    assert job.outcome == "succeeded"


def test_deleted_namespace_is_made_again(live: World) -> None:
    first = live.submit(run_seconds=0.3)
    see_through(live, [first])
    live.api("DELETE", "/api/v1/namespaces/muster-research")
    live.until(lambda: live.pods() == [])
    second = live.submit(run_seconds=0.3)
    see_through(live, [second], 90)
    assert second.outcome == "succeeded", second.message
