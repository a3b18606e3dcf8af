"""The loop alone on a database of its own: how many gangs a second it commits, and how old verdicts get meanwhile.

`python -m benchmarks loop` runs on SQLite in a temporary folder; with DATABASE_URL set, on that (empty) database.
No cluster process, no pods: what is measured is from waiting rows to placements and seats.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

BATCHES, BATCH = 20, 500
WATCHED_SECONDS = 40.0

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

    world = _full_cluster()
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "bench")
    _took, now = _until_idle(loop, rows.NOW)
    _add_a_line(world)
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


def verdict_age() -> dict[str, Any]:
    """The real pulse over 10,000 waiting jobs while ten more come each second: how old do verdicts get?

    The age is that of the cluster's row; `estimates` are those that were told by then, for the first 1,000.
    """
    from django.utils import timezone  # noqa: PLC0415

    from queues.models import Estimate  # noqa: PLC0415
    from scheduler.loop.pulse import Pulse  # noqa: PLC0415
    from scheduler.models import ClusterState  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    world = _full_cluster()
    _add_a_line(world)
    pulse = Pulse()
    pulse.start()
    ages: list[float] = []
    began = told_after = 0.0
    while not began or time.perf_counter() - began < WATCHED_SECONDS:
        considered_at = ClusterState.objects.values_list("considered_at", flat=True).get()
        if considered_at is not None:
            began = began or time.perf_counter()
            ages.append((timezone.now() - considered_at).total_seconds())
            if not told_after and Estimate.objects.count() >= 1_000:
                told_after = time.perf_counter() - began
            if len(ages) % 4 == 0:
                rows.add_jobs(world, 10, replicas=3)
        time.sleep(0.25)
    pulse.stop()
    return {
        "jobs": 10_000,
        "age_p95_s": round(sorted(ages)[int(0.95 * len(ages))], 2),
        "age_max_s": round(max(ages), 2),
        "estimates": Estimate.objects.count(),
        "first_1000_estimates_after_s": round(told_after, 1) or None,
    }


def _full_cluster() -> Any:
    """1,024 nodes, each taken by a gang of eight once the loop has run."""
    from tests.scheduler import rows  # noqa: PLC0415

    _emptied()
    world = rows.make_world(1_024, quota=100_000)
    rows.add_jobs(world, 128, replicas=8, max_runtime_seconds=86_400)
    return world


def _add_a_line(world: Any) -> None:
    from tests.scheduler import rows  # noqa: PLC0415

    for shape in range(100):
        rows.add_jobs(
            world,
            100,
            replicas=1 + shape % 10,
            priority=300 + shape,
            max_runtime_seconds=3_600 * (1 + shape % 7),
        )


def batch_submission() -> dict[str, Any]:
    """10,000 jobs by `POST jobs/batch/`, 500 a request, through the whole of the web process but its sockets."""
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


def snapshot_from_rows() -> dict[str, Any]:
    """Read 10,000 nodes, 5,000 running gangs and 10,000 waiting jobs in 300 shapes: cold, median of 5; then warm."""
    from scheduler.snapshot.warm import WarmSnapshot  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    _emptied()
    world = rows.make_world(10_000, quota=100_000)
    _run_gangs(world, 5_000)
    for shape in range(300):
        count = 34 if shape < 100 else 33
        rows.add_jobs(world, count, replicas=1 + shape % 60, priority=400 + shape)

    def read() -> Any:
        warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
        warm.refresh()
        return warm, warm.snapshot(rows.NOW.timestamp())

    walls, cpus = [], []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        warm, made = read()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    rows.add_jobs(world, 100)
    began = time.perf_counter()
    warm.refresh()
    warm.snapshot(rows.NOW.timestamp())
    return {
        "nodes": len(made.nodes),
        "running": len(made.running),
        "waiting": len(made.waiting),
        "seconds_p50": round(statistics.median(walls), 2),
        "seconds_max": round(max(walls), 2),
        "cpu_s_p50": round(statistics.median(cpus), 2),
        "after_100_changes_s": round(time.perf_counter() - began, 3),
    }


def _run_gangs(world: Any, count: int) -> None:
    """Gangs of two nodes of eight, side by side, as rows of jobs that run."""
    from queues.models import Attempt, JobRole, Placement  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    jobs = rows.add_jobs(world, count, replicas=2, phase="running", attempt_number=1)
    made = [
        Attempt(
            job=job,
            number=1,
            cluster=world.cluster,
            flavor=world.flavor,
            placed_at=rows.NOW,
            started_at=rows.NOW,
        )
        for job in jobs
    ]
    attempts = Attempt.objects.bulk_create(made, batch_size=500)
    roles = dict(JobRole.objects.filter(job__phase="running").values_list("job_id", "pk"))
    Placement.objects.bulk_create(
        [
            Placement(
                attempt=attempt,
                role_id=roles[attempt.job_id],
                replica=replica,
                rank=replica,
                node=f"gpu-{2 * number + replica:05d}",
                gpus=8,
                cpu_millis=8_000,
                memory_mib=64_000,
                pod_name="pod",
            )
            for number, attempt in enumerate(attempts)
            for replica in range(2)
        ],
        batch_size=500,
    )


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "single_gpu_jobs": single_gpu_jobs,
    "many_single_gpu_jobs": many_single_gpu_jobs,
    "gangs": gangs,
    "large_gang": large_gang,
    "waiting_jobs": waiting_jobs,
    "verdict_age": verdict_age,
    "batch_submission": batch_submission,
    "snapshot_from_rows": snapshot_from_rows,
}

if __name__ == "__main__":
    if named := sys.argv[1:]:
        CASES = {name: CASES[name] for name in named}
    for result in results():
        print(result, flush=True)
