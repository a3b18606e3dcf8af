"""A GPU dies under a running gang, on the real loop, cluster process and health process over a simulated cluster."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Placement
from scheduler.health.rules import SPECS
from scheduler.models import Gpu, HealthEvent, HealthPolicy, HealthRule, Node, NodeWatch
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.health.running import RunningHealth
from tests.reconcile.world import World, make_world

pytestmark = [pytest.mark.slow, pytest.mark.processes]
NODES = 10


@pytest.fixture
def world(transactional_db: None, tmp_path: Path) -> Iterator[World]:
    with ThreadedSimCluster(uniform_profile(NODES, nodes_per_leaf=NODES)) as sim:
        made = make_world(sim, tmp_path)
        made.start()
        HealthPolicy.objects.create(
            cluster=made.cluster, exporter_url="apiserver", scrape_seconds=2
        )
        health = None
        try:
            made.until(
                lambda: Node.objects.filter(flavor__isnull=False, ready=True).count() == NODES
            )
            health = RunningHealth(made.cluster, sim.kubeconfig, made.clock).start()
            made.until(lambda: Gpu.objects.count() == 8 * NODES)
            yield made
        finally:
            if health is not None:
                health.stop()
            made.stop()


def let_rules_act() -> None:
    for key in SPECS:
        HealthRule.objects.update_or_create(key=key, defaults={"mode": "act"})


def test_xid_79_under_an_eight_node_gang(world: World) -> None:
    let_rules_act()
    job = world.submit(replicas=8, run_seconds=3600, max_restarts=0)
    world.until_phase(job, "running", 60)
    first = Attempt.objects.get(job=job)
    bad = first.placements.get(rank=3).node
    world.fault("gpu_xid", node=bad, gpu=2, code=79)

    second = world.until(lambda: Attempt.objects.filter(job=job, number=2).first(), 60)
    first.refresh_from_db()
    assert first.ended_by == EndedBy.NODE_FAILURE
    job.refresh_from_db()
    assert job.restarts_used == 0
    # Within five seconds of the first sign that could be seen, and the event names it.
    action = HealthEvent.objects.get(kind="action")
    assert action.node == bad
    assert action.xid == 79
    assert action.signal in ("exporter", "condition", "kernel")
    assert action.signal_age_seconds is not None
    assert action.signal_age_seconds < 5
    assert [each["how"] for each in action.jobs] == ["on_gpu"]
    # The next attempt is whole, elsewhere, and soon after the last pod of the first has ended.
    assert second.placements.count() == 8
    assert bad not in set(second.placements.values_list("node", flat=True))
    last = max(Placement.objects.filter(attempt=first).values_list("ended_at", flat=True))
    assert second.placed_at - last < timedelta(seconds=5 + 1)  # Kubernetes' times are whole seconds
    node = Node.objects.get(name=bad)
    assert node.health_closed
    world.until(lambda: Node.objects.get(name=bad).unschedulable)
    # The story: what was seen, what was done, whom it met.
    kinds = set(Event.objects.filter(node=bad).values_list("kind", flat=True))
    assert {"node.health", "node.cordoned"} <= kinds
    world.until_phase(job, "running", 60)
    assert bad not in set(
        Placement.objects.filter(released_at__isnull=True).values_list("node", flat=True)
    )


def test_xid_31_counts_against_the_job_and_touches_no_node(world: World) -> None:
    let_rules_act()
    job = world.submit(replicas=2, run_seconds=3600, max_restarts=0)
    world.until_phase(job, "running", 60)
    attempt = Attempt.objects.get(job=job)
    bad = attempt.placements.get(rank=0).node
    world.fault("gpu_xid", node=bad, gpu=2, code=31)
    world.until_phase(job, "finished", 60)
    attempt.refresh_from_db()
    assert (attempt.ended_by, job.outcome) == (EndedBy.FAILED, "failed")
    world.until(lambda: HealthEvent.objects.filter(node=bad, xid=31).exists())
    assert not Node.objects.get(name=bad).health_closed
    assert not HealthEvent.objects.filter(kind="action").exists()


def test_a_silent_exporter_is_unknown_and_nothing_is_taken_out(world: World) -> None:
    let_rules_act()
    name = Node.objects.order_by("name").first().name
    world.fault("exporter_down", node=name)
    world.until(lambda: NodeWatch.objects.get(node__name=name).unknown_since is not None, 60)
    assert Gpu.objects.filter(node__name=name, unknown_since__isnull=False).count() == 8
    assert not Node.objects.get(name=name).health_closed
