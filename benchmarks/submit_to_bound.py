"""From `POST jobs/` answered to all pods bound, for a 64-GPU job on the idle demo. As the Kubernetes API saw it.

`python -m benchmarks submit_to_bound`
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, running_demo, wait_until
from tests.e2e.witness import Witness

RUNS = 20


def results() -> Iterator[dict[str, Any]]:
    """One result: median, the slowest, and each run, in seconds."""
    with tempfile.TemporaryDirectory() as folder, running_demo(Path(folder)) as stack:
        took = measure(stack, RUNS)
    yield {
        "runs": RUNS,
        "median_s": round(statistics.median(took), 3),
        "max_s": round(max(took), 3),
        "all_s": [round(seconds, 3) for seconds in took],
    }


def measure(stack: Stack, runs: int) -> list[float]:
    """Seconds from the answer to the last binding, run by run on an idle cluster."""
    api = stack.api("ravi")
    with Witness(stack.kubeconfig) as witness:
        return [one_run(api, witness) for _ in range(runs)]


def one_run(api: Any, witness: Witness) -> float:
    """Submit, watch, wait until it is over."""
    job = api.submit(name="bench", replicas=8, run_seconds=1)
    answered = time.monotonic()
    wait_until(lambda: len(bound_at(witness, job["id"])) == 8, 30)
    last = max(bound_at(witness, job["id"]).values())
    api.until(job["id"], "finished", 60)
    return max(0.0, last - answered)


def bound_at(witness: Witness, job_id: str) -> dict[str, float]:
    """When each pod of the job was first seen bound, by pod."""
    found: dict[str, float] = {}
    for seen in list(witness.sightings):
        if seen.job == job_id and seen.node:
            found.setdefault(seen.uid, seen.at)
    return found
