"""Device plugins, shared GPUs and exporters of simulated nodes."""

import re
from pathlib import Path

import pytest

from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.nodes.xids import IGNORED_BY_PLUGIN
from scheduler.simcluster.profiles.model import NodeGroup, Profile, load_profile
from tests.simcluster.direct import Direct, condition, ended

NODE = "gpu-00001"
SAMPLES = Path(__file__).parents[1] / "fixtures" / "kube" / "dcgm"
GPU = "nvidia.com/gpu"
LINE = re.compile(r"^([A-Z_]+[A-Za-z_]*)\{(.*)\} (\S+)$")


def amounts(api: Direct, node: str, resource: str = GPU) -> tuple[str | None, str | None]:
    """Capacity and allocatable of a resource on a node."""
    status = api.node(node)["status"]
    return status["capacity"].get(resource), status["allocatable"].get(resource)


def series(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Metric names to their series."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2)))
            found.setdefault(match.group(1), []).append((labels, float(match.group(3))))
    return found


def page(api: Direct, node: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """A node's metrics, through the API server's node proxy."""
    reply = api.call("GET", f"/api/v1/nodes/{node}:9400/proxy/metrics")
    assert reply.status == 200, reply.body
    return series(reply.body.decode())


def small(group: NodeGroup) -> Direct:
    """A cluster of one group in stepped time."""
    return Direct(SimCluster(Profile("small", (group,)), clock=SteppedClock(), seed=2))


def test_critical_xid_lowers_allocatable_until_the_plugin_restarts(api: Direct) -> None:
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 3, "code": 48})
    api.cluster.advance(1)
    assert amounts(api, NODE) == ("8", "7")
    api.cluster.advance(3600)
    assert amounts(api, NODE) == ("8", "7")
    api.cluster.faults.begin("plugin_restart", {"node": NODE})
    assert amounts(api, NODE) == ("8", "8")


@pytest.mark.parametrize("code", sorted(IGNORED_BY_PLUGIN))
def test_ignored_xid_leaves_allocatable_alone(api: Direct, code: int) -> None:
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 3, "code": code})
    api.cluster.advance(1)
    assert amounts(api, NODE) == ("8", "8")
    xids = page(api, NODE)["DCGM_FI_DEV_XID_ERRORS"]
    assert [int(value) for labels, value in xids if labels["gpu"] == "3"] == [code]


def test_gpu_off_the_bus_stays_out_after_a_plugin_restart_and_its_metrics_stop(api: Direct) -> None:
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 3, "code": 79})
    api.cluster.faults.begin("plugin_restart", {"node": NODE})
    assert amounts(api, NODE) == ("8", "7")
    assert {labels["gpu"] for labels, _ in page(api, NODE)["DCGM_FI_DEV_GPU_UTIL"]} == set(
        "0124567"
    )
    api.cluster.faults.begin("node_reboot", {"node": NODE, "down_seconds": 10})
    api.cluster.advance(12)
    assert amounts(api, NODE) == ("8", "8")


def test_xid_kills_the_process_on_its_gpu_and_no_other(api: Direct) -> None:
    api.run_pod("a", NODE, gpus=4, run_seconds="forever")
    api.run_pod("b", NODE, gpus=4, run_seconds="forever")
    api.cluster.advance(2)
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 0, "code": 79})
    api.cluster.advance(1)
    assert ended(api.pod("a"))["exitCode"] == 1
    assert api.pod("b")["status"]["phase"] == "Running"


def test_row_remap_xid_marks_the_gpu_but_the_pod_runs_on(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 0, "code": 63})
    api.cluster.advance(1)
    assert api.pod("a")["status"]["phase"] == "Running"
    assert amounts(api, NODE) == ("8", "7")


def test_stopped_plugin_drops_allocatable_at_once_and_capacity_after_five_minutes(
    api: Direct,
) -> None:
    fault = api.cluster.faults.begin("plugin_stopped", {"node": NODE})
    assert amounts(api, NODE) == ("8", "0")
    api.cluster.advance(299)
    assert amounts(api, NODE) == ("8", "0")
    api.cluster.advance(2)
    assert amounts(api, NODE) == ("0", "0")
    api.cluster.faults.end(fault.id)
    assert amounts(api, NODE) == ("8", "8")


