"""The cluster process against a Kubernetes API over HTTP: gangs start, run, end, and leave nothing."""

from __future__ import annotations

import pytest

from queues.models import Placement
from scheduler.models import ClusterState, ForeignPod, Node
from tests.reconcile.world import World, nodes_in, seats_of

pytestmark = [pytest.mark.slow, pytest.mark.sqlite]


def test_nodes_are_observed_with_flavor_and_domains(world: World) -> None:
    world.start()
    world.until(lambda: nodes_in() == 4)
    node = Node.objects.get(name="gpu-00000")
    assert node.flavor is not None
    assert (node.gpus_capacity, node.gpus_allocatable) == (8, 8)
    assert node.ready
    assert node.out_causes == []
    assert set(node.domains) == {"spine", "leaf"}
    state = world.until(lambda: ClusterState.objects.filter(watch="live").first())
    assert state.heard_at is not None


def test_gang_runs_and_succeeds_and_its_logs_stay(world: World) -> None:
    world.start()
    world.until(lambda: nodes_in() == 4)
    job = world.submit(replicas=2, run_seconds=1, log_lines=5)
    world.until_phase(job, "running")
    assert seats_of(job) == 16
    pods = world.pods()
    assert len({pod.node for pod in pods}) == 2
    world.until_phase(job, "finished")
    assert (job.outcome, job.exit_code) == ("succeeded", 0)
    attempt = world.attempt(job)
    assert attempt.ended_by == "succeeded"
    assert seats_of(job) == 0
    world.until(lambda: Placement.objects.filter(attempt=attempt, log_bytes__gt=0).count() == 2)
    assert ForeignPod.objects.count() == 0
