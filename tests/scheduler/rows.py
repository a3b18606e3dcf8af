"""Rows for tests of the scheduler: a cluster with leaves and spines, tenants with quota, queues, waiting jobs.

Writes like the product's services do: each change with the event that says so.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Max
from django.utils import timezone

from controlplane.common import log
from queues.models import Cluster, Flavor, Job, JobRole, Level, Placement, Queue, Quota
from queues.models.quotas import QueueFlavor
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import ClusterState, ForeignPod, Node
from tenants.models import Cohort, Tenant, User

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
H100 = "NVIDIA-H100-80GB-HBM3"


@dataclass(slots=True)
class World:
    """One cluster and what is around it."""

    cluster: Cluster
    flavor: Flavor
    queues: dict[str, Queue] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    jobs_made: int = 0


def make_world(
    nodes: int = 16, *, nodes_per_leaf: int = 16, leaves_per_spine: int = 2, quota: int = 4096
) -> World:
    """A cluster `demo` in mode schedule with `nodes` nodes of 8 H100, and queues research/train, vision/train."""
    cluster = Cluster.objects.create(name="demo", mode="schedule", created_at=NOW)
    # As if the cluster process were there for as long as any test's clock runs.
    heard_at = NOW + timedelta(days=365)
    ClusterState.objects.create(cluster=cluster, watch="live", watch_since=NOW, heard_at=heard_at)
    for position, name in enumerate(("spine", "leaf")):
        Level.objects.create(
            cluster=cluster, name=name, node_label=f"net.example/{name}", position=position
        )
    flavor = Flavor.objects.create(
        cluster=cluster, name="h100", resource_name="nvidia.com/gpu", model=H100
    )
    world = World(cluster, flavor)
    add_nodes(world, nodes, nodes_per_leaf=nodes_per_leaf, leaves_per_spine=leaves_per_spine)
    cohort = Cohort.objects.create(name="shared")
    for slug, user in (("research", "ravi"), ("vision", "mei")):
        add_tenant(world, slug, user, cohort, quota)
    return world


def add_nodes(
    world: World, count: int, *, nodes_per_leaf: int, leaves_per_spine: int, first: int = 0
) -> None:
    """Nodes `gpu-00000` and on, in leaves and spines."""
    rows = []
    for number in range(first, first + count):
        leaf = number // nodes_per_leaf
        rows.append(
            Node(
                cluster=world.cluster,
                name=f"gpu-{number:05d}",
                uid=f"uid-{number}",
                flavor=world.flavor,
                gpus_capacity=8,
                gpus_allocatable=8,
                cpu_millis=128_000,
                memory_mib=2_000_000,
                pods=110,
                domains={
                    "leaf": f"leaf-{leaf:02d}",
                    "spine": f"spine-{leaf // leaves_per_spine:02d}",
                },
                labels={"nvidia.com/gpu.product": H100},
                driver="550.54",
                cuda="12.4",
                ready=True,
                observed_at=NOW,
            )
        )
    with log.writing():
        Node.objects.bulk_create(rows, batch_size=500)
        log.record(log.NewEvent(kind="node.changed", at=NOW, cluster=world.cluster.name))


def add_tenant(world: World, slug: str, user: str, cohort: Cohort | None, quota: int) -> Queue:
    """A tenant with one member and a queue `train` on the world's cluster."""
    tenant = Tenant.objects.create(slug=slug, name=slug.title(), cohort=cohort, created_at=NOW)
    Quota.objects.create(tenant=tenant, flavor=world.flavor, nominal=quota)
    queue = Queue.objects.create(tenant=tenant, cluster=world.cluster, name="train", created_at=NOW)
    QueueFlavor.objects.create(queue=queue, flavor=world.flavor)
    world.queues[slug] = queue
    world.users[slug] = User.objects.create(username=user)
    return queue


def add_jobs(world: World, count: int, tenant: str = "research", **asked: Any) -> list[Job]:
    """`count` pending jobs alike. `asked`: fields of Job and JobRole; unknown ones are an error."""
    role_fields = {f.name for f in JobRole._meta.get_fields()}
    role = {name: value for name, value in asked.items() if name in role_fields and name != "id"}
    job = {name: value for name, value in asked.items() if name not in role}
    replicas = role.setdefault("replicas", 1)
    role.setdefault("min_replicas", replicas)
    jobs = [_job(world, tenant, job) for _ in range(count)]
    with log.writing():
        Job.objects.bulk_create(jobs, batch_size=500)
        JobRole.objects.bulk_create([_role(made, role) for made in jobs], batch_size=500)
        log.record(*(job_event("job.submitted", made) for made in jobs))
    return jobs


def add_job(world: World, tenant: str = "research", **asked: Any) -> Job:
    """One pending job."""
    return add_jobs(world, 1, tenant, **asked)[0]


def _job(world: World, tenant: str, asked: dict[str, Any]) -> Job:
    world.jobs_made += 1
    queue = world.queues[tenant]
    number = world.jobs_made
    return Job(
        **{
            "id": f"job_{number:026d}",
            "job8": f"j{number:08d}",
            "tenant": queue.tenant,
            "queue": queue,
            "user": world.users[tenant],
            "name": f"job-{number}",
            "submitted_at": NOW + timedelta(seconds=number),
        }
        | asked
    )


def _role(job: Job, asked: dict[str, Any]) -> JobRole:
    return JobRole(
        **{
            "job": job,
            "position": 0,
            "name": "main",
            "gpus_per_replica": 8,
            "cpu_millis_per_replica": 8_000,
            "memory_mib_per_replica": 64_000,
            "image": "registry.example/train:1",
        }
        | asked
    )


def job_event(kind: str, job: Job, at: datetime = NOW) -> log.NewEvent:
    """An event of a job as services write it."""
    return log.NewEvent(kind=kind, at=at, tenant=job.tenant.slug, job=job.pk)


def touch(job: Job, kind: str = "attempt.checkpoint") -> None:
    """Say that something about a job's rows has changed."""
    with log.writing():
        log.record(job_event(kind, job))


def change_node(world: World, name: str, **changes: Any) -> None:
    """Change a node's row as the cluster process does."""
    with log.writing():
        Node.objects.filter(cluster=world.cluster, name=name).update(**changes)
        log.record(log.NewEvent(kind="node.changed", at=NOW, cluster=world.cluster.name, node=name))


def add_foreign_pod(world: World, node: str, *, gpus: int, tenant: str | None = None) -> ForeignPod:
    """A stranger's pod on a node."""
    with log.writing():
        number = (ForeignPod.objects.aggregate(last=Max("pk"))["last"] or 0) + 1
        pod = ForeignPod.objects.create(
            cluster=world.cluster,
            uid=f"foreign-{number}",
            namespace=f"muster-{tenant}" if tenant else "kube-system",
            name=f"foreign-{number}",
            node=node,
            tenant=Tenant.objects.get(slug=tenant) if tenant else None,
            gpus=gpus,
            cpu_millis=1_000,
            memory_mib=1_000,
            seen_at=NOW,
        )
        log.record(log.NewEvent(kind="node.changed", at=NOW, cluster=world.cluster.name, node=node))
    return pod


def nodes_of(job: Job) -> list[str]:
    """The nodes that hold a job's unreleased placements, in rank order."""
    rows = Placement.objects.filter(attempt__job=job, released_at__isnull=True)
    return list(rows.order_by("rank").values_list("node", flat=True))


def settle(world: World) -> None:
    """Plan until nothing is left to be done."""
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while loop.tick(timezone.now()) is Tick.CYCLED:
        pass
    loop.stop()
