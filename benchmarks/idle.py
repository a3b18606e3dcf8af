"""How much of a core the demo uses while nothing happens: all its processes, the simulated cluster included.

`python -m benchmarks idle` starts a demo with DEMO_LOAD=0, lets it settle, and samples /proc for a minute.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.stack import running_demo

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS = 10.0
SECONDS = 60.0


def results() -> Iterator[dict[str, Any]]:
    """One result: cores used in all, and by process."""
    with tempfile.TemporaryDirectory() as folder, running_demo(Path(folder)) as stack:
        time.sleep(SETTLE_SECONDS)
        used = cores_used(stack.pids(), SECONDS)
    yield {
        "cores": round(sum(used.values()), 4),
        "seconds": SECONDS,
        "by_process": {name: round(share, 4) for name, share in sorted(used.items())},
    }


def cores_used(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """Mean share of one core by process over the given time."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {name: (cpu_seconds(pid) - before[name]) / took for name, pid in pids.items()}


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far, its ended children's included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS
