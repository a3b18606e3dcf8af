"""A GPU dies under a running gang, on the real loop, cluster process and health process over a simulated cluster."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Placement, Preset
from scheduler.health.rules import SPECS
from scheduler.models import (
    Alert,
    BurnIn,
    Gpu,
    HealthEvent,
    HealthPolicy,
    HealthRule,
    Node,
    NodeWatch,
)
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.cluster import Options
from scheduler.simcluster.profiles.model import uniform_profile
from tests.deploy.roles import (
    install_roles,
    kubeconfig_of,
    let_health_read_through_the_server,
    refused_to_us,
)
from tests.health.running import RunningHealth
from tests.reconcile.world import World, make_world

pytestmark = [pytest.mark.slow, pytest.mark.processes]
NODES = 10
OUT_TAINT = "muster.dev/out"


@pytest.fixture
def world(transactional_db: None, tmp_path: Path) -> Iterator[World]:
    """Both processes are the shipped accounts, and the API server refuses all that their roles do not name."""
    profile = uniform_profile(NODES, nodes_per_leaf=NODES)
    with ThreadedSimCluster(profile, options=Options(rbac=True)) as sim:
        sim.call(install_roles)
        sim.call(let_health_read_through_the_server)
        made = make_world(sim, tmp_path)
        made.kubeconfig = kubeconfig_of(sim.cluster, "muster-cluster", tmp_path)
        made.start()
        HealthPolicy.objects.create(
            cluster=made.cluster,
            exporter_url="apiserver",
            scrape_seconds=2,
            burn_in_image="registry.example/burn-in:1",
            burn_in_command=["dcgmi", "diag"],
            burn_in_preset=Preset.objects.create(
                name="burn-in", spec={"annotations": {"sim.muster.dev/run-seconds": "1"}}
            ),
        )
        health = None
        try:
            made.until(
                lambda: Node.objects.filter(flavor__isnull=False, ready=True).count() == NODES
            )
            reader = kubeconfig_of(sim.cluster, "muster-health", tmp_path)
            health = RunningHealth(made.cluster, reader, made.clock).start()
            made.until(lambda: Gpu.objects.count() == 8 * NODES)
            yield made
        finally:
            if health is not None:
                health.stop()
            made.stop()
        assert not sim.call(refused_to_us)


def let_rules_act() -> None:
    for key in SPECS:
        HealthRule.objects.update_or_create(key=key, defaults={"mode": "act"})


def taints_of(node: str) -> set[str]:
    return {taint["key"] for taint in Node.objects.get(name=node).taints}


def test_xid_79_under_an_eight_node_gang(world: World) -> None:
    let_rules_act()
    job = world.submit(
        replicas=8, run_seconds=3600, max_restarts=0, checkpoint_interval_seconds=600
    )
    world.until_phase(job, "running", 60)
    first = Attempt.objects.get(job=job)
    bad = first.placements.get(rank=3).node
    world.fault("gpu_xid", node=bad, gpu=2, code=79)

    world.until(lambda: HealthEvent.objects.filter(kind="action").exists(), 60)
    world.until(lambda: OUT_TAINT in taints_of(bad), 5)
    assert Node.objects.get(name=bad).health_closed
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
    # The survivors are stopped by the same word: nothing is waited for, least of all a checkpoint.
    assert first.stop_requested_at is not None
    assert abs(first.stop_requested_at - action.at) < timedelta(seconds=1)
    # The next attempt is whole, elsewhere, and soon after the last pod of the first has ended.
    assert second.placements.count() == 8
    assert bad not in set(second.placements.values_list("node", flat=True))
    ends = Placement.objects.filter(attempt=first).values_list("ended_at", flat=True)
    last = max(moment for moment in ends if moment is not None)
    assert second.placed_at - last < timedelta(seconds=5 + 1)  # Kubernetes' times are whole seconds
    world.until(lambda: Node.objects.get(name=bad).unschedulable)
    # The story: what was seen, what was done, whom it met.
    kinds = set(Event.objects.filter(node=bad).values_list("kind", flat=True))
    assert {"node.health", "node.cordoned"} <= kinds
    world.until_phase(job, "running", 60)
    # It comes back by itself once it is well: repaired, burnt in, cordon and taint lifted; no job touched it meanwhile.
    world.until(lambda: Node.objects.get(name=bad).health == "repairing")
    world.fault("gpu_reset", node=bad)
    world.until(lambda: Node.objects.get(name=bad).health == "burn_in", 60)
    assert OUT_TAINT in taints_of(bad)
    assert bad not in set(Placement.objects.exclude(attempt=first).values_list("node", flat=True))
    world.until(lambda: Node.objects.get(name=bad).health == "healthy", 60)
    burn_in = BurnIn.objects.get()
    assert (burn_in.phase, burn_in.exit_code, burn_in.gpus) == ("passed", 0, 8)
    world.until(lambda: OUT_TAINT not in taints_of(bad))
    world.until(lambda: not Node.objects.get(name=bad).unschedulable)
    story = list(
        HealthEvent.objects.filter(node=bad, gpu="").order_by("pk").values_list("kind", "after")
    )
    assert [state for _kind, state in story if state] == [
        "draining", "repairing", "burn_in", "healthy",
    ]  # fmt: skip


def test_xid_79_on_thirty_percent_drains_the_budget_and_tells_of_the_rest(world: World) -> None:
    let_rules_act()
    jobs = [world.submit(run_seconds=3600, max_restarts=0) for _ in range(NODES)]
    for job in jobs:
        world.until_phase(job, "running", 60)
    bad = sorted(Node.objects.values_list("name", flat=True))[:NODES:4]
    assert len(bad) >= 0.3 * NODES
    for node in bad:
        # Nobody's pod dies of it: what stops, stops because the rule says so.
        world.fault("node_condition", node=node, type="SysLogsXIDError", status="True",
                    reason="SysLogsXIDErrorIsNotHealthy", message="[79] fell off GPU:5")  # fmt: skip
    world.until(lambda: Node.objects.filter(health_closed=True).count() == len(bad), 60)
    world.until(lambda: Alert.objects.filter(kind="budget_exhausted").count() == len(bad) - 2)
    assert HealthEvent.objects.filter(kind="action").count() == 2
    drained = set(HealthEvent.objects.filter(kind="action").values_list("node", flat=True))
    world.until(lambda: all(OUT_TAINT in taints_of(node) for node in drained))
    kept = set(bad) - drained
    for node in kept:
        assert OUT_TAINT not in taints_of(node)
        row = Node.objects.get(name=node)
        assert (row.health, row.health_closed, row.cordon_wanted) == ("suspect", True, None)
        running = Placement.objects.get(node=node, ended_at=None).attempt
        assert (running.stop_cause, running.ended_at) == ("", None)
    # Those that had to leave find no room on nodes that are bad.
    evicted = Attempt.objects.filter(placements__node__in=drained, number=1)
    world.until(lambda: not evicted.filter(ended_at=None).exists(), 60)
    assert set(evicted.values_list("ended_by", flat=True)) == {EndedBy.NODE_FAILURE}
    later = Placement.objects.filter(attempt__number=2).values_list("node", flat=True)
    assert not set(later) & set(bad)


def test_an_elastic_gang_goes_on_with_fewer_replicas_where_no_node_is_spare(world: World) -> None:
    let_rules_act()
    job = world.submit(replicas=NODES, run_seconds=3600, max_restarts=0)
    job.roles.update(min_replicas=NODES - 2)
    world.until_phase(job, "running", 60)
    first = Attempt.objects.get(job=job)
    bad = first.placements.get(rank=5).node
    world.fault("gpu_xid", node=bad, gpu=2, code=79)
    second = world.until(lambda: Attempt.objects.filter(job=job, number=2).first(), 60)
    nodes = list(second.placements.values_list("node", flat=True))
    assert len(nodes) == NODES - 1
    assert bad not in nodes
    # Whoever survived keeps its node.
    assert set(nodes) == set(first.placements.values_list("node", flat=True)) - {bad}
    world.until_phase(job, "running", 60)
    first.refresh_from_db()
    job.refresh_from_db()
    assert (first.ended_by, job.restarts_used) == (EndedBy.NODE_FAILURE, 0)


def test_xid_79_under_a_job_of_one_pod_without_restarts_is_the_hardwares_fault(
    world: World,
) -> None:
    """The pod is gone before the exporter was looked at: its attempt waits for the verdict."""
    let_rules_act()
    job = world.submit(replicas=1, run_seconds=3600, max_restarts=0)
    world.until_phase(job, "running", 60)
    first = Attempt.objects.get(job=job)
    bad = first.placements.get().node
    world.fault("gpu_xid", node=bad, gpu=0, code=79)
    world.until(lambda: Attempt.objects.filter(job=job, number=2).exists(), 60)
    first.refresh_from_db()
    job.refresh_from_db()
    assert (first.ended_by, job.restarts_used) == (EndedBy.NODE_FAILURE, 0)


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
    name = Node.objects.order_by("name")[0].name
    world.fault("exporter_down", node=name)
    world.until(lambda: NodeWatch.objects.get(node__name=name).unknown_since is not None, 60)
    assert Gpu.objects.filter(node__name=name, unknown_since__isnull=False).count() == 8
    assert not Node.objects.get(name=name).health_closed
