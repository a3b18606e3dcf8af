"""Whose fault a start is that fails: the job's where all pods fail alike, a node's where its siblings start."""

from __future__ import annotations

import pytest

from queues.models import Placement, Quota
from scheduler.models import ForeignPod, HealthEvent, Node, Seat
from tenants.models import Tenant
from tests import factories
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow


@pytest.fixture
def live(world: World) -> World:
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def test_node_that_alone_cannot_pull_is_suspected_and_the_gang_starts_elsewhere(
    live: World,
) -> None:
    live.fault("pull_fails", node="gpu-00000")
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    stuck = Placement.objects.filter(attempt__job=job, waiting_reason__contains="Image")
    started = Placement.objects.filter(attempt__job=job, started_at__isnull=False)
    live.until(lambda: stuck.exists() and started.exists())
    live.forward(61)
    live.until(lambda: job.attempts.filter(ended_by="placement_miss").exists())
    node = Node.objects.get(name="gpu-00000")
    assert node.health == "suspect"
    evidence = HealthEvent.objects.filter(node="gpu-00000").values_list("evidence", flat=True)
    assert any("does not start on gpu-00000" in text for text in evidence)
    assert not Node.objects.exclude(name="gpu-00000").exclude(health="healthy").exists()
    live.forward(11)
    live.until_phase(job, "running", 30)
    second = Placement.objects.filter(attempt__job=job, attempt__number=2)
    assert "gpu-00000" not in second.values_list("node", flat=True)


def test_wrong_image_blames_no_node(live: World) -> None:
    job = live.submit(replicas=2, fault="image-pull")
    stuck = Placement.objects.filter(attempt__job=job, waiting_reason__contains="Image")
    live.until(lambda: stuck.count() == 2)
    live.forward(61)
    live.until_phase(job, "finished", 20)
    assert (job.outcome, job.attempts.count()) == ("failed", 1)
    assert not Node.objects.exclude(health="healthy").exists()


def test_pod_of_others_between_plan_and_bind_moves_the_gang(live: World) -> None:
    live.stop()
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "placed")
    taken = Placement.objects.filter(attempt__job=job).values_list("node", flat=True)[0]
    live.make_foreign_pod(taken, 4)
    live.start()
    live.until(lambda: job.attempts.filter(ended_by="placement_miss").exists(), plan=False)
    job.refresh_from_db()
    assert (job.restarts_used, job.outcome) == (0, "")
    live.forward(11)
    live.until_phase(job, "running", 30)
    nodes = set(
        Placement.objects.filter(attempt__job=job, attempt__number=2).values_list("node", flat=True)
    )
    assert len(nodes) == 2
    assert taken not in nodes
    # Four by the others, none by us: what is left on the node can be given away.
    live.until(lambda: ForeignPod.objects.filter(node=taken, gpus=4).count() == 1)
    assert not Seat.objects.filter(node__name=taken).exists()
    small = live.submit(gpus=4, node_selector={"kubernetes.io/hostname": taken})
    live.until_phase(small, "running", 30)


@pytest.fixture
def borrowing(world: World) -> World:
    """research owns one node and may borrow another from vision."""
    lender = factories.make_tenant("vision", cohort="ml")
    quota = Quota.objects.get(tenant__slug="research")
    Quota.objects.create(tenant=lender, flavor=quota.flavor, nominal=24)
    Tenant.objects.filter(slug="research").update(cohort=lender.cohort)
    Quota.objects.filter(pk=quota.pk).update(nominal=8, borrowing_limit=8)
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def test_borrowing_gang_restarts_while_its_old_pods_are_still_ending(borrowing: World) -> None:
    live = borrowing
    job = live.submit(
        replicas=2,
        run_seconds="forever",
        on_sigterm="ignore",
        grace_seconds=8,
    )
    live.until_phase(job, "running")
    first = {pod.uid for pod in live.pods()}
    live.delete_pod(live.pods()[0])
    live.until(lambda: job.attempts.filter(stop_cause="node_failure").exists())
    live.until(lambda: job.attempts.filter(ended_at__isnull=False).exists(), 30)
    live.forward(11)
    live.until_phase(job, "running", 30)
    now = {pod.uid for pod in live.pods() if not pod.finished and not pod.terminating}
    assert len(now - first) == 2
    assert not job.attempts.filter(refused=True).exists()
