"""A cluster in the middle of its day: two tenants, nodes in every state, jobs in every phase.

The pages' tests and screenshots look at this; everything goes through the services where there is one.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.hashers import make_password

from queues.lifecycle import EndedBy, Phase
from queues.models import (
    Attempt,
    Cluster,
    ClusterMode,
    Estimate,
    Flavor,
    Job,
    Level,
    Placement,
    Queue,
    QueueFlavor,
    Quota,
    Verdict,
)
from queues.services.attempts import begin_attempt, end_attempt, mark_running
from queues.services.jobs import hold_job, submit_job
from queues.services.lifecycle import transition_job
from queues.services.validation import validate_job
from scheduler.models import ClusterState, ForeignPod, Node, Seat
from tenants.access import Actor
from tenants.models import Cohort, Membership, Tenant, User

PASSWORD = "muster"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
PEOPLE = {
    "olivia": ("research", "admin"),
    "ravi": ("research", "submitter"),
    "vera": ("research", "viewer"),
    "mei": ("vision", "submitter"),
}
PLATFORM = {"admin": "admin", "ines": "operator", "sam": "auditor"}


@dataclass
class Scene:
    """What was made, by name."""

    now: datetime
    cluster: Cluster
    tenants: dict[str, Tenant] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    flavors: dict[str, Flavor] = field(default_factory=dict)

    def actor(self, name: str) -> Actor:
        """That person, as the browser sends them."""
        return Actor(user=self.users[name])


def build(now: datetime | None = None) -> Scene:
    """Everything, in the database."""
    now = now or datetime.now(UTC)
    scene = Scene(now=now, cluster=_cluster(now))
    _people(scene)
    _nodes(scene)
    _policy(scene)
    _jobs(scene)
    return scene


def _cluster(now: datetime) -> Cluster:
    cluster = Cluster.objects.create(name="demo", mode=ClusterMode.SCHEDULE, created_at=now)
    for position, level in enumerate(("spine", "leaf")):
        Level.objects.create(
            cluster=cluster, name=level, node_label=f"topology.example/{level}", position=position
        )
    ClusterState.objects.create(cluster=cluster, watch="live", heard_at=now, considered_at=now)
    return cluster


def _people(scene: Scene) -> None:
    cohort = Cohort.objects.create(name="lab")
    for slug, name in (("research", "Research"), ("vision", "Vision")):
        scene.tenants[slug] = Tenant.objects.create(
            slug=slug, name=name, cohort=cohort, created_at=scene.now - timedelta(days=40)
        )
    password = make_password(PASSWORD)
    for name in (*PEOPLE, *PLATFORM):
        role = PLATFORM.get(name, "")
        scene.users[name] = User.objects.create(
            username=name, password=password, platform_role=role
        )
    for name, (slug, role) in PEOPLE.items():
        Membership.objects.create(
            tenant=scene.tenants[slug],
            user=scene.users[name],
            role=role,
            created_at=scene.now - timedelta(days=30),
        )


STATES: dict[int, dict[str, Any]] = {
    19: {"out_causes": [{"code": "unhealthy", "numbers": {"xid": 79}}]},
    27: {"cordon_wanted": True, "cordon_reason": "fan replaced", "cordon_by": "ines"},
    44: {"ready": False, "out_causes": [{"code": "not_ready"}]},
    50: {"gpus_allocatable": 0, "out_causes": [{"code": "no_device_plugin"}]},
    62: {"out_causes": [{"code": "window"}]},
    63: {"out_causes": [{"code": "window"}]},
}


def _nodes(scene: Scene) -> None:
    for name, model in (("h100", H100), ("a100", A100)):
        flavor = Flavor.objects.create(
            cluster=scene.cluster,
            name=name,
            resource_name="nvidia.com/gpu",
            model=model,
            gpus_per_node=8,
            cpu_millis_per_node=192_000,
            memory_mib_per_node=2_097_152,
        )
        scene.flavors[name] = flavor
    for index in range(72):
        is_h100 = index < 64
        domains = {
            "spine": f"spine-{index // 32:02d}" if is_h100 else "spine-02",
            "leaf": f"leaf-{index // 16:02d}" if is_h100 else "leaf-04",
        }
        row = {
            "cluster": scene.cluster,
            "name": f"gpu-{index:05d}",
            "uid": f"uid-{index}",
            "flavor": scene.flavors["h100" if is_h100 else "a100"],
            "gpus_capacity": 8,
            "gpus_allocatable": 8,
            "cpu_millis": 192_000,
            "memory_mib": 2_097_152,
            "pods": 110,
            "domains": domains,
            "driver": "570.86.15",
            "cuda": "12.8",
            "ready": True,
            "observed_at": scene.now,
        }
        scene.nodes.append(Node.objects.create(**row | STATES.get(index, {})))
    ForeignPod.objects.create(
        cluster=scene.cluster,
        uid="foreign-1",
        namespace="monitoring",
        name="load-test-0",
        node="gpu-00066",
        gpus=4,
        seen_at=scene.now,
    )


def _policy(scene: Scene) -> None:
    for slug, tenant in scene.tenants.items():
        for name, nominal in (("h100", 256), ("a100", 32)):
            Quota.objects.create(tenant=tenant, flavor=scene.flavors[name], nominal=nominal)
        _queue(scene, tenant, "train")
        if slug == "research":
            _queue(scene, tenant, "debug")


def _queue(scene: Scene, tenant: Tenant, name: str) -> None:
    queue = Queue.objects.create(
        tenant=tenant,
        cluster=scene.cluster,
        name=name,
        created_at=scene.now - timedelta(days=30),
        default_max_runtime_seconds=86_400,
        longest_max_runtime_seconds=604_800,
    )
    for position, flavor in enumerate(scene.flavors.values()):
        QueueFlavor.objects.create(queue=queue, flavor=flavor, position=position)


def submit(scene: Scene, user: str, name: str, replicas: int, each: int, **more: Any) -> Job:
    """A job by the services, remembered by its name."""
    ago = more.pop("ago", timedelta(minutes=5))
    tenant = PEOPLE[user][0]
    payload = {
        "name": name,
        "tenant": tenant,
        "queue": "train",
        "image": "registry.example/train:1",
        "command": ["torchrun", "train.py", "--config", "7b.yaml"],
        "replicas": replicas,
        "gpus_per_replica": each,
        "env": {"LR": "3e-4"},
    } | more
    then = scene.now - ago
    actor = scene.actor(user)
    job = submit_job(actor, validate_job(actor, payload, then), then)
    scene.jobs[name] = job
    return job


def place(scene: Scene, job: Job, first_node: int, *, runs: bool = True) -> Attempt:
    """Place a job on consecutive nodes and let it run."""
    role = job.roles.get()
    then = job.submitted_at + timedelta(seconds=40)
    attempt = begin_attempt(
        job,
        cluster=scene.cluster,
        flavor=scene.flavors["h100"],
        asked_level="leaf",
        achieved_level="leaf",
        now=then,
    )
    per_node = max(1, 8 // role.gpus_per_replica)
    for replica in range(role.replicas):
        node = scene.nodes[first_node + replica // per_node]
        placement = Placement.objects.create(
            attempt=attempt,
            role=role,
            replica=replica,
            rank=replica,
            node=node.name,
            gpus=role.gpus_per_replica,
            cpu_millis=8000,
            memory_mib=65_536,
            domains=node.domains,
            pod_name=f"{job.job8}-1-main-{replica}-1",
            created_at=then + timedelta(seconds=1),
            bound_at=then + timedelta(seconds=1),
            started_at=then + timedelta(seconds=3) if runs else None,
            pod_phase="Running" if runs else "Pending",
        )
        taken = node.seats.count()
        Seat.objects.bulk_create(
            Seat(node=node, index=taken + i, placement=placement)
            for i in range(role.gpus_per_replica)
        )
    if runs:
        mark_running(attempt, now=then + timedelta(seconds=3))
    else:
        transition_job(job, Phase.STARTING, actor="cluster", now=then + timedelta(seconds=1))
    return attempt


def finish(job: Job, attempt: Attempt, codes: list[int], now: datetime) -> None:
    """End every pod of an attempt with these exit codes, and the job with them."""
    for placement, code in zip(attempt.placements.order_by("rank"), codes, strict=True):
        placement.exit_code, placement.ended_at = code, now - timedelta(seconds=code == 0)
        placement.pod_phase = "Succeeded" if code == 0 else "Failed"
        placement.message = "" if code == 0 else "CUDA error: an illegal memory access"
        placement.released_at = placement.gone_at = now
        placement.save()
    Seat.objects.filter(placement__attempt=attempt).delete()
    bad = next((code for code in codes if code), 0)
    job.refresh_from_db()
    end_attempt(
        attempt,
        ended_by=EndedBy.FAILED if bad else EndedBy.SUCCEEDED,
        exit_code=bad,
        message="main-1 exited with 1" if bad else "",
        now=now,
    )


def waits(scene: Scene, job: Job, code: str, numbers: dict[str, Any], minutes: int = 0) -> None:
    """Give a waiting job a verdict and perhaps an estimate."""
    key = f"class-{job.name}"[:40]
    Verdict.objects.create(
        cluster=scene.cluster,
        class_key=key,
        reasons=[{"code": code, "numbers": numbers}],
        checks=[
            {
                "check": "waiting_for_quota",
                "ok": True,
                "numbers": {"needed_gpus": 64, "available_gpus": 128},
            },
            {"check": code, "ok": False, "numbers": numbers},
            {"check": "waiting_for_booking", "ok": None, "numbers": {}},
        ],
        first_job=job.pk,
        since=scene.now,
    )
    Job.objects.filter(pk=job.pk).update(class_key=key, reason_code=code, reason_since=scene.now)
    if minutes:
        p50 = scene.now + timedelta(minutes=minutes)
        Estimate.objects.create(
            job=job, p50=p50, p90=p50 + timedelta(minutes=minutes), made_at=scene.now
        )


def _jobs(scene: Scene) -> None:
    minutes, hours = timedelta(minutes=1), timedelta(hours=1)
    leaf = {"level": "leaf", "mode": "required"}
    place(scene, submit(scene, "ravi", "pretrain-7b", 8, 8, ago=2 * hours, topology=leaf), 0)
    place(scene, submit(scene, "mei", "segment-anything", 12, 8, ago=5 * hours), 32)
    place(scene, submit(scene, "olivia", "eval-suite", 3, 4, ago=40 * minutes), 9)
    place(scene, submit(scene, "ravi", "rlhf-ppo", 4, 8, ago=1 * minutes), 16, runs=False)
    done = submit(scene, "ravi", "tokenise-cc", 1, 8, ago=3 * hours)
    finish(done, place(scene, done, 20), [0], scene.now - hours)
    bad = submit(scene, "ravi", "probe-nccl", 4, 8, ago=2 * hours)
    finish(bad, place(scene, bad, 22), [0, 1, 137, 137], scene.now - 44 * minutes)
    blocked = submit(
        scene, "olivia", "pretrain-70b-ctx32k", 16, 8, ago=50 * minutes, topology=leaf, priority=900
    )
    waits(
        scene,
        blocked,
        "waiting_for_topology",
        {
            "flavor": "h100",
            "needed_replicas": 16,
            "needed_gpus": 128,
            "needed_nodes": 16,
            "level": "leaf",
            "best_domain": "leaf-03",
            "free_there": 13,
            "replicas_there": 13,
            "frees_at": None,
            "frees_job": None,
        },
        minutes=70,
    )
    short = submit(scene, "ravi", "sft-math-v4", 8, 8, ago=30 * minutes)
    waits(
        scene,
        short,
        "waiting_for_quota",
        {
            "flavor": "h100",
            "needed_gpus": 64,
            "used_gpus": 200,
            "nominal_gpus": 256,
            "available_gpus": 48,
            "tenant": "research",
        },
        minutes=100,
    )
    over = submit(scene, "ravi", "way-too-big", 80, 8, ago=12 * minutes)
    waits(
        scene,
        over,
        "exceeds_quota_for_ever",
        {"flavor": "h100", "needed_gpus": 640, "most_gpus": 512, "tenant": "research"},
    )
    submit(scene, "ravi", "just-sent", 1, 2, ago=timedelta(seconds=2))
    held = submit(scene, "ravi", "ablation-17", 2, 8, ago=37 * minutes)
    hold_job(scene.actor("ravi"), held, "", scene.now - 20 * minutes)
    secret = submit(scene, "mei", "vision-secret-plan", 2, 8, ago=9 * minutes)
    waits(scene, secret, "waiting_for_nodes", {"flavor": "h100", "needed_gpus": 16, "free_gpus": 8})
