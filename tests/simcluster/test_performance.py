"""Floors under the figures of the simulated cluster, by processor time, so that a busy machine
does not matter. `benchmarks/simcluster.py` prints the whole figures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
START = """
import json, sys, time
from pathlib import Path
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import load_profile, uniform_profile
name = sys.argv[1]
cluster = SimCluster(uniform_profile(int(name)) if name.isdigit() else load_profile(name))
# Not ru_maxrss: that starts at the peak of the process that forked this one.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"seconds": time.process_time(), "mib": int(status["VmHWM"].split()[0]) / 1024,
                  "nodes": len(cluster.fleet.kubelets)}))
"""


@pytest.mark.parametrize(
    ("profile", "nodes", "seconds", "mib"), [("1000", 1000, 5, 300), ("mixed-4000", 4000, 20, 1024)]
)
def test_large_clusters_start_in_time_and_stay_small(
    profile: str, nodes: int, seconds: float, mib: float
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, profile], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = json.loads(done.stdout)
    assert found["nodes"] == nodes
    assert found["seconds"] < seconds
    assert found["mib"] < mib


def per_processor_second() -> tuple[int, int]:
    """Creations and bindings that the server does in a second of its processor."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.simcluster", "--quick", "--only", "create"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    figures = {line["benchmark"]: line for line in lines}
    return tuple(
        figures[f"simcluster.{name}"]["per_server_cpu_second"] for name in ("create", "bind")
    )


def test_one_processor_second_serves_1200_creations_or_bindings() -> None:
    tries: list[tuple[int, int]] = []
    while len(tries) < 3 and not _reaches(tries, 1200):  # neighbours on the machine cost cache
        tries.append(per_processor_second())
    assert _reaches(tries, 1200), tries


def _reaches(tries: list[tuple[int, int]], floor: int) -> bool:
    return bool(tries) and all(max(column) >= floor for column in zip(*tries, strict=True))


def test_twenty_watchers_keep_up_with_500_changes_a_second() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.simcluster", "--quick", "--only", "watch"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["fewest"] == found["changes"]
    assert found["p99_ms"] < 2000
