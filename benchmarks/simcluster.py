"""Figures of the simulated cluster, as JSON lines: start and memory, creations and bindings a second
over HTTP, and how far 20 watchers fall behind 500 changes a second on 10,000 pods.

Run: python -m benchmarks.simcluster [--quick]. The server runs in a process of its own, the clients
in this one, as on a machine with two cores. `per_second_with_a_core_each` says what the wall clock
would show on a machine that does nothing else.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

Json = dict[str, Any]
TOKEN = "bench"  # noqa: S105 - of a server that lives for seconds on loopback
SENT_AT = re.compile(rb'"sent-at":"([0-9.]+)"')


def emit(name: str, **figures: Any) -> None:
    """One JSON line."""
    print(json.dumps({"benchmark": f"simcluster.{name}", **figures}), flush=True)


def percentiles(values: list[float]) -> Json:
    """p50, p95, p99 and maximum in milliseconds of durations in seconds."""
    ordered = sorted(values)
    pick = {50: 0.50, 95: 0.95, 99: 0.99}
    shown = {
        f"p{name}_ms": round(ordered[int(len(ordered) * at)] * 1000, 2) for name, at in pick.items()
    }
    return shown | {"max_ms": round(ordered[-1] * 1000, 2)}


class Server:
    """A simulated cluster in a process of its own."""

    def __init__(self, url: str, pid: int, ready_seconds: float) -> None:
        self.url, self.pid, self.ready_seconds = url, pid, ready_seconds

    def cpu_seconds(self) -> float:
        """Processor time that the server has used."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Resident memory now."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        return round(int(match.group(1)) / 1024, 1) if match else 0.0


@asynccontextmanager
async def server(*arguments: str) -> AsyncIterator[Server]:
    """Starts a server and waits for the line that says it answers."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "scheduler.simcluster", "--token", TOKEN,
            "--kubeconfig", str(config), *arguments, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            ready = time.perf_counter() - begun
            match = re.search(r"server: (\S+)", config.read_text(encoding="utf-8"))
            assert match is not None
            yield Server(match.group(1), process.pid, ready)
        finally:
            process.terminate()
            await process.wait()


def pod(name: str, *, gpus: int = 1, run_seconds: str = "forever") -> Json:
    """A pod like those that Muster creates."""
    container = {
        "name": "main", "image": "registry.example/train:1", "command": ["torchrun"],
        "args": ["train.py"], "env": [{"name": f"VAR_{i}", "value": str(i)} for i in range(12)],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "8", "memory": "64Gi"}},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"muster.dev/job": name[:5], "muster.dev/rank": "0"},
            "annotations": {"sim.muster.dev/run-seconds": run_seconds},
        },
        "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]},
    }  # fmt: skip


async def in_parallel(
    count: int, width: int, action: Callable[[int], Awaitable[None]]
) -> tuple[float, list[float]]:
    """Runs `action(0..count)` with `width` at a time; returns seconds and each call's time."""
    numbers = iter(range(count))
    took: list[float] = []

    async def worker() -> None:
        for number in numbers:
            begun = time.perf_counter()
            await action(number)
            took.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(width)))
    return time.perf_counter() - begun, took


