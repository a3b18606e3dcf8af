"""Node objects of simulated machines against samples of real ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import NodeGroup, Profile, load_profile
from tests.simcluster.direct import Direct

SAMPLES = Path(__file__).parents[1] / "fixtures" / "kube" / "nodes"
MIXED_MIG = ("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")
GROUPS = {
    "node_h100_8gpu_leaf_spine.json": NodeGroup("h", 1, gpu_model="H100", taint=True, instance_type="hgx-h100-8"),
    "node_a100_mig_mixed.json": NodeGroup(
        "m", 1, gpu_model="A100-40", mig=MIXED_MIG, mig_strategy="mixed", taint=True, instance_type="hgx-a100-8"
    ),
    "node_t4_timesliced.json": NodeGroup(
        "t", 1, gpu_model="T4", gpus=2, time_slices=4, conventions=("none",), instance_type="t4-2gpu"
    ),
    "node_gb200_nvl72_clique.json": NodeGroup(
        "g", 1, gpu_model="GB200", gpus=4, nvlink_domain_nodes=18, driver="580.82.07", cuda="13.0",
        taint=True, instance_type="gb200-nvl72-tray",
    ),
    "node_gpu_no_device_plugin.json": NodeGroup("n", 1, gpu_model="H100", device_plugin=False),
}  # fmt: skip
SITE_LABELS = {
    "nvidia.com/device-plugin.config",
    "nvidia.com/gpu.machine",
    "nvidia.com/gfd.timestamp",
    "kubernetes.io/hostname",
}


def made(group: NodeGroup) -> dict[str, Any]:
    """The only node of a group."""
    api = Direct(SimCluster(Profile("one", (group,)), clock=SteppedClock()))
    return api.node("gpu-00000")


@pytest.mark.parametrize("sample", sorted(GROUPS))
def test_simulated_node_looks_like_the_sample(sample: str) -> None:
    recorded = json.loads((SAMPLES / sample).read_text(encoding="utf-8"))
    node = made(GROUPS[sample])
    theirs, ours = recorded["metadata"]["labels"], node["metadata"]["labels"]
    if sample == "node_gpu_no_device_plugin.json":
        assert "nvidia.com/gpu" not in {
            **node["status"]["allocatable"],
            **node["status"]["capacity"],
        }
    assert set(theirs) - set(ours) <= {"node.kubernetes.io/instance-type"}
    for key, value in theirs.items():
        if key.startswith("nvidia.com/") and key not in SITE_LABELS and "clique" not in key:
            assert ours[key] == value, key
    for part in ("capacity", "allocatable"):
        assert set(node["status"][part]) == set(recorded["status"][part])
        for key, value in recorded["status"][part].items():
            if key.startswith("nvidia.com/"):
                assert node["status"][part][key] == value
    assert node["spec"].get("taints", []) == recorded["spec"].get("taints", []) or not recorded[
        "spec"
    ].get("taints")


def test_demo_has_leaves_and_spines_as_promised() -> None:
    api = Direct(SimCluster("demo", clock=SteppedClock()))
    places: dict[str, set[str]] = {}
    for node in api.ok("GET", "/api/v1/nodes")["items"]:
        labels = node["metadata"]["labels"]
        leaf = labels["network.topology.nvidia.com/leaf"]
        assert labels["fabric.topograph.run/tier-0"] == leaf
        places.setdefault(labels["network.topology.nvidia.com/spine"], set()).add(leaf)
    assert places == {
        "spine-00": {"leaf-00", "leaf-01"}, "spine-01": {"leaf-02", "leaf-03"}, "spine-02": {"leaf-04"},
    }  # fmt: skip
    assert (
        api.node("gpu-00017")["metadata"]["labels"]["network.topology.nvidia.com/leaf"] == "leaf-01"
    )


def test_racks_share_a_clique_and_differ_from_one_another() -> None:
    api = Direct(SimCluster("nvl72", clock=SteppedClock()))
    cliques: dict[str, int] = {}
    for node in api.ok("GET", "/api/v1/nodes")["items"]:
        clique = node["metadata"]["labels"]["nvidia.com/gpu.clique"]
        cliques[clique] = cliques.get(clique, 0) + 1
    assert list(cliques.values()) == [18] * 8


def test_driver_exceptions_of_the_large_profile_show_in_labels() -> None:
    group = load_profile("mixed-4000").groups[0]
    assert group.driver_exceptions["1203"] == "535.261.03"
    assert load_profile("mixed-4000").node_count == 4000
