"""Raw objects are reduced to the fields that matter, without losing what tells them apart."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler.kube.parse import parse_node, parse_pod, requests_of
from tests.kube.replay import EXCHANGES, FIXTURES, body_of

GPU = "nvidia.com/gpu"


def sample(name: str) -> dict[str, Any]:
    loaded = json.loads((FIXTURES / "nodes" / f"node_{name}.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_healthy_node_is_read_whole() -> None:
    node = parse_node(sample("h100_8gpu_leaf_spine"))
    assert node.name == "gpu-h100-0017"
    assert node.capacity_devices == {GPU: 8}
    assert node.allocatable_devices == {GPU: 8}
    assert (node.cpu_millis, node.memory_mib, node.pods) == (223500, 2105009892 // 1024, 110)
    assert node.ready
    assert node.ready_since == datetime(2026, 8, 20, 8, 11, 7, tzinfo=UTC)
    assert (node.driver, node.cuda) == ("570.158.01", "12.8")
    assert node.labels["network.topology.nvidia.com/leaf"] == "leaf-03"
    assert [(t.key, t.value, t.effect) for t in node.taints] == [(GPU, "present", "NoSchedule")]
    assert not node.unschedulable
    assert node.boot_id


def test_unhealthy_gpu_shows_in_allocatable_and_condition() -> None:
    node = parse_node(sample("h100_one_unhealthy_gpu"))
    assert node.capacity_devices[GPU] == 8
    assert node.allocatable_devices[GPU] == 7
    condition = node.condition("SysLogsXIDError")
    assert condition is not None
    assert condition.status == "True"


def test_missing_resource_key_is_not_zero() -> None:
    invisible = parse_node(sample("gpu_no_device_plugin"))
    mig = parse_node(sample("a100_mig_mixed"))
    assert GPU not in invisible.allocatable_devices
    assert mig.allocatable_devices[GPU] == 0
    assert mig.allocatable_devices["nvidia.com/mig-1g.5gb"] == 16


def test_cordon_is_seen() -> None:
    assert parse_node(sample("h100_cordoned")).unschedulable


def test_old_driver_labels_are_joined() -> None:
    raw = sample("h100_8gpu_leaf_spine")
    labels = raw["metadata"]["labels"]
    for name in [n for n in labels if "version" in n]:
        del labels[name]
    node = parse_node(raw)
    assert (node.driver, node.cuda) == ("570.158", "12.8")


def test_node_without_status_is_read() -> None:
    node = parse_node({"metadata": {"name": "bare", "uid": "u"}})
    assert not node.ready
    assert node.ready_since is None
    assert node.allocatable_devices == {}


def test_recorded_objects_all_parse() -> None:
    for exchange in EXCHANGES.values():
        body = exchange["response"].get("body")
        if isinstance(body, dict) and body.get("kind") == "Pod":
            assert parse_pod(body).uid == body["metadata"]["uid"]
        if isinstance(body, dict) and body.get("kind") == "Node":
            assert parse_node(body).name == body["metadata"]["name"]


def test_bound_pod_is_read() -> None:
    pod = parse_pod(body_of("read bound pod"))
    assert (pod.namespace, pod.name, pod.node) == ("team-a", "a-0", "gpu-01")
    assert pod.phase == "Pending"
    assert pod.requests.devices == {GPU: 8}
    assert (pod.requests.cpu_millis, pod.requests.memory_mib) == (8000, 64 * 1024)
    assert not pod.terminating
    assert not pod.ours


def test_terminating_pod_keeps_its_grace() -> None:
    pod = parse_pod(body_of("evicted pod waits for its kubelet"))
    assert pod.terminating
    assert pod.deletion_grace_seconds == 60
    assert not pod.finished


def test_only_our_labels_and_annotations_are_kept() -> None:
    raw = body_of("read bound pod")
    raw["metadata"] = {
        **raw["metadata"],
        "labels": {"muster.dev/job": "job_1", "muster.dev/attempt": "2", "app": "x"},
        "annotations": {"muster.dev/notice": "{}", "kubectl": "long"},
    }
    pod = parse_pod(raw)
    assert pod.labels == {"muster.dev/job": "job_1", "muster.dev/attempt": "2"}
    assert pod.annotations == {"muster.dev/notice": "{}"}
    assert pod.ours


def container(**resources: str) -> dict[str, Any]:
    return {"resources": {"requests": resources}}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory", "gpus"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, 1500, 0, 0),
        # An init container that asks for more than all that follow decides.
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="4")]},
            4000,
            0,
            0,
        ),
        # A restartable one runs beside what follows, and beside later init containers.
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [
                    {**container(cpu="2"), "restartPolicy": "Always"},
                    container(cpu="4"),
                ],
            },
            6000,
            0,
            0,
        ),
        ({"containers": [container(memory="1")], "overhead": {"memory": "10Mi"}}, 0, 11, 0),
        (
            {
                "containers": [container(cpu="1", **{GPU: "2"})],
                "resources": {"requests": {"cpu": "8", "memory": "1Gi"}},
            },
            8000,
            1024,
            2,
        ),
        ({"containers": [{"resources": {"limits": {GPU: "8"}}}]}, 0, 0, 8),
    ],
)
def test_requests_follow_the_schedulers_rule(
    spec: dict[str, Any], cpu: int, memory: int, gpus: int
) -> None:
    asked = requests_of(spec)
    assert (asked.cpu_millis, asked.memory_mib, asked.devices.get(GPU, 0)) == (cpu, memory, gpus)


def test_refusal_by_the_kubelet_and_exit_are_read() -> None:
    raw = body_of("read bound pod")
    raw["status"] = {
        "phase": "Failed",
        "reason": "OutOfnvidia.com/gpu",
        "message": "Pod was rejected",
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        ],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 0,
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "startedAt": "2026-11-01T00:00:00Z",
                        "finishedAt": "2026-11-01T00:01:00.25Z",
                    }
                },
            }
        ],
    }
    pod = parse_pod(raw)
    assert (pod.reason, pod.disruption) == ("OutOfnvidia.com/gpu", "DeletionByTaintManager")
    assert pod.main is not None
    assert (pod.main.state, pod.main.exit_code, pod.main.reason) == (
        "terminated",
        137,
        "OOMKilled",
    )
    assert pod.main.finished_at == datetime(2026, 11, 1, 0, 1, 0, 250000, tzinfo=UTC)
    assert pod.finished
