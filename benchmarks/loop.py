"""The loop alone on a database of its own: how many gangs a second it commits, and how old verdicts get meanwhile.

`python -m benchmarks loop` runs on SQLite in a temporary folder; with DATABASE_URL set, on that (empty) database.
No cluster process, no pods: what is measured is from waiting rows to placements and seats.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

BATCHES, BATCH = 10, 1_000

# Django's own imports are made in the functions below, once its settings are known.


def results() -> Iterator[dict[str, Any]]:
    """One result a case: jobs a second, the longest cycle, rows."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VAR"] = folder
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        _prepare()
        for case in CASES:
            yield _measured(case)


def _prepare() -> None:
    import django  # noqa: PLC0415
    from django.core.management import call_command  # noqa: PLC0415

    django.setup()
    call_command("migrate", verbosity=0)


def _measured(case: str) -> dict[str, Any]:
    from django.db import connection  # noqa: PLC0415

    found = CASES[case]()
    return {"case": case, "database": connection.vendor, **found}


def _emptied() -> None:
    from django.core.management import call_command  # noqa: PLC0415

    call_command("flush", verbosity=0, interactive=False)


def _until_idle(loop: Any, now: datetime) -> tuple[list[float], datetime]:
    """Tick until nothing is left to do; seconds of each cycle. A virtual second passes with each."""
    from scheduler.loop.cycle import Tick  # noqa: PLC0415

    took: list[float] = []
    while True:
        began = time.perf_counter()
        came_to = loop.tick(now)
        if came_to is not Tick.CYCLED:
            return took, now
        took.append(time.perf_counter() - began)
        now += timedelta(seconds=1)


def _starts(count: int, nodes: int, **asked: Any) -> dict[str, Any]:
    from queues.models import Placement  # noqa: PLC0415
    from scheduler.loop.cycle import ClusterLoop  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    _emptied()
    world = rows.make_world(nodes, quota=100_000)
    rows.add_jobs(world, count, **asked)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "bench")
    began, used = time.perf_counter(), time.process_time()
    took, _now = _until_idle(loop, rows.NOW)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    loop.stop()
    return {
        "jobs": count,
        "cpu_s": round(used, 2),
        "placements": Placement.objects.count(),
        "seconds": round(seconds, 2),
        "jobs_a_second": round(count / seconds, 1),
        "cycles": len(took),
        "longest_cycle_s": round(max(took), 2),
    }


def single_gpu_jobs() -> dict[str, Any]:
    """2,000 jobs of one GPU on 256 nodes."""
    return _starts(2_000, 256, gpus_per_replica=1)


def many_single_gpu_jobs() -> dict[str, Any]:
    """4,000 jobs of one GPU on 640 nodes."""
    return _starts(4_000, 640, gpus_per_replica=1)


def gangs() -> dict[str, Any]:
    """64 gangs of 8 × 8 GPUs, each in one leaf, on 640 nodes."""
    return _starts(64, 640, replicas=8, topology_level="leaf", topology_mode="required")


def large_gang() -> dict[str, Any]:
    """One gang of 512 × 8 GPUs on 640 nodes."""
    return _starts(1, 640, replicas=512)


def waiting_jobs() -> dict[str, Any]:
    """10,000 jobs in 100 shapes wait behind a full cluster of 1,024 nodes: from the first tick to a reason for all."""
    from queues.models import Job  # noqa: PLC0415
    from scheduler.loop.cycle import ClusterLoop  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    _emptied()
    world = rows.make_world(1_024, quota=100_000)
    rows.add_jobs(world, 128, replicas=8)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "bench")
    _took, now = _until_idle(loop, rows.NOW)
    for shape in range(100):
        rows.add_jobs(world, 100, replicas=1 + shape % 10, priority=400 + shape)
    began = time.perf_counter()
    took, _now = _until_idle(loop, now)
    seconds = time.perf_counter() - began
    loop.stop()
    waiting = Job.objects.filter(phase="pending")
    return {
        "jobs": waiting.count(),
        "without_reason": waiting.filter(reason_code__in=["", "not_yet_considered"]).count(),
        "seconds": round(seconds, 2),
        "longest_cycle_s": round(max(took), 2),
    }


def batch_submission() -> dict[str, Any]:
    """10,000 jobs by `POST jobs/batch/`, 1,000 a request, through the whole of the web process but its sockets."""
    from queues.models import Job  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415
    from tests.scheduler.people import add_people, client, payload  # noqa: PLC0415

    _emptied()
    world = rows.make_world(64, quota=100_000)
    add_people(world)
    ravi = client("ravi")
    began, used = time.perf_counter(), time.process_time()
    for batch in range(BATCHES):
        jobs = [payload(name=f"job-{batch}-{number}") for number in range(BATCH)]
        answer = ravi.post(
            "/api/v1/jobs/batch/", {"jobs": jobs}, format="json", headers={"host": "127.0.0.1"}
        )
        assert answer.status_code in (200, 201, 207), answer.content[:300]
    return {
        "jobs": Job.objects.count(),
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - used, 2),
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "single_gpu_jobs": single_gpu_jobs,
    "many_single_gpu_jobs": many_single_gpu_jobs,
    "gangs": gangs,
    "large_gang": large_gang,
    "waiting_jobs": waiting_jobs,
    "batch_submission": batch_submission,
}

if __name__ == "__main__":
    if named := sys.argv[1:]:
        CASES = {name: CASES[name] for name in named}
    for result in results():
        print(result, flush=True)
