"""A pod's life on a simulated kubelet, over HTTP, in stepped time."""

from typing import Any

import aiohttp
import pytest

from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import uniform_profile

Json = dict[str, Any]


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod of one container that asks for eight GPUs."""
    notes = {f"sim.muster.dev/{key}": value for key, value in (annotations or {}).items()}
    container = {
        "name": "main", "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }  # fmt: skip
    body = {"restartPolicy": "Never", "schedulerName": "muster", "containers": [container], **spec}
    return {"metadata": {"name": name, "annotations": notes}, "spec": body}


async def bind(session: aiohttp.ClientSession, base: str, name: str, node: str) -> None:
    """Binds a pod."""
    target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    async with session.post(f"{base}/{name}/binding", json=target) as response:
        assert response.status == 201, await response.text()


async def read(session: aiohttp.ClientSession, address: str) -> Json:
    """One object."""
    async with session.get(address) as response:
        found: Json = await response.json()
        return found


@pytest.fixture
async def sim():
    """Four nodes in stepped time."""
    async with SimCluster(uniform_profile(4), clock=SteppedClock(), seed=7) as cluster:
        yield cluster


async def test_bound_pod_runs_for_its_time_and_succeeds_with_its_log(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        await session.post(base, json=pod("a", {"run-seconds": "30", "log-lines": "5"}))
        await bind(session, base, "a", "gpu-00002")
        sim.advance(1.1)
        running = await read(session, f"{base}/a")
        assert running["status"]["phase"] == "Running"
        assert running["status"]["containerStatuses"][0]["ready"] is True
        sim.advance(31)
        ended = await read(session, f"{base}/a")
        async with session.get(f"{base}/a/log") as response:
            lines = (await response.text()).splitlines()
    assert ended["status"]["phase"] == "Succeeded"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert len(lines) == 5
    assert "loss=" in lines[-1]


async def test_second_pod_on_a_full_node_is_refused_by_the_kubelet(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        for name in ("a", "b"):
            await session.post(base, json=pod(name, {"run-seconds": "forever"}))
            await bind(session, base, name, "gpu-00001")
            sim.advance(2)
        refused = await read(session, f"{base}/b")
    assert refused["status"]["phase"] == "Failed"
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert "requested: 8, used: 8, capacity: 8" in refused["status"]["message"]


async def test_deleted_pod_stays_until_its_containers_have_stopped(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        await session.post(base, json=pod("a", {"run-seconds": "forever", "on-sigterm": "ignore"}))
        await bind(session, base, "a", "gpu-00000")
        sim.advance(2)
        async with session.delete(f"{base}/a", json={"gracePeriodSeconds": 20}) as response:
            going = await response.json()
        assert going["metadata"]["deletionGracePeriodSeconds"] == 20
        sim.advance(19)
        still = await read(session, f"{base}/a")
        assert still["status"]["phase"] == "Running"
        sim.advance(2)
        async with session.get(f"{base}/a") as response:
            assert response.status == 404
