"""Rows for tests of windows: a cluster of leaves (`tests.scheduler.rows`), windows on them, jobs that run there."""

from datetime import datetime, timedelta
from typing import Any

from controlplane.common import log
from queues.models import Attempt, Job, Placement
from queues.services.attempts import begin_attempt, mark_running
from scheduler.models import MaintenanceWindow, Node, Seat
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

HOUR = timedelta(hours=1)


def leaf(name: str = "leaf-01") -> dict[str, Any]:
    """The selector of one leaf."""
    return {"names": [], "domains": [{"level": "leaf", "name": name}], "labels": {}, "flavor": None}


def add_window(world: World, **changes: Any) -> MaintenanceWindow:
    """A 2-hour maintenance window on leaf-01, 2 hours from NOW."""
    return MaintenanceWindow.objects.create(
        **{
            "title": "New driver",
            "cluster": world.cluster,
            "kind": "maintenance",
            "starts_at": NOW + 2 * HOUR,
            "ends_at": NOW + 4 * HOUR,
            "nodes": leaf(),
            "crossing": "checkpointable",
            "running_jobs": "checkpoint",
            "created_by": "ines",
            "created_at": NOW,
            "changed_by": "ines",
            "changed_at": NOW,
        }
        | changes
    )


def run_gang(
    world: World,
    nodes: list[int],
    *,
    now: datetime = NOW,
    tenant: str = "research",
    job: Job | None = None,
    **asked: Any,
) -> Attempt:
    """A gang with one replica of 8 GPUs on each node, placed and running since `now`."""
    job = job or rows.add_job(world, tenant, replicas=len(nodes), **asked)
    with log.writing():
        attempt = begin_attempt(
            job,
            cluster=world.cluster,
            flavor=world.flavor,
            asked_level="leaf",
            achieved_level="leaf",
            now=now,
        )
        for replica, number in enumerate(nodes):
            node = Node.objects.get(cluster=world.cluster, name=f"gpu-{number:05d}")
            placement = Placement.objects.create(
                attempt=attempt,
                role=job.roles.get(),
                replica=replica,
                rank=replica,
                node=node.name,
                gpus=8,
                cpu_millis=8_000,
                memory_mib=64_000,
                domains=node.domains,
                pod_name=f"{job.job8}-{attempt.number}-main-{replica}-1",
            )
            Seat.objects.bulk_create(
                [Seat(node=node, index=index, placement=placement) for index in range(8)]
            )
    mark_running(attempt, now=now)
    attempt.refresh_from_db()
    return attempt
