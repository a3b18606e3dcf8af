"""From submission to the last pod bound, on the production profile, beside a simulated cluster of 512 nodes x 8 GPUs.

`python -m benchmarks bind`: one gang of 512 pods, 64 gangs of 8 pods in required leaves, 4,000 jobs of one GPU sent
by `jobs/batch/`. Each result says where the time went: seconds since the submission began, and processor seconds
by process meanwhile.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.bound import PodTimes, PodWatch
from benchmarks.installation import TOKEN, Production, production
from tests.e2e.api import Api, job
from tests.e2e.stack import wait_until

NODES = 512
BATCH = 500
LONGEST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is submitted. most_seconds: the promise for the last pod bound; run_seconds: how long a pod runs then."""

    name: str
    jobs: int
    pods: int
    most_seconds: float
    run_seconds: int
    submit: Callable[[Api, int], list[str]]


def one_gang(api: Api, run_seconds: int) -> list[str]:
    """512 pods of 8 GPUs."""
    return [api.submit(**_common(run_seconds, replicas=NODES))["id"]]


def gangs_in_leaves(api: Api, run_seconds: int) -> list[str]:
    """64 gangs of 8 pods of 8 GPUs, each within one leaf."""
    leaf = {"level": "leaf", "mode": "required"}
    return _in_batches(api, [_common(run_seconds, replicas=8, topology=leaf) for _ in range(64)])


def single_gpus(api: Api, run_seconds: int) -> list[str]:
    """4,000 jobs of one GPU."""
    small = {"gpus_per_replica": 1, "cpu_per_replica": "8", "memory_per_replica": "64Gi"}
    return _in_batches(api, [_common(run_seconds, replicas=1, **small) for _ in range(4000)])


SCENARIOS = (
    Scenario("one_gang_of_512", 1, 512, 4.0, 10, one_gang),
    Scenario("64_gangs_of_8_in_leaves", 64, 512, 4.0, 10, gangs_in_leaves),
    # None of them ends while others are still to be bound.
    Scenario("4000_jobs_of_one_gpu", 4000, 4000, 45.0, 60, single_gpus),
)


def _common(run_seconds: int, **fields: Any) -> dict[str, Any]:
    common = {"tenant": "default", "queue": "default", "name": "bench"}
    return {**common, "run_seconds": run_seconds, **fields}


def _in_batches(api: Api, jobs: Sequence[dict[str, Any]]) -> list[str]:
    made: list[str] = []
    for start in range(0, len(jobs), BATCH):
        bodies = [job(**fields) for fields in jobs[start : start + BATCH]]
        made += [answer["id"] for answer in api.submit_many(bodies)]
    return made


def results() -> Iterator[dict[str, Any]]:
    """One result a scenario."""
    yield from measured(SCENARIOS)


def measured(scenarios: Sequence[Scenario]) -> Iterator[dict[str, Any]]:
    """One installation, one scenario after the other; each ends before the next begins."""
    with tempfile.TemporaryDirectory() as folder, production(Path(folder), NODES) as running:
        # The first job of a tenant also makes its namespace.
        warm_up = running.installation.api.submit(**_common(1, replicas=8))
        finish(running, [warm_up["id"]])
        for scenario in scenarios:
            yield measure(running, scenario)


def measure(running: Production, scenario: Scenario) -> dict[str, Any]:
    """Submit, wait until all pods are bound, then see the jobs off."""
    with PodWatch(running.cluster.url, TOKEN) as watch:
        used = running.cpu_seconds()
        began, began_at = time.monotonic(), time.time()
        jobs = scenario.submit(running.installation.api, scenario.run_seconds)
        submitted = time.monotonic()
        # The first test costs nothing; the second leaves out pods of the scenario before.
        wait_until(
            lambda: (
                len(watch.times.bound) >= scenario.pods
                and len(watch.times.of(jobs).bound) == scenario.pods
            ),
            LONGEST_SECONDS,
        )
        times = watch.times.of(jobs)
        cpu = {
            name: seconds - used.get(name, 0.0) for name, seconds in running.cpu_seconds().items()
        }
    took = max(times.bound.values()) - began
    result = {
        "scenario": scenario.name,
        "jobs": scenario.jobs,
        "pods": scenario.pods,
        "seconds": round(took, 2),
        "most_seconds": scenario.most_seconds,
        "kept": took <= scenario.most_seconds,
        "at_seconds": {
            "submitted": round(submitted - began, 2),
            **placed_at(running, jobs, began_at),
            **seen_at(times, began),
        },
        "cpu_seconds": {
            name: round(seconds, 2) for name, seconds in sorted(cpu.items()) if seconds >= 0.05
        },
    }
    finish(running, jobs)
    # Ends come over as many seconds as starts did; what is beyond that is the way from a pod's end to the job's.
    result["last_end_lag_seconds"] = round(
        time.monotonic() - max(times.bound.values()) - scenario.run_seconds, 2
    )
    return result


def placed_at(running: Production, jobs: Sequence[str], began_at: float) -> dict[str, float]:
    """When the first and the last job were placed, by the rows."""
    query = "SELECT min(placed_at), max(placed_at) FROM queues_attempt WHERE job_id = ANY(%s)"
    with psycopg.connect(running.database_url) as connection:
        row = connection.execute(query, [list(jobs)]).fetchone()
    assert row is not None
    first, last = (moment.timestamp() - began_at for moment in row)
    return {"first_placed": round(first, 2), "last_placed": round(last, 2)}


def seen_at(times: PodTimes, began: float) -> dict[str, float]:
    """First and last of what the API showed."""
    found = {}
    for name, moments in (("created", times.created), ("bound", times.bound)):
        found[f"first_{name}"] = round(min(moments.values()) - began, 2)
        found[f"last_{name}"] = round(max(moments.values()) - began, 2)
    return found


def finish(running: Production, jobs: Sequence[str]) -> None:
    """Wait until all are over."""
    query = "SELECT count(*) FROM queues_job WHERE id = ANY(%s) AND phase <> 'finished'"
    with psycopg.connect(running.database_url, autocommit=True) as connection:

        def over() -> bool:
            row = connection.execute(query, [list(jobs)]).fetchone()
            return row is not None and row[0] == 0

        wait_until(over, LONGEST_SECONDS)
