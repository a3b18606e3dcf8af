"""The cluster process beside 2,000 nodes and 10,000 pods: memory, cold start, and how soon a change is in the rows.

`python -m benchmarks watcher`, on the production profile.
"""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.installation import TOKEN, Production, production
from tests.e2e.stack import wait_until

NODES = 2000
PODS = 10_000
CHANGES = 10
PROCESS = "cluster-default"
MOST_MIB, MOST_SECONDS, MOST_CHANGE_SECONDS = 400, 20.0, 1.0
SYNC_SECONDS = 180.0


def results() -> Iterator[dict[str, Any]]:
    """One result."""
    with tempfile.TemporaryDirectory() as folder, production(Path(folder), NODES) as running:
        make_pods(running.cluster.url)
        with psycopg.connect(running.database_url, autocommit=True) as rows:
            wait_until(lambda: pods_known(rows) == PODS, SYNC_SECONDS)
            cold = restarted(running, rows)
            pid = running.pids()[PROCESS]
            changes = [changed(running, rows, number) for number in range(CHANGES)]
    peak = max(cold["peak_mib"], memory_mib(pid, "VmHWM") if alive(pid) else 0)
    yield {
        "nodes": NODES,
        "pods": PODS,
        **cold,
        "peak_mib": peak,
        "change_to_row_seconds": round(max(changes), 3),
        "kept": peak <= MOST_MIB
        and cold["live_seconds"] <= MOST_SECONDS
        and max(changes) <= MOST_CHANGE_SECONDS,
    }


def make_pods(url: str) -> None:
    """Five pods of others on every node, of one GPU each."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=60) as client,
        ThreadPoolExecutor(16) as pool,
    ):
        list(pool.map(lambda number: make_pod(client, number), range(PODS)))


def make_pod(client: httpx.Client, number: int) -> None:
    """One pod that runs for ever."""
    container = {
        "name": "main",
        "image": "registry.example/serve:1",
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4", "memory": "16Gi"}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"serve-{number:05}",
            "annotations": {"sim.muster.dev/run-seconds": "forever"},
        },
        "spec": {"nodeName": f"gpu-{number % NODES:05}", "containers": [container]},
    }
    client.post("/api/v1/namespaces/default/pods", json=body).raise_for_status()


def pods_known(rows: "psycopg.Connection[tuple[Any, ...]]") -> int:
    """How many pods of others have rows."""
    return int(one(rows, "SELECT count(*) FROM scheduler_foreignpod"))


def restarted(running: Production, rows: "psycopg.Connection[tuple[Any, ...]]") -> dict[str, Any]:
    """Kill the process; until the next one says that it is live, with all that it listed in the rows."""
    rows.execute("UPDATE scheduler_clusterstate SET watch = 'unreachable'")
    pid = running.pids()[PROCESS]
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: running.pids().get(PROCESS, pid) != pid, 30)
    started = time.monotonic()
    new = running.pids()[PROCESS]
    live = "SELECT watch FROM scheduler_clusterstate"
    wait_until(lambda: one(rows, live) == "live", SYNC_SECONDS)
    return {
        "live_seconds": round(time.monotonic() - started, 2),
        "killed_to_live_seconds": round(time.monotonic() - began, 2),
        "peak_mib": memory_mib(new, "VmHWM"),
        "rss_mib": memory_mib(new, "VmRSS"),
    }


def changed(running: Production, rows: "psycopg.Connection[tuple[Any, ...]]", number: int) -> float:
    """Seconds from a label's change to the row that has it."""
    name = f"gpu-{number * 101 % NODES:05}"
    value = f"v{number}"
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/merge-patch+json",
    }
    body = {"metadata": {"labels": {"bench": value}}}
    answer = httpx.patch(
        f"{running.cluster.url}/api/v1/nodes/{name}", json=body, headers=headers, timeout=20
    )
    answer.raise_for_status()
    began = time.monotonic()
    query = f"SELECT labels->>'bench' FROM scheduler_node WHERE name = '{name}'"
    while one(rows, query) != value:
        time.sleep(0.005)
        assert time.monotonic() - began < SYNC_SECONDS
    return time.monotonic() - began


def one(rows: "psycopg.Connection[tuple[Any, ...]]", query: str) -> Any:
    """The first value of a query's answer."""
    found = rows.execute(query.encode()).fetchone()
    return found[0] if found else None


def memory_mib(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"{what}:\s+(\d+) kB", text)
    return round(int(match.group(1)) / 1024, 1) if match else 0.0


def alive(pid: int) -> bool:
    """Whether the process is still there."""
    return Path(f"/proc/{pid}/status").exists()
