"""Burn-ins wanted by rows run as one pod on their node, whatever its taints, and their outcome is written down."""

from __future__ import annotations

from typing import Any

import pytest

from queues.models import Preset
from scheduler.models import BurnIn, CordonSource, HealthPolicy, Node, NodeWatch
from scheduler.reconcile import process
from scheduler.services.burn_in import cancel_burn_ins, request_burn_in
from scheduler.services.cordons import set_cordon
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow
OWN = "/api/v1/namespaces/muster-system"


@pytest.fixture
def live(world: World) -> World:
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def wanted(world: World, **annotations: str) -> BurnIn:
    """A burn-in of gpu-00001, which is out by a health rule."""
    node = Node.objects.get(name="gpu-00001")
    set_cordon(node, source=CordonSource.HEALTH, reason="x", by="y", now=world.clock(), taint=True)
    notes = {f"sim.muster.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
    preset = Preset.objects.create(name="burn-in", spec={"annotations": notes})
    policy, _ = HealthPolicy.objects.update_or_create(
        cluster=world.cluster,
        defaults={"burn_in_image": "burn:1", "burn_in_command": ["burn"], "burn_in_preset": preset},
    )
    made = request_burn_in(policy, node, "ines", world.clock())
    assert made is not None
    return made


def pods_of(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.api("GET", f"{OWN}/pods")["items"]
    return found


def phase_of(row: BurnIn) -> str:
    row.refresh_from_db()
    return str(row.phase)


def test_burn_in_takes_all_gpus_of_its_node_and_passes(live: World) -> None:
    row = wanted(live, run_seconds="1")
    (pod,) = live.until(lambda: pods_of(live), plan=False)
    assert pod["spec"]["nodeName"] == "gpu-00001"
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "8"
    assert pod["spec"]["activeDeadlineSeconds"] == row.limit_seconds
    live.until(lambda: phase_of(row) == "passed", plan=False)
    assert row.exit_code == 0
    assert row.pod_uid == pod["metadata"]["uid"]
    live.until(lambda: pods_of(live) == [], plan=False)


def test_burn_in_that_fails_says_how(live: World) -> None:
    row = wanted(live, run_seconds="0.2", exit_code="3")
    live.until(lambda: phase_of(row) == "failed", plan=False)
    assert row.exit_code == 3
    live.until(lambda: pods_of(live) == [], plan=False)


def test_cancelled_burn_in_ends_its_pod(live: World) -> None:
    row = wanted(live, run_seconds="forever", sigterm_seconds="0.1")
    live.until(lambda: phase_of(row) == "running", 40, plan=False)
    cancel_burn_ins(row.node, "given up", live.clock())
    live.until(lambda: pods_of(live) == [], plan=False)


def test_node_events_that_tell_of_xids_are_passed_on(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str, str]] = []

    def note(cluster: str, node: str, *, reason: str, message: str, **_when: Any) -> bool:
        told.append((cluster, node, message))
        return True

    monkeypatch.setattr("scheduler.reconcile.tick.note_kernel_event", note)
    for name, message in (("a", "NVRM: Xid (PCI:0000:3b:00): 79, fell off the bus"), ("b", "x")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "gpu-00002", "apiVersion": "v1"},
            "reason": "KernelLog",
            "message": message,
            "type": "Warning",
            "lastTimestamp": live.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        live.api("POST", "/api/v1/namespaces/default/events", event)
    live.until(lambda: told, plan=False)
    assert told == [("demo", "gpu-00002", "NVRM: Xid (PCI:0000:3b:00): 79, fell off the bus")]
    assert process.XID.search("GPU lost") is None


def test_machine_that_comes_later_joins_where_health_is_looked_after(live: World) -> None:
    assert Node.objects.get(name="gpu-00001").health == "healthy"
    NodeWatch.objects.create(node=Node.objects.get(name="gpu-00001"))
    body = live.api("GET", "/api/v1/nodes/gpu-00003")
    live.api("DELETE", "/api/v1/nodes/gpu-00003")
    live.until(lambda: Node.objects.get(name="gpu-00003").gone_at, plan=False)
    body["metadata"] = {"name": "gpu-00009", "labels": body["metadata"]["labels"]}
    live.api("POST", "/api/v1/nodes", body)
    assert live.until(lambda: Node.objects.filter(name="gpu-00009").first(), plan=False)
    assert Node.objects.get(name="gpu-00009").health == "joining"
