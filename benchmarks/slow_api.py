"""Whether the planner's cycle notices that the API server is slow: it must not, for it never calls it.

`python -m benchmarks slow_api`: the same stream of jobs with the API as it is, and with every call delayed by 10 s.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.installation import TOKEN, Production, production
from tests.e2e.api import job

NODES = 64
SECONDS = 30.0
DELAY_SECONDS = 10.0
EVERY_SECONDS = 0.5
MOST_GROWTH = 0.20


def results() -> Iterator[dict[str, Any]]:
    """One result: p50 and p95 of the cycle, both ways."""
    with tempfile.TemporaryDirectory() as folder, production(Path(folder), NODES) as running:
        cycles(running, 5.0)  # warm
        normal = cycles(running, SECONDS)
        fault = {"kind": "api_slow", "wait_seconds": DELAY_SECONDS, "share": 1.0}
        control(running, "POST", fault)
        slow = cycles(running, SECONDS)
        control(running, "DELETE", {})
    growth = p95(slow) / p95(normal) - 1
    yield {
        "delay_seconds": DELAY_SECONDS,
        "normal_ms": {"cycles": len(normal), "p50": statistics.median(normal), "p95": p95(normal)},
        "slow_ms": {"cycles": len(slow), "p50": statistics.median(slow), "p95": p95(slow)},
        "growth": round(growth, 3),
        "kept": growth < MOST_GROWTH,
    }


def control(running: Production, method: str, body: dict[str, Any]) -> None:
    """A call to the simulated cluster's own door."""
    answer = httpx.request(
        method,
        f"{running.cluster.url}/_sim/faults",
        json=body,
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=20,
    )
    answer.raise_for_status()


def cycles(running: Production, seconds: float) -> list[float]:
    """Milliseconds of each cycle while a job comes every half second."""
    seen: dict[Any, float] = {}
    query = b"SELECT considered_at, cycle_ms FROM scheduler_clusterstate"
    until, next_job = time.monotonic() + seconds, 0.0
    with psycopg.connect(running.database_url, autocommit=True) as rows:
        while time.monotonic() < until:
            if time.monotonic() >= next_job:
                next_job = time.monotonic() + EVERY_SECONDS
                fields = {"tenant": "default", "queue": "default", "replicas": 1, "run_seconds": 1}
                running.installation.api.submit_many([job(**fields)])
            row = rows.execute(query).fetchone()
            if row is not None and row[0] is not None:
                seen[row[0]] = float(row[1])
            time.sleep(0.02)
    return list(seen.values())


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[int(len(values) * 0.95)]