def client() -> aiohttp.ClientSession:
    """A session with the administrator's token."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    return aiohttp.ClientSession(
        headers=headers, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(300)
    )


async def start_and_memory() -> None:
    """Time to answer and resident memory for 1,000 and 4,000 nodes."""
    for size, arguments in ((1000, ("--nodes", "1000")), (4000, ("--profile", "mixed-4000"))):
        async with server(*arguments) as found, client() as session:
            async with session.get(f"{found.url}/api/v1/nodes") as response:
                answer = await response.read()
            emit(
                "start", nodes=size, ready_seconds=round(found.ready_seconds, 2),
                rss_mib=found.rss_mib(), list_nodes_mib=round(len(answer) / 2**20, 1),
            )  # fmt: skip


async def create_and_bind(count: int, nodes: int) -> None:
    """Creations and bindings a second, 64 calls at a time."""
    async with server("--nodes", str(nodes)) as found, client() as session:
        base = f"{found.url}/api/v1/namespaces/default/pods"

        async def create(number: int) -> None:
            body = json.dumps(pod(f"p-{number:06d}"))
            async with session.post(base, data=body) as response:
                assert response.status == 201, await response.text()
                await response.read()

        async def bind(number: int) -> None:
            name = f"p-{number:06d}"
            target = {
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": f"gpu-{number % nodes:05d}"},
            }
            async with session.post(f"{base}/{name}/binding", data=json.dumps(target)) as response:
                assert response.status == 201, await response.text()
                await response.read()

        for name, action in (("create", create), ("bind", bind)):
            before, own_before = found.cpu_seconds(), time.process_time()
            seconds, took = await in_parallel(count, 64, action)
            used, own = found.cpu_seconds() - before, time.process_time() - own_before
            emit(
                name, pods=count, nodes=nodes, per_second=round(count / seconds),
                server_cpu_ms_each=round(used / count * 1000, 3),
                client_cpu_ms_each=round(own / count * 1000, 3),
                per_server_cpu_second=round(count / used),
                per_second_with_a_core_each=round(count / max(used, own)), **percentiles(took),
            )  # fmt: skip
        await asyncio.sleep(3)
        async with session.get(base + "?limit=1") as response:
            await response.read()
        emit("after_bind", pods=count, rss_mib=found.rss_mib())


async def watch_lag(pods: int, watchers: int, rate: int, seconds: int) -> None:
    """How late watchers see changes, with `rate` changes a second."""
    async with server("--nodes", "0") as found, client() as session:
        base = f"{found.url}/api/v1/namespaces/default/pods"

        async def create(number: int) -> None:
            async with session.post(base, data=json.dumps(pod(f"p-{number:06d}"))) as response:
                await response.read()

        await in_parallel(pods, 64, create)
        async with session.get(base + "?limit=1") as response:
            version = (await response.json())["metadata"]["resourceVersion"]
        lags: list[float] = []
        counts = [0] * watchers

        async def watch(place: int) -> None:
            query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600"}
            async with session.get(base, params=query) as response:
                async for chunk in response.content.iter_any():
                    now = time.time()
                    for match in SENT_AT.finditer(chunk):
                        counts[place] += 1
                        lags.append(now - float(match.group(1)))

        tasks = [asyncio.create_task(watch(place)) for place in range(watchers)]
        await asyncio.sleep(0.5)
        changed = await _change_at_rate(session, base, pods, rate, seconds)
        await asyncio.sleep(2.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        emit(
            "watch", pods=pods, watchers=watchers, changes_per_second=round(changed / seconds),
            changes=changed, events_seen=sum(counts), fewest=min(counts),
            mean_lag_ms=round(statistics.fmean(lags) * 1000, 2), rss_mib=found.rss_mib(),
            **percentiles(lags),
        )  # fmt: skip


async def _change_at_rate(
    session: aiohttp.ClientSession, base: str, pods: int, rate: int, seconds: int
) -> int:
    """Patches pods at a steady rate from 32 workers; returns how many patches were done."""
    headers = {"Content-Type": "application/merge-patch+json"}
    begun, total = time.perf_counter(), rate * seconds
    numbers = iter(range(total))

    async def worker() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            patch = {"metadata": {"annotations": {"sent-at": f"{time.time():.6f}"}}}
            name = f"p-{number % pods:06d}"
            async with session.patch(
                f"{base}/{name}", data=json.dumps(patch), headers=headers
            ) as reply:
                await reply.read()

    await asyncio.gather(*(worker() for _ in range(32)))
    return total


def results() -> Iterator[Json]:
    """All figures, for `python -m benchmarks`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.simcluster"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        yield json.loads(line)


async def main() -> None:
    """All figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", default="", help="start, create or watch")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    emit("machine", cores=os.cpu_count(), python=sys.version.split()[0])
    if arguments.only in ("", "start"):
        await start_and_memory()
    if arguments.only in ("", "create"):
        await create_and_bind(5000 // scale, 1000 // scale)
    if arguments.only in ("", "watch"):
        await watch_lag(10_000 // scale, 20, 500, 20 // min(scale, 4))


if __name__ == "__main__":
    asyncio.run(main())
