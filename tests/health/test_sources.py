"""Where readings come from: exporters of a simulated cluster, directly and by the API server; a real Prometheus."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scheduler.kube.connection import Connection
from scheduler.kube.credentials import load_credentials
from scheduler.kube.errors import Forbidden
from scheduler.kube.exporters import exporter_addresses
from scheduler.management.commands.run_health import moment_of
from scheduler.scraping.fetching import (
    Addresses,
    Discovered,
    Prometheus,
    Scrapes,
    direct,
    node_of,
    through_api_server,
)
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.services.session import free_port

PAGES = Path(__file__).parent.parent / "fixtures" / "dcgm"


@pytest.fixture
def sim() -> Iterator[ThreadedSimCluster]:
    with ThreadedSimCluster(uniform_profile(3)) as running:
        yield running


def names(sim: ThreadedSimCluster) -> list[str]:
    return sorted(sim.call(lambda cluster: list(cluster.fleet.kubelets)))


async def read_directly(template: str, nodes: list[str]) -> Scrapes:
    async with aiohttp.ClientSession() as session:
        return await direct(session, Addresses(None, template).of).read(nodes)


async def read_through(sim: ThreadedSimCluster, nodes: list[str]) -> Scrapes:
    async with Connection(load_credentials(Path(sim.kubeconfig))) as kube:
        return await through_api_server(kube).read(nodes)


def test_exporters_answer_directly_and_by_the_api_server_and_a_silent_one_is_none(
    sim: ThreadedSimCluster,
) -> None:
    nodes = names(sim)
    sim.call(lambda cluster: cluster.faults.begin("exporter_down", {"node": nodes[0]}, None))
    sim.call(
        lambda cluster: cluster.faults.begin(
            "gpu_xid", {"node": nodes[1], "gpu": 3, "code": 79}, None
        )
    )
    straight = asyncio.run(read_directly(f"{sim.url}/_sim/exporter/{{node}}/metrics", nodes))
    proxied = asyncio.run(read_through(sim, nodes))
    for found in (straight, proxied):
        assert found[nodes[0]] is None
        readings = found[nodes[1]]
        assert readings is not None
        assert {r.index: r.xid for r in readings.values() if r.xid} == {3: 79}
        assert len(found[nodes[2]] or {}) == 8


def test_a_host_that_does_not_answer_is_none_within_the_time_out() -> None:
    found = asyncio.run(read_directly(f"http://127.0.0.1:{free_port()}/{{node}}", ["a", "b"]))
    assert found == {"a": None, "b": None}


def test_a_refused_node_proxy_is_left_alone_for_an_hour() -> None:
    asked: list[str] = []
    clock = [0.0]

    class Api:
        async def call(self, _verb: str, path: str, *, tries: int) -> bytes:
            asked.append(path)
            raise Forbidden("nodes/proxy is forbidden", code=403)

    async def passes() -> None:
        proxy = through_api_server(Api(), clock=lambda: clock[0])  # type: ignore[arg-type]
        async with aiohttp.ClientSession() as session:
            nowhere = Addresses(None)
            source = Discovered(direct(session, nowhere.of), proxy, nowhere)
            for seconds in range(0, 7200, 15):
                clock[0] = seconds
                assert await source.read(["n1", "n2"]) == {"n1": None, "n2": None}

    asyncio.run(passes())
    assert asked == ["/api/v1/nodes/n1:9400/proxy/metrics"] * 2


def test_exporter_pods_are_found_by_the_charts_labels() -> None:
    pods = {
        "items": [
            {"spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "metrics", "containerPort": 9401}]}]},
             "status": {"phase": "Running", "podIP": "10.0.0.1"}},
            {"spec": {"nodeName": "n2", "containers": [{}]}, "status": {"phase": "Running", "podIP": "fd00::2"}},
            {"spec": {"nodeName": "n3"}, "status": {"phase": "Pending"}},
        ]
    }  # fmt: skip

    class Api:
        async def get(self, path: str, params: dict[str, str]) -> object:
            assert path == "/api/v1/pods"
            return pods if "nvidia-dcgm-exporter" in params["labelSelector"] else {"items": []}

    found = asyncio.run(exporter_addresses(Api()))  # type: ignore[arg-type]
    assert found == {"n1": "10.0.0.1:9401", "n2": "[fd00::2]:9400"}


def test_node_of_reads_host_labels_before_target_labels() -> None:
    assert node_of({"Hostname": "a", "node": "b"}) == "a"
    assert node_of({"hostname": "a", "instance": "10.0.0.1:9400"}) == "a"
    assert node_of({"instance": "n1:9400"}) == "n1"


def test_moment_of_reads_the_time_of_a_log_line() -> None:
    moment = moment_of(b"2026-11-29T12:00:00.123456789Z step 3\n")
    assert moment is not None
    assert moment.isoformat() == "2026-11-29T12:00:00.123456+00:00"
    assert moment_of(b"") is None


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus")
def test_a_real_prometheus_tells_the_same_as_the_exporters(tmp_path: Path) -> None:
    asyncio.run(compare_with_prometheus(tmp_path))


async def compare_with_prometheus(folder: Path) -> None:
    """Prometheus scrapes two exporters (one that answers, one that is down) with the chart's default labels."""
    page = (PAGES / "dcgm_h100_node.prom").read_text()
    exporter = web.Application()

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/plain")

    exporter.router.add_get("/metrics", metrics)
    runner = web.AppRunner(exporter, access_log=None)
    await runner.setup()
    port, own = free_port(), free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    target = {
        "pod": "nvidia-dcgm-exporter-x7k2p",
        "namespace": "gpu-operator",
        "container": "nvidia-dcgm-exporter",
    }
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "dcgm", "static_configs": [
                {"targets": [f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"], "labels": target}]}
        ],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))
    server = subprocess.Popen(  # noqa: ASYNC220  started once
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{own}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            source = Prometheus(session, f"http://127.0.0.1:{own}")
            found = await _until_scraped(source)
    finally:
        server.terminate()
        server.wait(20)
        await runner.cleanup()
    readings = found["gpu-h100-0022"]
    assert readings is not None
    assert found["gpu-h100-9999"] is None
    by_index = {r.index: r for r in readings.values()}
    assert (by_index[7].xid, by_index[7].values["ecc_dbe_vol"]) == (95, 1)
    assert by_index[7].watches["MEM"] == (20, "DCGM_FR_VOLATILE_DBE_DETECTED")
    # The job's pod is `exported_pod` there, and an idle GPU bears only the exporter's own.
    assert [h.pod for h in by_index[0].holders] == ["llm-pretrain-worker-2"]
    assert by_index[5].holders == []
    gone = Prometheus(aiohttp.ClientSession(), f"http://127.0.0.1:{own}")
    assert await gone.read(["gpu-h100-0022"]) == {"gpu-h100-0022": None}
    await gone._session.close()


async def _until_scraped(source: Prometheus) -> Scrapes:
    deadline = time.monotonic() + 60
    while True:
        found = await source.read(["gpu-h100-0022", "gpu-h100-9999"])
        if found["gpu-h100-0022"] is not None and len(found["gpu-h100-0022"]) == 8:
            return found
        assert time.monotonic() < deadline, "prometheus has scraped nothing within a minute"
        await asyncio.sleep(0.3)