def test_node_without_plugin_has_no_key_and_no_discovery_labels() -> None:
    api = Direct(SimCluster("demo", clock=SteppedClock()))
    assert amounts(api, "gpu-00071") == (None, None)
    labels = api.node("gpu-00071")["metadata"]["labels"]
    assert labels["feature.node.kubernetes.io/pci-0302_10de.present"] == "true"
    assert not any(key.startswith("nvidia.com/") for key in labels)


def test_time_sliced_node_loses_one_replica() -> None:
    api = small(NodeGroup("t4", 1, gpu_model="T4", gpus=2, time_slices=4))
    node = "gpu-00000"
    assert amounts(api, node) == ("8", "8")
    assert api.node(node)["metadata"]["labels"]["nvidia.com/gpu.product"] == "Tesla-T4-SHARED"
    assert api.node(node)["metadata"]["labels"]["nvidia.com/gpu.replicas"] == "4"
    api.cluster.faults.begin("gpu_xid", {"node": node, "gpu": 0, "code": 95})
    api.cluster.advance(1)
    assert amounts(api, node) == ("8", "7")


def test_renamed_slices_refuse_more_than_one_when_told_to() -> None:
    api = small(
        NodeGroup("l", 1, gpu_model="L40S", gpus=1, time_slices=4, rename_shared=True,
                  fail_requests_above_one=True)
    )  # fmt: skip
    node, shared = "gpu-00000", "nvidia.com/gpu.shared"
    assert amounts(api, node, shared) == ("4", "4")
    for count, phase in ((2, "Failed"), (1, "Running")):
        container = {"name": "main", "image": "i:1", "resources": {"limits": {shared: str(count)}}}
        api.run_pod(f"p{count}", node, spec={"containers": [container]})
        api.cluster.advance(2)
        assert api.pod(f"p{count}")["status"]["phase"] == phase
    assert api.pod("p2")["status"]["reason"] == "UnexpectedAdmissionError"


