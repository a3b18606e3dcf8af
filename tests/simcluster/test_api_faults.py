"""Faults of the API server, as a client over HTTP meets them."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from scheduler.simcluster.clock import RunningClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.simcluster.direct import pod

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def sim():
    """Two nodes, sixty times as fast."""
    async with SimCluster(uniform_profile(2), clock=RunningClock(speed=60), seed=1) as cluster:
        yield cluster


@pytest.fixture
async def session():
    """An HTTP session."""
    async with aiohttp.ClientSession() as opened:
        yield opened


async def begin(session: aiohttp.ClientSession, sim: SimCluster, **fault: Any) -> int:
    """Begins a fault over the control API; returns its id."""
    async with session.post(f"{sim.url}/_sim/faults", json=fault) as response:
        answer = await response.json()
        assert response.status == 201, answer
        return int(answer["id"])


async def test_share_of_calls_is_refused_with_retry_after(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    await begin(session, sim, kind="api_error", status=429, share=0.5, retry_after_seconds=3)
    statuses = []
    for _ in range(60):
        async with session.get(sim.url + PODS) as response:
            statuses.append(response.status)
            if response.status == 429:
                assert response.headers["Retry-After"] == "3"
                assert (await response.json())["reason"] == "TooManyRequests"
    assert 15 < statuses.count(429) < 45


async def test_lost_answer_leaves_the_effect_behind(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    fault = await begin(
        session, sim, kind="api_reset", after=True, verbs=["create"], resources=["pods"], limit=1
    )
    with pytest.raises(aiohttp.ClientError):
        await session.post(sim.url + PODS, json=pod("a"))
    async with session.get(f"{sim.url}{PODS}/a") as response:
        assert response.status == 200
    async with session.post(sim.url + PODS, json=pod("a")) as response:
        assert response.status == 409
    async with session.delete(f"{sim.url}/_sim/faults/{fault}") as response:
        assert response.status == 200


async def test_reset_before_leaves_nothing_behind(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    await begin(session, sim, kind="api_reset", verbs=["create"], limit=1)
    with pytest.raises(aiohttp.ClientError):
        await session.post(sim.url + PODS, json=pod("a"))
    async with session.get(f"{sim.url}{PODS}/a") as response:
        assert response.status == 404


async def test_slow_calls_take_their_time_and_hanging_ones_end_with_504(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    loop = asyncio.get_running_loop()
    slow = await begin(session, sim, kind="api_slow", wait_seconds=12)
    begun = loop.time()
    async with session.get(sim.url + PODS) as response:
        assert response.status == 200
    assert loop.time() - begun >= 0.2
    await session.delete(f"{sim.url}/_sim/faults/{slow}")
    await begin(session, sim, kind="api_timeout", limit=1)
    async with session.get(sim.url + PODS) as response:
        assert response.status == 504


async def test_dropped_watch_breaks_and_silent_watch_holds_its_events_back(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    response = await session.get(f"{sim.url}{PODS}?watch=1")
    silence = await begin(session, sim, kind="watch_silent", resource="pods")
    await session.post(sim.url + PODS, json=pod("a"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await response.content.readline()
    await session.delete(f"{sim.url}/_sim/faults/{silence}")
    async with asyncio.timeout(10):
        assert json.loads(await response.content.readline())["object"]["metadata"]["name"] == "a"
    await begin(session, sim, kind="watch_drop")
    with pytest.raises(aiohttp.ClientError):
        async with asyncio.timeout(10):
            await response.content.read()


async def test_control_api_lists_kinds_and_refuses_nonsense(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{sim.url}/_sim/kinds") as response:
        kinds = {item["kind"]: item for item in (await response.json())["kinds"]}
    assert kinds["gpu_xid"]["parameters"]["code"] is None
    assert all(item["meaning"] for item in kinds.values())
    wrong = [
        ({"kind": "nope"}, 400), ({"kind": "gpu_xid", "node": "gpu-00000"}, 400),
        ({"kind": "gpu_xid", "node": "gpu-00000", "gpu": 9, "code": 79}, 404),
        ({"kind": "node_gone", "node": "ghost"}, 404), ({}, 400),
        ({"kind": "node_gone", "node": "gpu-00000", "color": "red"}, 400),
    ]  # fmt: skip
    for body, status in wrong:
        async with session.post(f"{sim.url}/_sim/faults", json=body) as response:
            assert response.status == status, body
            assert (await response.json())["error"]


async def test_node_state_is_shown_with_the_pod_on_each_gpu(
    sim: SimCluster, session: aiohttp.ClientSession
) -> None:
    await session.post(sim.url + PODS, json=pod("a", gpus=2, run_seconds="forever"))
    target = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "gpu-00001"}}
    await session.post(f"{sim.url}{PODS}/a/binding", json=target)
    async with asyncio.timeout(20):
        while True:
            async with session.get(f"{sim.url}/_sim/nodes/gpu-00001") as response:
                shown = await response.json()
            if shown["pods"]:
                break
            await asyncio.sleep(0.02)
    assert [gpu["pod"] for gpu in shown["gpus"][:3]] == [["default", "a"], ["default", "a"], None]
    async with session.get(f"{sim.url}/_sim/exporter/gpu-00001/metrics") as response:
        assert "DCGM_FI_DEV_GPU_UTIL" in await response.text()
