"""What the health process costs the loop: cycles over 1,000 nodes with 8,000 GPUs, without it and with it beside.

`python -m benchmarks health_cost`: an installation of its own on the database of DATABASE_URL (an empty one), else on
SQLite. Both cases run the same loop over the same sort of load, on the same cores; the exporters' values move.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.health import NODES, exporters

CYCLES = 80
# Gangs a cycle, of two replicas of eight GPUs: each lives for some cycles.
ARRIVALS, LIVES_CYCLES = 4, 20
CYCLE_SECONDS = 0.5
SETTLING_SECONDS = 30.0
ROOT = Path(__file__).parent.parent


def results() -> Iterator[dict[str, Any]]:
    """One result: medians and p95 of both cases, in ms, by how much they differ, CPU of the health process."""
    with tempfile.TemporaryDirectory() as folder, exporters(moving=True) as port:
        os.environ["VAR"] = folder
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        import django  # noqa: PLC0415  its settings are known only now
        from django.core.management import call_command  # noqa: PLC0415

        django.setup()
        call_command("migrate", verbosity=0)
        yield _compared(port)


def _compared(port: int) -> dict[str, Any]:
    from django.db import connection  # noqa: PLC0415

    load = _Load()
    load.run(CYCLES // 4)
    alone = load.run(CYCLES)
    with _health(port) as process:
        time.sleep(SETTLING_SECONDS)
        used, began = _cpu_seconds(process.pid), time.perf_counter()
        beside = load.run(CYCLES)
        used, seconds = _cpu_seconds(process.pid) - used, time.perf_counter() - began
    again = load.run(CYCLES)
    alone_ms, beside_ms = _figures(alone + again), _figures(beside)
    load.loop.stop()
    return {
        "database": connection.vendor,
        "nodes": NODES,
        "cycles": CYCLES,
        "without_ms": alone_ms,
        "with_ms": beside_ms,
        "median_slower_percent": _slower(alone_ms, beside_ms, "median"),
        "p95_slower_percent": _slower(alone_ms, beside_ms, "p95"),
        "health_cpu_percent_of_a_core": round(100 * used / seconds, 1),
    }


class _Load:
    """A loop with jobs that come and go."""

    def __init__(self) -> None:
        from scheduler.loop.cycle import ClusterLoop  # noqa: PLC0415
        from tests.scheduler import rows  # noqa: PLC0415

        self.rows = rows
        self.world = rows.make_world(NODES, quota=100_000)
        self.now = rows.NOW
        self.loop = ClusterLoop(self.world.cluster.pk, self.world.cluster.name, "bench")
        self.number = 0

    def run(self, cycles: int) -> list[float]:
        """So many cycles, one each half second; seconds of each."""
        took = []
        for _ in range(cycles):
            began = time.perf_counter()
            self.rows.add_jobs(self.world, ARRIVALS, replicas=2)
            self._end_the_oldest()
            self.now += timedelta(seconds=1)
            ticked = time.perf_counter()
            self.loop.tick(self.now)
            took.append(time.perf_counter() - ticked)
            time.sleep(max(0.0, CYCLE_SECONDS - (time.perf_counter() - began)))
        return took

    def _end_the_oldest(self) -> None:
        from queues.lifecycle import EndedBy  # noqa: PLC0415
        from queues.models import Attempt, Placement  # noqa: PLC0415
        from queues.services.attempts import end_attempt  # noqa: PLC0415
        from scheduler.apply.release import release_placements  # noqa: PLC0415

        self.number += 1
        if self.number < LIVES_CYCLES:
            return
        for attempt in Attempt.objects.filter(ended_at=None).order_by("pk")[:ARRIVALS]:
            end_attempt(
                attempt, ended_by=EndedBy.CANCELLED, message="", exit_code=None, now=self.now
            )
            release_placements(Placement.objects.filter(attempt=attempt), self.now)


@contextmanager
def _health(port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """`run_health` as it is shipped, over exporters that one process plays."""
    url = f"http://127.0.0.1:{port}/{{node}}/metrics"
    process = subprocess.Popen(
        [sys.executable, "manage.py", "run_health", "--skip-checks", "--cluster", "demo", "--exporter-url", url],
        cwd=ROOT, env={**os.environ, "KUBECONFIG": ""}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
        assert process.poll() is None, "the health process has died"
    finally:
        process.terminate()
        process.wait(20)


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, by Linux' /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _figures(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    return {"median": round(1e3 * statistics.median(ordered), 1), "p95": round(1e3 * p95, 1)}


def _slower(alone: dict[str, float], beside: dict[str, float], name: str) -> float:
    return round(100 * (beside[name] / alone[name] - 1), 1)
