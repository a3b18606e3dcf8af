"""Drift between rows and Kubernetes is found within a minute, shown, and healed by rule; what is not ours stays."""

from __future__ import annotations

from typing import Any

import pytest

from queues.models import Placement
from scheduler.models import Drift, ForeignPod, Seat
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow
NAMESPACE = "/api/v1/namespaces/muster-research"


@pytest.fixture
def live(world: World) -> World:
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def open_drift(world: World, kind: str) -> Drift:
    """The open drift of that kind, within a minute of the clock."""
    for _ in range(2):
        world.forward(21)
        world.until(lambda: True, 1)
    return world.until(lambda: Drift.objects.filter(kind=kind, healed_at=None).first(), plan=False)


def healed(world: World, kind: str) -> Drift:
    world.forward(61)
    return world.until(
        lambda: Drift.objects.filter(kind=kind, healed_at__isnull=False).first(), plan=False
    )


def pod_like(world: World, name: str, labels: dict[str, str]) -> None:
    """A running pod with labels of ours that Muster did not make."""
    world.make_foreign_pod("gpu-00003", 2, name, "muster-research")
    world.api(
        "PATCH",
        f"{NAMESPACE}/pods/{name}",
        {"metadata": {"labels": {f"muster.dev/{k}": v for k, v in labels.items()}}},
        "application/merge-patch+json",
    )


def test_pod_of_an_unknown_job_is_shown_and_left_alone(live: World) -> None:
    job = live.submit(run_seconds=0.2)
    live.until_phase(job, "finished")
    pod_like(live, "lost", {"tenant": "research", "job": "job_gone", "attempt": "4"})
    found = open_drift(live, "unclaimed")
    assert (found.pod, found.node, found.job, found.attempt) == ("lost", "gpu-00003", "job_gone", 4)
    assert ForeignPod.objects.filter(name="lost", unclaimed=True).exists()
    live.forward(600)
    live.until(lambda: True, 1)
    assert [p.name for p in live.pods() if p.name == "lost"] == ["lost"]
    live.delete_pod(next(p for p in live.pods() if p.name == "lost"))
    live.until(lambda: not ForeignPod.objects.filter(name="lost").exists(), plan=False)
    assert healed(live, "unclaimed").healed_how == "itself"


def test_changed_quota_limit_and_policy_are_told_and_applied_again(live: World) -> None:
    job = live.submit(run_seconds=0.2)
    live.until_phase(job, "finished")
    policies = "/apis/networking.k8s.io/v1/namespaces/muster-research/networkpolicies/muster"
    for path, change in (
        (f"{NAMESPACE}/limitranges/muster", {"spec": {"limits": []}}),
        (policies, {"spec": {"ingress": [{}]}}),
    ):
        live.api("PATCH", path, change, "application/merge-patch+json")
    live.forward(61)
    found = live.until(lambda: _drift_seen(live), plan=False)
    assert "network policy ingress" in found
    assert "limit range" in found
    live.until(lambda: live.api("GET", policies)["spec"]["ingress"] != [{}], plan=False)
    live.forward(61)
    live.until(lambda: not Drift.objects.filter(kind="namespace", healed_at=None), plan=False)


def _drift_seen(world: World) -> str:
    """What the last reading of the namespace differed in, before or after a second check wrote it down."""
    process: Any = world.running.process if world.running else None
    differences = process._ticker.books.drift.namespaces.get("muster-research", ())
    return "; ".join(differences)


def test_seats_that_do_not_match_placements_are_shown(live: World) -> None:
    job = live.submit(gpus=4, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    placement = Placement.objects.get(attempt__job=job)
    Seat.objects.filter(placement=placement, index=0).delete()
    found = open_drift(live, "seats")
    assert found.detail == "3 seats for 4 GPUs"
    assert found.node == placement.node
    job.refresh_from_db()
    assert job.phase == "running", "a wrong count ends no job"


def test_node_that_others_overfill_is_shown(live: World) -> None:
    job = live.submit(gpus=8, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    node = Placement.objects.get(attempt__job=job).node
    # Bound around everybody; its kubelet would refuse it, so its word is held back.
    live.sim.call(lambda sim: sim.fleet.kubelets[node].power_off())
    live.make_foreign_pod(node, 4, "pusher")
    found = open_drift(live, "overfull")
    assert (found.node, found.detail) == (node, "pods ask for 12 GPUs of 8")
    job.refresh_from_db()
    assert job.phase == "running"


def test_quiet_cluster_has_no_drift(live: World) -> None:
    jobs = [live.submit(replicas=2, run_seconds=0.3) for _ in range(3)]
    for job in jobs:
        live.until_phase(job, "finished", 30)
    for _ in range(4):
        live.forward(21)
        live.until(lambda: True, 1)
    assert list(Drift.objects.values_list("kind", "detail")) == []
