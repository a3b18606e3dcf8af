"""Every page over a cluster of 512 nodes and 5,000 jobs: small, quick, and few questions to the database."""

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from queues.ids import job8_of, new_job_ids
from queues.lifecycle import Phase
from queues.models import Job, JobRole, Verdict
from scheduler.models import Gpu, MaintenanceWindow, Node
from tests.pages.operations import add_operations
from tests.pages.scene import Maker, Scene, job_row, role_row

pytestmark = pytest.mark.slow

NODES, JOBS, RUNNING = 512, 5_000, 400
MOST_BYTES, MOST_SECONDS = 500_000, 1.0
PAGES = {
    "/": ("ravi", 30),
    "/jobs/": ("ravi", 20),
    "/jobs/?view=waiting": ("admin", 20),
    "/jobs/?view=finished": ("admin", 20),
    "/jobs/?search=bulk": ("olivia", 20),
    "/jobs/{job}/": ("ravi", 20),
    "/jobs/new/": ("ravi", 20),
    "/plan/": ("admin", 26),
    "/plan/?hours=168": ("admin", 26),
    "/plan/evictions/": ("admin", 20),
    "/map/demo/": ("ravi", 20),
    "/map/demo/?zoom=spine-03": ("admin", 20),
    "/nodes/": ("ravi", 20),
    "/nodes/demo/gpu-00001/": ("ines", 20),
    "/health/": ("ines", 20),
    "/health/?state=all": ("ines", 20),
    "/health/quarantine/": ("ines", 20),
    "/clusters/": ("ines", 20),
    "/clusters/demo/": ("ines", 20),
    "/clusters/demo/levels/": ("admin", 20),
    "/clusters/demo/drain/": ("ines", 20),
    "/calendar/": ("ines", 20),
    "/calendar/{window}/": ("ines", 20),
    "/alerts/": ("ines", 20),
    "/tenants/research/quotas/": ("olivia", 24),
    "/tenants/research/queues/": ("olivia", 20),
    "/audit/": ("sam", 20),
}


def add_many(scene: Scene) -> None:
    """440 nodes more, full of running gangs; jobs that wait and that ended, up to 5,000."""
    start = len(scene.nodes)
    more = [_node(scene, index) for index in range(start, NODES)]
    Node.objects.bulk_create(more)
    scene.nodes += more
    Gpu.objects.bulk_create(
        Gpu(
            cluster=scene.cluster,
            node=node,
            uuid=f"GPU-{node.name}-{index}",
            index=index,
            since=scene.now,
            seen_at=scene.now,
            utilisation=93.0,
            temperature_c=61.0,
        )
        for node in more
        for index in range(8)
    )
    make = Maker(scene)
    for index in range(RUNNING):
        job = make.waits("ravi" if index % 2 else "mei", f"bulk-run-{index}", (1, 8), 60 + index)
        make.runs(job, start + index)
    make.rows.write(scene)
    _jobs(scene, JOBS - len(scene.jobs))


def _node(scene: Scene, index: int) -> Node:
    return Node(
        cluster=scene.cluster,
        name=f"gpu-{index:05d}",
        uid=f"uid-{index}",
        flavor=scene.flavors["h100"],
        gpus_capacity=8,
        gpus_allocatable=8,
        cpu_millis=192_000,
        memory_mib=2_097_152,
        pods=110,
        domains={"spine": f"spine-{index // 128:02d}", "leaf": f"leaf-{index // 16:02d}"},
        driver="570.86.15",
        cuda="12.8",
        ready=True,
        observed_at=scene.now,
    )


def _jobs(scene: Scene, n: int) -> None:
    """Two in five wait in 20 classes, the others ended."""
    rows = []
    ids = list(new_job_ids(scene.now - timedelta(hours=5), n))
    for index, job_id in enumerate(ids):
        job = job_row(
            scene, "ravi" if index % 3 else "mei", f"bulk-{index}", ago=timedelta(hours=4)
        )
        job.id, job.job8 = job_id, job8_of(job_id)
        if index % 5 < 2:
            job.class_key, job.reason_code = f"bulk-{index % 20}", "waiting_for_nodes"
        else:
            job.phase, job.outcome, job.reason_code = Phase.FINISHED, "succeeded", ""
            job.finished_at = scene.now - timedelta(minutes=index % 200)
        rows.append(job)
    Job.objects.bulk_create(rows)
    JobRole.objects.bulk_create(role_row(job, 1 + index % 8, 8) for index, job in enumerate(rows))
    numbers = {"flavor": "h100", "needed_gpus": 64, "free_gpus": 8}
    Verdict.objects.bulk_create(
        Verdict(
            cluster=scene.cluster,
            class_key=f"bulk-{index}",
            reasons=[{"code": "waiting_for_nodes", "numbers": numbers}],
            first_job=rows[0].pk,
            since=scene.now,
        )
        for index in range(20)
    )


def test_pages_stay_small_and_quick_with_many_rows(scene, sign_in):
    add_operations(scene)
    add_many(scene)
    assert Job.objects.count() == JOBS
    assert Node.objects.count() == NODES
    names = {"job": scene.jobs["pretrain-7b"].pk, "window": MaintenanceWindow.objects.all()[0].pk}
    too_much = []
    for path, (user, most_queries) in PAGES.items():
        client = sign_in(user)
        where = path.format(**names)
        client.get(where)  # templates are read once in the life of a process
        with CaptureQueriesContext(connection) as queries:
            began = time.process_time()
            answer = client.get(where)
            seconds = time.process_time() - began
        assert answer.status_code == 200, where
        size = len(answer.content)
        print(f"{where:40} {size // 1024:5} KB {seconds * 1000:6.0f} ms {len(queries):3} queries")
        if size > MOST_BYTES or seconds > MOST_SECONDS or len(queries) > most_queries:
            too_much.append((where, size, round(seconds, 2), len(queries)))
    assert not too_much
