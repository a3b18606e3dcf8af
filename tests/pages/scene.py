"""A cluster in the middle of its day: two tenants, nodes in every state, jobs in every phase.

The pages' tests and screenshots look at this. Rows are written in bulk: it is built for every test.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.hashers import make_password

from controlplane.common.models import Event
from queues.ids import job8_of, new_job_ids
from queues.lifecycle import EndedBy, Phase
from queues.models import (
    Attempt,
    Cluster,
    ClusterMode,
    Estimate,
    Flavor,
    Job,
    JobRole,
    Level,
    Placement,
    Queue,
    QueueFlavor,
    Quota,
    Verdict,
)
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
    queues: dict[tuple[str, str], Queue] = field(default_factory=dict)

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
        row: dict[str, Any] = {
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
        scene.nodes.append(Node(**row | STATES.get(index, {})))
    Node.objects.bulk_create(scene.nodes)
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
    scene.queues[tenant.slug, name] = queue
    for position, flavor in enumerate(scene.flavors.values()):
        QueueFlavor.objects.create(queue=queue, flavor=flavor, position=position)


@dataclass
class Rows:
    """What is written at the end, each kind in one statement."""

    jobs: list[Job] = field(default_factory=list)
    roles: list[JobRole] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def write(self, scene: Scene) -> None:
        """Everything, and a seat for each GPU that is held."""
        Job.objects.bulk_create(self.jobs)
        JobRole.objects.bulk_create(self.roles)
        Attempt.objects.bulk_create(self.attempts)
        for placement in self.placements:  # pick up the keys of what was just stored
            placement.attempt, placement.role = placement.attempt, placement.role
        Placement.objects.bulk_create(self.placements)
        Verdict.objects.bulk_create(self.verdicts)
        Estimate.objects.bulk_create(self.estimates)
        Event.objects.bulk_create(sorted(self.events, key=lambda event: event.at))
        nodes = {node.name: node for node in scene.nodes}
        taken: Counter[str] = Counter()
        seats = []
        for placement in self.placements:
            if placement.released_at is None:
                start = taken[placement.node]
                taken[placement.node] += placement.gpus
                seats += [
                    Seat(node=nodes[placement.node], index=start + i, placement=placement)
                    for i in range(placement.gpus)
                ]
        Seat.objects.bulk_create(seats)


def job_row(scene: Scene, user: str, name: str, *, ago: timedelta, **changes: Any) -> Job:
    """A pending job that is not yet stored; `queue` may be named."""
    slug = PEOPLE[user][0]
    then = scene.now - ago
    job_id = next(new_job_ids(then, 1))
    return Job(
        id=job_id,
        job8=job8_of(job_id),
        tenant=scene.tenants[slug],
        queue=scene.queues[slug, "train"],
        user=scene.users[user],
        name=name,
        submitted_at=then,
        env={"LR": "3e-4"},
        **{
            "max_runtime_seconds": 86_400,
            "reason_code": "not_yet_considered",
            "reason_since": then,
        }
        | changes,
    )


def role_row(job: Job, replicas: int, each: int, mode: str = "preferred") -> JobRole:
    """Its only role."""
    return JobRole(
        job=job,
        position=0,
        name="main",
        replicas=replicas,
        min_replicas=replicas,
        gpus_per_replica=each,
        cpu_millis_per_replica=8_000 * each,
        memory_mib_per_replica=65_536 * each,
        image="registry.example/train:1",
        command=["torchrun", "train.py", "--config", "7b.yaml"],
        topology_level="leaf",
        topology_mode=mode,
    )


@dataclass
class Maker:
    """Adds jobs to the scene in few words."""

    scene: Scene
    rows: Rows = field(default_factory=Rows)

    def waits(
        self, user: str, name: str, shape: tuple[int, int], minutes: float, **changes: Any
    ) -> Job:
        """A job that was submitted so many minutes ago and waits (or is held)."""
        mode = changes.pop("mode", "preferred")
        job = job_row(self.scene, user, name, ago=timedelta(minutes=minutes), **changes)
        self.rows.jobs.append(job)
        self.rows.roles.append(role_row(job, *shape, mode))
        self.scene.jobs[name] = job
        self.tell(
            job, "job.submitted", job.submitted_at, user, queue="train", priority=job.priority
        )
        return job

    def says(self, job: Job, code: str, numbers: dict[str, Any], minutes: int = 0) -> None:
        """Give a waiting job a verdict and perhaps an estimate."""
        job.class_key, job.reason_code = f"class-{job.name}"[:40], code
        self.rows.verdicts.append(
            Verdict(
                cluster=self.scene.cluster,
                class_key=job.class_key,
                reasons=[{"code": code, "numbers": numbers}],
                first_job=job.pk,
                since=self.scene.now,
            )
        )
        if minutes:
            p50 = self.scene.now + timedelta(minutes=minutes)
            p90 = p50 + timedelta(minutes=minutes)
            self.rows.estimates.append(Estimate(job=job, p50=p50, p90=p90, made_at=self.scene.now))
        self.tell(job, "job.reason", self.scene.now, "scheduler", code=code)

    def runs(self, job: Job, first_node: int, *, started: bool = True) -> Attempt:
        """Place a job on consecutive nodes, 40 s after it was submitted."""
        then = job.submitted_at + timedelta(seconds=40)
        at = then + timedelta(seconds=3) if started else None
        job.phase = Phase.RUNNING if started else Phase.STARTING
        job.attempt_number, job.started_at, job.reason_code = 1, at, ""
        attempt = Attempt(
            job=job,
            number=1,
            cluster=self.scene.cluster,
            flavor=self.scene.flavors["h100"],
            placed_at=then,
            started_at=at,
            asked_level="leaf",
            achieved_level="leaf",
        )
        self.rows.attempts.append(attempt)
        role = next(role for role in self.rows.roles if role.job is job)
        for replica in range(role.replicas):
            self._place(attempt, role, replica, first_node, then, at)
        for phase, moment in (("placed", then), ("starting", then), ("running", at)):
            if moment:
                self.tell(job, "job.phase", moment, "cluster", to=phase)
        self.tell(job, "attempt.placed", then, "scheduler", attempt=1, level="leaf")
        return attempt

    def _place(
        self,
        attempt: Attempt,
        role: JobRole,
        replica: int,
        first_node: int,
        then: datetime,
        at: datetime | None,
    ) -> None:
        node = self.scene.nodes[first_node + replica // max(1, 8 // role.gpus_per_replica)]
        self.rows.placements.append(
            Placement(
                attempt=attempt,
                role=role,
                replica=replica,
                rank=replica,
                node=node.name,
                gpus=role.gpus_per_replica,
                cpu_millis=8_000,
                memory_mib=65_536,
                domains=node.domains,
                pod_name=f"{attempt.job.job8}-1-main-{replica}-1",
                created_at=then + timedelta(seconds=1),
                bound_at=then + timedelta(seconds=1),
                started_at=at,
                pod_phase="Running" if at else "Pending",
            )
        )

    def ends(self, attempt: Attempt, codes: list[int], minutes: float) -> None:
        """End every pod with these exit codes so many minutes ago, and the job with them."""
        now, job = self.scene.now - timedelta(minutes=minutes), attempt.job
        mine = [p for p in self.rows.placements if p.attempt is attempt]
        for placement, code in zip(mine, codes, strict=True):
            placement.exit_code, placement.ended_at = code, now + timedelta(seconds=placement.rank)
            placement.pod_phase = "Failed" if code else "Succeeded"
            placement.message = "CUDA error: an illegal memory access" if code else ""
            placement.released_at = placement.gone_at = now
        bad = next((code for code in codes if code), 0)
        ended = EndedBy.FAILED if bad else EndedBy.SUCCEEDED
        attempt.ended_at, attempt.ended_by = now, ended
        job.phase, job.outcome, job.finished_at = Phase.FINISHED, ended.value, now
        job.exit_code, job.message = bad, f"main-1 exited with {bad}" if bad else ""
        attempt.message = job.message
        self.tell(job, "attempt.ended", now, "cluster", attempt=1, ended_by=ended.value)
        self.tell(job, "job.phase", now, "cluster", to="finished", outcome=ended.value)

    def tell(self, job: Job, kind: str, at: datetime, actor: str, **numbers: Any) -> None:
        """An event about the job."""
        self.rows.events.append(
            Event(
                kind=kind,
                at=at,
                tenant=job.tenant.slug,
                job=job.pk,
                cluster="demo",
                actor=actor,
                numbers=numbers,
            )
        )


def _jobs(scene: Scene) -> None:
    make = Maker(scene)
    make.runs(make.waits("ravi", "pretrain-7b", (8, 8), 120, mode="required"), 0)
    make.runs(make.waits("mei", "segment-anything", (12, 8), 300), 32)
    make.runs(make.waits("olivia", "eval-suite", (3, 4), 40), 9)
    make.runs(make.waits("ravi", "rlhf-ppo", (4, 8), 1), 16, started=False)
    make.ends(make.runs(make.waits("ravi", "tokenise-cc", (1, 8), 180), 20), [0], 60)
    make.ends(make.runs(make.waits("ravi", "probe-nccl", (4, 8), 121), 22), [0, 1, 137, 137], 44)
    _waiting(make)
    make.rows.write(scene)


def _waiting(make: Maker) -> None:
    blocked = make.waits(
        "olivia", "pretrain-70b-ctx32k", (16, 8), 50, mode="required", priority=900
    )
    numbers: dict[str, Any] = {"flavor": "h100", "needed_replicas": 16, "needed_gpus": 128}
    numbers |= {"needed_nodes": 16, "level": "leaf", "best_domain": "leaf-03"}
    numbers |= {"free_there": 13, "replicas_there": 13, "frees_at": None, "frees_job": None}
    make.says(blocked, "waiting_for_topology", numbers, minutes=70)
    short = make.waits("ravi", "sft-math-v4", (8, 8), 30)
    numbers = {"flavor": "h100", "needed_gpus": 64, "used_gpus": 200, "nominal_gpus": 256}
    numbers |= {"available_gpus": 48, "tenant": "research"}
    make.says(short, "waiting_for_quota", numbers, minutes=100)
    over = make.waits("ravi", "way-too-big", (80, 8), 12)
    numbers = {"flavor": "h100", "needed_gpus": 640, "most_gpus": 512, "tenant": "research"}
    make.says(over, "exceeds_quota_for_ever", numbers)
    make.waits("ravi", "just-sent", (1, 2), 0.03)
    make.waits("ravi", "ablation-17", (2, 8), 37, phase=Phase.HELD, reason_code="")
    secret = make.waits("mei", "vision-secret-plan", (2, 8), 9)
    numbers = {"flavor": "h100", "needed_gpus": 16, "free_gpus": 8}
    make.says(secret, "waiting_for_nodes", numbers)


def add_jobs(scene: Scene, user: str, count: int) -> None:
    """Many more of one person's waiting jobs, named `more-0` and so on, a minute apart."""
    make = Maker(scene)
    for index in range(count):
        make.waits(user, f"more-{index}", (1, 8), index)
    Job.objects.bulk_create(make.rows.jobs)
    JobRole.objects.bulk_create(make.rows.roles)
