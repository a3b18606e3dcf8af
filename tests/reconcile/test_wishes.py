"""What parties want of nodes is enacted: cordons, our taint, labels, and the leaving of others' pods in a drain."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.common import log
from queues.models import Cluster
from scheduler.models import CordonSource, Drain, ForeignPod, Node, WantedLabel
from scheduler.services.cordons import lift_cordon, set_cordon
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow
SKIP = "nvidia.com/gpu-driver-upgrade.skip"


@pytest.fixture
def live(world: World) -> World:
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def node_of(world: World, name: str = "gpu-00001") -> dict[str, Any]:
    found: dict[str, Any] = world.api("GET", f"/api/v1/nodes/{name}")
    return found


def our_taints(world: World) -> list[str]:
    taints = node_of(world)["spec"].get("taints", [])
    return [t["value"] for t in taints if t["key"] == "muster.dev/out"]


def tell(world: World, kind: str, node: str = "gpu-00001") -> None:
    log.record(log.NewEvent(kind=kind, at=world.clock(), cluster="demo", node=node, actor="ines"))


def test_two_parties_cordon_a_node_and_each_lifts_its_own(live: World) -> None:
    node = Node.objects.get(name="gpu-00001")
    for source, taint in ((CordonSource.WINDOW, False), (CordonSource.HEALTH, True)):
        set_cordon(node, source=source, reason="x", by="y", now=live.clock(), taint=taint)
    live.until(lambda: our_taints(live) == ["health"], plan=False)
    live.until(lambda: node_of(live)["spec"].get("unschedulable"), plan=False)
    # The taint is our own mark: pages call the node faulty, not tainted by somebody.
    live.until(lambda: Node.objects.get(name="gpu-00001").taints, plan=False)
    codes = [cause["code"] for cause in Node.objects.get(name="gpu-00001").out_causes]
    assert codes == ["cordoned"]
    lift_cordon(Node.objects.get(name="gpu-00001"), source=CordonSource.HEALTH, now=live.clock())
    live.until(lambda: our_taints(live) == [], plan=False)
    assert node_of(live)["spec"]["unschedulable"]
    lift_cordon(Node.objects.get(name="gpu-00001"), source=CordonSource.WINDOW, now=live.clock())
    live.until(lambda: not node_of(live)["spec"].get("unschedulable"), plan=False)


def test_wanted_labels_come_and_go(live: World) -> None:
    node = Node.objects.get(name="gpu-00001")
    with log.writing():
        WantedLabel.objects.create(node=node, key=SKIP, value="true", by="w", since=live.clock())
        tell(live, "node.label_wanted")
    live.until(lambda: node_of(live)["metadata"]["labels"].get(SKIP) == "true", plan=False)
    with log.writing():
        WantedLabel.objects.filter(node=node).update(value=None)
        tell(live, "node.label_wanted")
    live.until(lambda: SKIP not in node_of(live)["metadata"]["labels"], plan=False)


def test_nodes_beyond_the_selector_are_left_alone(live: World) -> None:
    live.stop()
    Cluster.objects.update(node_selector={"pool": "muster"})
    live.start()
    live.until(lambda: not Node.objects.filter(managed=True).exists(), plan=False)
    node = Node.objects.get(name="gpu-00001")
    set_cordon(node, source=CordonSource.OPERATOR, reason="x", by="y", now=live.clock(), taint=True)
    live.api(
        "PATCH",
        "/api/v1/nodes/gpu-00001",
        {"metadata": {"labels": {"seen": "yes"}}},
        "application/merge-patch+json",
    )
    live.until(
        lambda: Node.objects.filter(name="gpu-00001", labels__seen="yes").exists(), plan=False
    )
    assert not node_of(live)["spec"].get("unschedulable")
    assert our_taints(live) == []


def owned(world: World, name: str, kind: str, labels: dict[str, str]) -> None:
    """A pod of others on gpu-00001, made by a controller of that kind."""
    world.make_foreign_pod("gpu-00001", 1, name)
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    made = world.api("POST", f"/apis/apps/v1/namespaces/default/{kind.lower()}s", body)
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    world.api(
        "PATCH",
        f"/api/v1/namespaces/default/pods/{name}",
        {"metadata": {"ownerReferences": [owner], "labels": labels}},
        "application/merge-patch+json",
    )


def test_a_drain_evicts_what_comes_back_elsewhere_and_waits_for_budgets(live: World) -> None:
    live.make_foreign_pod("gpu-00001", 1, "bare")
    owned(live, "agent", "DaemonSet", {"app": "agent"})
    owned(live, "service", "ReplicaSet", {"app": "service"})
    owned(live, "guarded", "ReplicaSet", {"app": "guarded"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    live.api("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    live.until(lambda: ForeignPod.objects.filter(node="gpu-00001").count() == 4, plan=False)
    # A budget guards what runs; a pod that is still pending may always be evicted.
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/guarded"
    live.until(lambda: live.api("GET", path)["status"].get("currentHealthy") == 1, plan=False)
    node = Node.objects.get(name="gpu-00001")
    with log.writing():
        Drain.objects.create(
            node=node, reason="disk", running_jobs="evict", by="ines", since=live.clock()
        )
        tell(live, "node.drain")
    live.until(lambda: not ForeignPod.objects.filter(name="service").exists(), plan=False)
    left = set(ForeignPod.objects.values_list("name", flat=True))
    assert left == {"bare", "agent", "guarded"}
    live.api("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/guarded")
    live.until(lambda: not ForeignPod.objects.filter(name="guarded").exists(), 30, plan=False)
    assert set(ForeignPod.objects.values_list("name", flat=True)) == {"bare", "agent"}
