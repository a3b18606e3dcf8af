"""How much of a core the demo uses while nothing happens: all its processes, the simulated cluster included.

`python -m benchmarks idle` starts a demo with DEMO_LOAD=0, waits for it to settle, and samples /proc for a minute.
"""

import json
import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cores_used(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """Mean share of one core by process over the given time."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {name: (cpu_seconds(pid) - before[name]) / took for name, pid in pids.items()}


def measure(pid_file: Path, seconds: float) -> dict[str, object]:
    """One JSON object's worth: the sum and each process' share."""
    used = cores_used(json.loads(pid_file.read_text()), seconds)
    return {
        "benchmark": "idle",
        "cores": round(sum(used.values()), 4),
        "seconds": seconds,
        "by_process": {name: round(share, 4) for name, share in sorted(used.items())},
    }
