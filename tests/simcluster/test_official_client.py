"""The official Python client, unmodified, on the simulated cluster."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.clock import RunningClock
from scheduler.simcluster.profiles.model import uniform_profile


@pytest.fixture(scope="module")
def sim() -> Iterator[ThreadedSimCluster]:
    """Four nodes, ten times as fast."""
    with ThreadedSimCluster(uniform_profile(4), clock=RunningClock(speed=10), seed=5) as running:
        yield running


connect: Any = config.new_client_from_config
new_watch: Any = watch.Watch


def follow(*arguments: Any, **options: Any) -> Any:
    """Events of a watch."""
    return new_watch().stream(*arguments, **options)


@pytest.fixture
def core(sim: ThreadedSimCluster) -> Any:
    """The client's core API."""
    return client.CoreV1Api(connect(sim.kubeconfig))


def pod(name: str) -> Any:
    """A pod that asks for eight GPUs."""
    container = client.V1Container(
        name="main", image="registry.example/train:1",
        resources=client.V1ResourceRequirements(limits={"nvidia.com/gpu": "8"}),
    )  # fmt: skip
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"job": "j1"}),
        spec=client.V1PodSpec(
            containers=[container], restart_policy="Never", scheduler_name="muster"
        ),
    )


def bind(core: Any, name: str, node: str) -> None:
    """Binds a pod; the answer is a Status, which the client must not parse as a Binding."""
    target = client.V1ObjectReference(kind="Node", name=node, api_version="v1")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name=name), target=target)
    core.create_namespaced_binding("default", binding, _preload_content=False)


def wait_for(core: Any, name: str, phase: str) -> Any:
    """Follows a watch until a pod has a phase."""
    stream = follow(
        core.list_namespaced_pod,
        "default",
        field_selector=f"metadata.name={name}",
        timeout_seconds=60,
    )
    for event in stream:
        if event["object"].status.phase == phase:
            return event["object"]
    raise AssertionError(f"{name} never became {phase}")


def test_list_and_read_parse_nodes(core: Any) -> None:
    nodes = core.list_node().items
    assert [node.metadata.name for node in nodes] == [f"gpu-0000{index}" for index in range(4)]
    assert nodes[0].status.allocatable["nvidia.com/gpu"] == "8"
    first = core.list_node(limit=3)
    rest = core.list_node(limit=3, _continue=first.metadata._continue)
    assert len(first.items) + len(rest.items) == 4


def test_create_bind_watch_log_and_delete_work(core: Any) -> None:
    body = pod("whole")
    body.metadata.annotations = {
        "sim.muster.dev/run-seconds": "20",
        "sim.muster.dev/log-lines": "4",
    }
    core.create_namespaced_pod("default", body)
    bind(core, "whole", "gpu-00001")
    done = wait_for(core, "whole", "Succeeded")
    assert done.status.container_statuses[0].state.terminated.exit_code == 0
    assert len(core.read_namespaced_pod_log("whole", "default").splitlines()) == 4
    core.delete_namespaced_pod("whole", "default")
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_pod("whole", "default")
    assert caught.value.status == 404


def test_patch_and_replace_follow_versions(core: Any) -> None:
    made = core.create_namespaced_pod("default", pod("patched"))
    core.patch_namespaced_pod("patched", "default", {"metadata": {"labels": {"rank": "0"}}})
    made.metadata.labels["late"] = "1"
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_pod("patched", "default", made)
    assert caught.value.status == 409
    selected = core.list_namespaced_pod("default", label_selector="job=j1,rank in (0)").items
    assert [item.metadata.name for item in selected] == ["patched"]


def test_evict_ends_a_running_pod(core: Any) -> None:
    core.create_namespaced_pod("default", pod("evicted"))
    bind(core, "evicted", "gpu-00002")
    wait_for(core, "evicted", "Running")
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted", namespace="default"))
    core.create_namespaced_pod_eviction("evicted", "default", eviction, _preload_content=False)
    for event in follow(core.list_namespaced_pod, "default", timeout_seconds=60):
        if event["type"] == "DELETED" and event["object"].metadata.name == "evicted":
            assert event["object"].status.phase == "Failed"
            return
    raise AssertionError("the evicted pod never went")


def test_leases_and_custom_objects_work(core: Any, sim: ThreadedSimCluster) -> None:
    api = connect(sim.kubeconfig)
    leases = client.CoordinationV1Api(api)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15)
    made: Any = leases.create_namespaced_lease(
        "default", client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=spec)
    )
    made.spec.holder_identity = "b"
    leases.replace_namespaced_lease("leader", "default", made)
    with pytest.raises(ApiException) as caught:
        leases.replace_namespaced_lease("leader", "default", made)
    assert caught.value.status == 409
    assert len(leases.list_namespaced_lease("kube-node-lease").items) == 4