def test_mixed_mig_node_has_profile_resources_and_labels() -> None:
    api = Direct(SimCluster("shared", clock=SteppedClock()))
    node = "mig-mixed-00000"
    assert amounts(api, node) == ("0", "0")
    assert amounts(api, node, "nvidia.com/mig-1g.5gb") == ("16", "16")
    assert amounts(api, node, "nvidia.com/mig-3g.20gb") == ("8", "8")
    labels = api.node(node)["metadata"]["labels"]
    assert labels["nvidia.com/mig-2g.10gb.memory"] == "9856"
    assert labels["nvidia.com/mig.strategy"] == "mixed"
    container = {
        "name": "server",
        "image": "i:1",
        "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
    }
    api.run_pod("infer", node, spec={"containers": [container]})
    api.cluster.advance(2)
    lines = page(api, node)["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    busy = [labels for labels, value in lines if value > 0.5]
    assert [(item["GPU_I_PROFILE"], item["pod"]) for item in busy] == [("1g.5gb", "infer")]


def test_single_mig_node_counts_instances_as_gpus() -> None:
    api = Direct(SimCluster("shared", clock=SteppedClock()))
    assert amounts(api, "mig-single-00000") == ("56", "56")


@pytest.mark.parametrize(
    ("generation", "sample"),
    [
        ("A", "dcgm_h100_node.prom"),
        ("B", "dcgm_h100_node_genB_hostname.prom"),
        ("C", "dcgm_h100_node_genC_reconstructed.prom"),
    ],
)
def test_exporter_has_the_names_and_labels_of_its_generation(generation: str, sample: str) -> None:
    api = small(NodeGroup("h", 1, gpu_model="H100", dcgm_generation=generation))
    api.run_pod("a", "gpu-00000", run_seconds="forever")
    api.cluster.advance(3)
    ours = page(api, "gpu-00000")
    recorded = series((SAMPLES / sample).read_text(encoding="utf-8"))
    ignored = {"DCGM_EXP_CLOCK_EVENTS_COUNT"}
    assert set(recorded) - set(ours) <= ignored
    for name in set(recorded) & set(ours) - {"DCGM_EXP_XID_ERRORS_COUNT"}:
        with_pod = next(set(labels) for labels, _ in recorded[name] if "pod" in labels)
        assert set(ours[name][0][0]) == with_pod, name


def test_exporter_values_follow_the_pods_that_run(api: Direct) -> None:
    idle = {labels["gpu"]: value for labels, value in page(api, NODE)["DCGM_FI_DEV_GPU_UTIL"]}
    assert set(idle.values()) == {0.0}
    api.run_pod("a", NODE, gpus=2, run_seconds="60")
    api.cluster.advance(5)
    lines = page(api, NODE)["DCGM_FI_DEV_GPU_UTIL"]
    busy = {labels["gpu"]: labels["pod"] for labels, value in lines if value > 80}
    assert busy == {"0": "a", "1": "a"}
    assert all("pod" not in labels for labels, value in lines if value == 0)
    api.cluster.advance(120)
    assert {value for _, value in page(api, NODE)["DCGM_FI_DEV_GPU_UTIL"]} == {0.0}


def test_faults_show_in_the_metrics(api: Direct) -> None:
    faults = api.cluster.faults
    heat = faults.begin("gpu_heat", {"node": NODE, "gpu": 1})
    faults.begin("gpu_ecc", {"node": NODE, "gpu": 2, "double": 1})
    faults.begin("gpu_nvlink", {"node": NODE, "gpu": 4, "errors": 12})
    found = page(api, NODE)

    def value(name: str, gpu: str) -> float:
        return next(number for labels, number in found[name] if labels["gpu"] == gpu)

    assert value("DCGM_FI_DEV_GPU_TEMP", "1") > 85
    assert int(value("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "1")) & 0x48
    assert value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2") == 1
    assert value("DCGM_FI_DEV_ROW_REMAP_PENDING", "2") == 1
    assert value("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "4") == 12
    faults.end(heat.id)
    assert (
        next(v for labels, v in page(api, NODE)["DCGM_FI_DEV_GPU_TEMP"] if labels["gpu"] == "1")
        < 60
    )


def test_exporter_that_is_down_refuses_and_default_metrics_lack_ecc(api: Direct) -> None:
    api.cluster.faults.begin("exporter_down", {"node": NODE}, seconds=60)
    assert api.call("GET", f"/api/v1/nodes/{NODE}:9400/proxy/metrics").status == 503
    api.cluster.advance(61)
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in page(api, NODE)
    plain = small(NodeGroup("h", 1, gpu_model="H100", dcgm_optional_metrics=False))
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" not in page(plain, "gpu-00000")


def test_clock_skew_does_not_make_a_node_unknown(api: Direct) -> None:
    api.cluster.faults.begin("clock_skew", {"node": NODE, "skew_seconds": -600})
    api.cluster.advance(120)
    assert condition(api.node(NODE), "Ready")["status"] == "True"  # type: ignore[index]


def test_not_ready_node_is_tainted_and_healed(api: Direct) -> None:
    fault = api.cluster.faults.begin("node_not_ready", {"node": NODE}, seconds=30)
    api.cluster.advance(1)
    node = api.node(NODE)
    assert condition(node, "Ready")["reason"] == "KubeletNotReady"  # type: ignore[index]
    assert {t["key"] for t in node["spec"]["taints"]} == {"node.kubernetes.io/not-ready"}
    api.cluster.advance(31)
    assert fault.id not in api.cluster.faults.active
    assert "taints" not in api.node(NODE)["spec"]


@pytest.mark.parametrize("name", ["demo", "nvl72", "shared"])
def test_shipped_profiles_make_valid_nodes(name: str) -> None:
    api = Direct(SimCluster(name, clock=SteppedClock()))
    nodes = api.ok("GET", "/api/v1/nodes")["items"]
    assert len(nodes) == load_profile(name).node_count
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == len(nodes)


def labels(api: Direct, node: str) -> dict[str, str]:
    """A node's labels."""
    found: dict[str, str] = api.node(node)["metadata"]["labels"]
    return found


def test_reported_xid_is_an_event_on_the_node_with_the_kernels_line(api: Direct) -> None:
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 2, "code": 31, "report": True})
    api.cluster.faults.begin("gpu_xid", {"node": NODE, "gpu": 2, "code": 13})
    query = "fieldSelector=involvedObject.kind=Node,reason=XIDError"
    found = api.ok("GET", f"/api/v1/events?{query}")["items"]
    assert [event["involvedObject"]["name"] for event in found] == [NODE]
    assert re.fullmatch(
        r"NVRM: Xid \(PCI:0000:[0-9a-f]{2}:[0-9a-f]{2}\): 31, GPU memory page fault",
        found[0]["message"],
    )
    assert found[0]["source"] == {"component": "kernel-monitor", "host": NODE}


def test_added_node_is_new_and_alike_and_goes_when_undone(api: Direct) -> None:
    before = {node["metadata"]["name"] for node in api.ok("GET", "/api/v1/nodes")["items"]}
    fault = api.cluster.faults.begin("node_added", {"like": NODE})
    api.cluster.advance(1)
    (name,) = {n["metadata"]["name"] for n in api.ok("GET", "/api/v1/nodes")["items"]} - before
    assert amounts(api, name) == amounts(api, NODE)
    assert (
        labels(api, name)["nvidia.com/gpu.product"] == labels(api, NODE)["nvidia.com/gpu.product"]
    )
    assert api.node(name)["metadata"]["uid"] != api.node(NODE)["metadata"]["uid"]
    api.cluster.faults.end(fault.id)
    assert api.call("GET", f"/api/v1/nodes/{name}").status == 404


def test_driver_upgrade_waits_for_the_label_and_for_pods_and_changes_the_driver(
    api: Direct,
) -> None:
    state = "nvidia.com/gpu-driver-upgrade-state"
    skip = {"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade.skip": "true"}}}
    address, merge = f"/api/v1/nodes/{NODE}", "application/merge-patch+json"
    api.ok("PATCH", address, skip, merge)
    api.run_pod("busy", NODE, run_seconds="90")
    api.cluster.faults.begin("driver_upgrade", {"node": NODE, "driver": "999.1.2"})
    api.cluster.advance(60)
    assert labels(api, NODE)[state] == "upgrade-required"
    skip["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade.skip"] = "false"
    api.ok("PATCH", address, skip, merge)
    api.cluster.advance(25)
    assert api.node(NODE)["spec"]["unschedulable"]
    assert labels(api, NODE)["nvidia.com/cuda.driver-version.major"] != "999"
    seen = []
    for _ in range(60):
        api.cluster.advance(2)
        seen += [labels(api, NODE)[state]] if labels(api, NODE)[state] not in seen else []
        if seen[-1] == "pod-restart-required":
            assert amounts(api, NODE)[1] == "0"
            assert api.pod("busy")["status"]["phase"] == "Succeeded"
    assert seen[-4:] == [
        "pod-restart-required", "validation-required", "uncordon-required", "upgrade-done",
    ]  # fmt: skip
    assert labels(api, NODE)["nvidia.com/cuda.driver-version.major"] == "999"
    assert amounts(api, NODE) == ("8", "8")
    assert "unschedulable" not in api.node(NODE)["spec"]


