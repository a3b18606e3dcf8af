"""A node's row says what the node offers, where it is, and why it is out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.kube.parse import parse_node
from scheduler.kube.seen import NodeSeen, TaintSeen
from scheduler.reconcile.node_rows import (
    FlavorRule,
    Policy,
    columns_of,
    flavor_of,
    gpus_of,
    out_causes,
)
from tests.reconcile.lives import pod

SAMPLES = Path(__file__).parent.parent / "fixtures" / "kube" / "nodes"
PRODUCT = "nvidia.com/gpu.product"
H100 = FlavorRule(1, "nvidia.com/gpu", PRODUCT, "NVIDIA-H100-80GB-HBM3")
MIG = FlavorRule(2, "nvidia.com/mig-1g.5gb", PRODUCT, "NVIDIA-A100-SXM4-40GB")
POLICY = Policy(
    "schedule",
    levels={
        "spine": "network.topology.nvidia.com/spine",
        "leaf": "network.topology.nvidia.com/leaf",
    },
    flavors=(H100, MIG),
)


def sample(name: str) -> NodeSeen:
    raw: dict[str, Any] = json.loads((SAMPLES / f"node_{name}.json").read_text())
    return parse_node(raw)


def node(name: str) -> NodeSeen:
    return replace(sample("h100_8gpu_leaf_spine"), name=name, version="1")


def codes(seen: NodeSeen, flavor: FlavorRule | None = H100) -> list[str]:
    return [cause["code"] for cause in out_causes(seen, flavor)]


def test_healthy_node_is_in() -> None:
    columns = columns_of(sample("h100_8gpu_leaf_spine"), POLICY)
    assert columns["flavor_id"] == 1
    assert (columns["gpus_capacity"], columns["gpus_allocatable"]) == (8, 8)
    assert columns["domains"] == {"spine": "spine-01", "leaf": "leaf-03"}
    assert columns["out_causes"] == [], "its taint is the mark that our pods tolerate"
    assert columns["managed"]
    assert json.dumps(columns["conditions"])


def test_unhealthy_gpu_is_taken_off_and_the_node_stays_in() -> None:
    columns = columns_of(sample("h100_one_unhealthy_gpu"), POLICY)
    assert (columns["gpus_capacity"], columns["gpus_allocatable"]) == (8, 7)


def test_cordoned_node_is_out_for_that_alone() -> None:
    assert codes(sample("h100_cordoned")) == ["cordoned"]


def test_gpus_that_kubernetes_cannot_see_are_told() -> None:
    invisible = sample("gpu_no_device_plugin")
    assert codes(invisible, None) == ["no_device_plugin"]
    labelled = replace(node("a"), allocatable_devices={}, capacity_devices={})
    assert codes(labelled) == ["no_device_plugin"]
    assert codes(replace(invisible, labels={}), None) == []


def test_registered_plugin_with_no_gpus_left_is_not_missing() -> None:
    assert codes(replace(node("a"), allocatable_devices={"nvidia.com/gpu": 0})) == []


@pytest.mark.parametrize(
    ("taint", "out"),
    [
        (TaintSeen("team", "x", "NoSchedule"), ["taint"]),
        (TaintSeen("team", "", "NoExecute"), ["taint"]),
        (TaintSeen("team", "", "PreferNoSchedule"), []),
        (TaintSeen("nvidia.com/gpu", "present", "NoSchedule"), []),
        (TaintSeen("node.kubernetes.io/unreachable", "", "NoExecute"), []),
        (TaintSeen("node.kubernetes.io/disk-pressure", "", "NoSchedule"), ["taint"]),
    ],
)
def test_taint_that_our_pods_do_not_tolerate_keeps_them_off(
    taint: TaintSeen, out: list[str]
) -> None:
    assert codes(replace(node("a"), taints=(taint,))) == out


def test_a_cordon_by_hand_bears_the_time_that_kubernetes_noted() -> None:
    raw: dict[str, Any] = json.loads((SAMPLES / "node_h100_cordoned.json").read_text())
    raw["spec"]["taints"] = [
        {
            "key": "node.kubernetes.io/unschedulable",
            "effect": "NoSchedule",
            "timeAdded": "2026-11-29T21:07:32Z",
        }
    ]
    (cause,) = columns_of(parse_node(raw), POLICY)["out_causes"]
    assert cause == {"code": "cordoned", "numbers": {"since": "2026-11-29T21:07:32+00:00"}}


def test_node_that_is_not_ready_is_out() -> None:
    conditions = tuple(
        replace(c, status="Unknown") if c.type == "Ready" else c for c in node("a").conditions
    )
    assert codes(replace(node("a"), conditions=conditions)) == ["not_ready"]


def test_causes_come_in_order_of_weight() -> None:
    bad = replace(
        node("a"),
        unschedulable=True,
        conditions=(),
        allocatable_devices={},
        taints=(TaintSeen("x", "", "NoSchedule"),),
    )
    assert codes(bad) == ["no_device_plugin", "not_ready", "cordoned", "taint"]


def test_selector_says_which_nodes_are_managed() -> None:
    chosen = replace(POLICY, selector={"pool": "train"})
    assert not columns_of(node("a"), chosen)["managed"]
    labelled = replace(node("a"), labels={**node("a").labels, "pool": "train"})
    assert columns_of(labelled, chosen)["managed"]


def test_flavor_goes_by_model_and_resource() -> None:
    mixed = sample("a100_mig_mixed")
    assert flavor_of(mixed, POLICY.flavors) == MIG
    assert columns_of(mixed, POLICY)["gpus_allocatable"] == 16
    assert flavor_of(sample("t4_timesliced"), POLICY.flavors) is None


def test_gpus_of_a_pod_are_units_of_its_nodes_flavor() -> None:
    assert gpus_of(pod(0), node("n0"), POLICY) == 8
    assert gpus_of(pod(0), sample("a100_mig_mixed"), POLICY) == 0
    assert gpus_of(pod(0), None, POLICY) == 8
