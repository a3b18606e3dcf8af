"""Rows for tests, made with the fewest words: plain functions, each with sensible rest. No magic, no randomness
but the ids'.

    tenant = make_tenant("research"); ravi = make_member(tenant, "ravi"); queue = make_queue(tenant)
    job = make_job(queue, ravi, replicas=8)
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.common import log
from queues.ids import job8_of, new_job_ids
from queues.lifecycle import Phase
from queues.models import (
    Attempt,
    Cluster,
    ClusterMode,
    Flavor,
    Job,
    JobRole,
    Level,
    Placement,
    Preset,
    Queue,
    QueueFlavor,
    Quota,
)
from queues.services.attempts import begin_attempt, mark_running
from tenants.access import Actor
from tenants.models import Cohort, Membership, PlatformRole, Secret, Tenant, TenantRole, User

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
H100 = "NVIDIA-H100-80GB-HBM3"
A100 = "NVIDIA-A100-SXM4-80GB"


def later(seconds: float) -> datetime:
    """So many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def make_user(name: str, platform_role: PlatformRole = PlatformRole.NONE) -> User:
    """A user who cannot log in by password; the same name gives the same user."""
    user, _made = User.objects.get_or_create(
        username=name, defaults={"platform_role": platform_role, "password": "!"}
    )
    return user


def make_tenant(slug: str = "research", cohort: str | None = None) -> Tenant:
    """A tenant without members and quota."""
    in_cohort = Cohort.objects.get_or_create(name=cohort)[0] if cohort else None
    tenant, _made = Tenant.objects.get_or_create(
        slug=slug, defaults={"name": slug.title(), "cohort": in_cohort, "created_at": NOW}
    )
    return tenant


def make_member(
    tenant: Tenant, name: str = "ravi", role: TenantRole = TenantRole.SUBMITTER
) -> User:
    """A user with a role in the tenant."""
    user = make_user(name)
    Membership.objects.update_or_create(
        tenant=tenant, user=user, defaults={"role": role, "created_at": NOW}
    )
    return user


def make_cluster(name: str = "demo", mode: ClusterMode = ClusterMode.SCHEDULE) -> Cluster:
    """A cluster with the levels spine and leaf."""
    cluster, made = Cluster.objects.get_or_create(
        name=name, defaults={"mode": mode, "created_at": NOW}
    )
    if made:
        for position, level in enumerate(("spine", "leaf")):
            Level.objects.create(
                cluster=cluster,
                name=level,
                node_label=f"topology.muster.dev/{level}",
                position=position,
            )
    return cluster


def make_flavor(cluster: Cluster, name: str = "h100", model: str = H100, **changes: Any) -> Flavor:
    """A flavor whose nodes have 8 GPUs, 192 CPUs and 2 TiB."""
    sizes = {"gpus_per_node": 8, "cpu_millis_per_node": 192_000, "memory_mib_per_node": 2_097_152}
    flavor, _made = Flavor.objects.get_or_create(
        cluster=cluster,
        name=name,
        defaults={"resource_name": "nvidia.com/gpu", "model": model} | sizes | changes,
    )
    return flavor


def make_queue(
    tenant: Tenant,
    name: str = "train",
    flavors: list[Flavor] | None = None,
    *,
    nominal: int = 256,
    **changes: Any,
) -> Queue:
    """A queue on the cluster `demo` with these flavors (one H100 by default) and quota for each."""
    flavors = flavors or [make_flavor(make_cluster())]
    queue = Queue.objects.create(
        tenant=tenant, cluster=flavors[0].cluster, name=name, created_at=NOW, **changes
    )
    for position, flavor in enumerate(flavors):
        QueueFlavor.objects.create(queue=queue, flavor=flavor, position=position)
        Quota.objects.get_or_create(tenant=tenant, flavor=flavor, defaults={"nominal": nominal})
    return queue


def make_secret(tenant: Tenant, name: str, kind: str = "opaque") -> Secret:
    """A secret whose value nobody can read: for jobs that only name it."""
    return Secret.objects.create(
        tenant=tenant,
        name=name,
        kind=kind,
        encrypted_value=b"",
        created_at=NOW,
        changed_at=NOW,
    )


def make_preset(name: str, flavor: Flavor | None = None) -> Preset:
    """A preset that adds nothing."""
    preset, _made = Preset.objects.get_or_create(name=name, defaults={"flavor": flavor})
    return preset


def make_job(
    queue: Queue,
    user: User,
    *,
    name: str = "pretrain",
    replicas: int = 1,
    gpus: int = 8,
    submitted_at: datetime = NOW,
    **changes: Any,
) -> Job:
    """A pending job with one role, stored without passing through validation."""
    job_id = next(new_job_ids(submitted_at, 1))
    job = Job.objects.create(
        id=job_id,
        job8=job8_of(job_id),
        tenant=queue.tenant,
        queue=queue,
        user=user,
        name=name,
        submitted_at=submitted_at,
        **{"reason_code": "not_yet_considered", "reason_since": submitted_at} | changes,
    )
    JobRole.objects.create(
        job=job,
        position=0,
        name="main",
        replicas=replicas,
        min_replicas=replicas,
        gpus_per_replica=gpus,
        cpu_millis_per_replica=8_000 * gpus,
        memory_mib_per_replica=65_536 * gpus,
        image="registry.example/train:1",
        topology_level="leaf",
    )
    return job


def place_job(job: Job, now: datetime = NOW, first_node: int = 0) -> Attempt:
    """Begin an attempt with one node a replica, as the scheduler would."""
    queue = job.queue
    role = job.roles.get()
    with log.writing():
        attempt = begin_attempt(
            job,
            cluster=queue.cluster,
            flavor=queue.flavors.first(),
            asked_level=role.topology_level,
            achieved_level="leaf",
            now=now,
        )
        for replica in range(role.replicas):
            Placement.objects.create(
                attempt=attempt,
                role=role,
                replica=replica,
                rank=replica,
                node=f"gpu-{first_node + replica:05d}",
                gpus=role.gpus_per_replica,
                cpu_millis=role.cpu_millis_per_replica,
                memory_mib=role.memory_mib_per_replica,
                domains={"leaf": "leaf-00", "spine": "spine-00"},
                pod_name=f"{job.job8}-{attempt.number}-{role.name}-{replica}-1",
            )
    return attempt


def run_job(job: Job, now: datetime = NOW, first_node: int = 0) -> Attempt:
    """Place the job and let every pod run."""
    attempt = place_job(job, now, first_node)
    mark_running(attempt, now=now)
    job.refresh_from_db()
    return attempt


def actor_of(user: User) -> Actor:
    """The user at a browser. Made anew, so that memberships are read again."""
    return Actor(User.objects.get(pk=user.pk))


def in_phase(job: Job, phase: Phase) -> Job:
    """Put a job straight into a phase (for tables over phases only: leaves no attempt behind)."""
    finished = phase is Phase.FINISHED
    Job.objects.filter(pk=job.pk).update(
        phase=phase, outcome="cancelled" if finished else "", finished_at=NOW if finished else None
    )
    job.refresh_from_db()
    return job