def test_driver_upgrade_fails_when_a_pod_stays(api: Direct) -> None:
    api.run_pod("stays", NODE, gpus=1, run_seconds="forever")
    api.cluster.faults.begin("driver_upgrade", {"node": NODE})
    api.cluster.advance(400)
    assert labels(api, NODE)["nvidia.com/gpu-driver-upgrade-state"] == "upgrade-failed"
    assert api.pod("stays")["status"]["phase"] == "Running"


def test_tainted_nodes_take_only_pods_that_tolerate_it_from_the_default_scheduler() -> None:
    api = small(NodeGroup("g", 2, gpu_model="H100", taint=True))
    spec = {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {GPU: "1"}}}]}
    tolerations = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    address = "/api/v1/namespaces/default/pods"
    api.ok("POST", address, {"metadata": {"name": "no"}, "spec": dict(spec)})
    api.ok(
        "POST", address, {"metadata": {"name": "yes"}, "spec": {**spec, "tolerations": tolerations}}
    )
    api.cluster.advance(5)
    assert api.pod("yes")["spec"]["nodeName"]
    assert "nodeName" not in api.pod("no")["spec"]
    told = next(c for c in api.pod("no")["status"]["conditions"] if c["type"] == "PodScheduled")
    assert "untolerated taint {nvidia.com/gpu: present}" in told["message"]
