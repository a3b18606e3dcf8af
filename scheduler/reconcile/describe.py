"""Rows of a job → the pods, Service and Secret of an attempt, as `kube.manifests` wants them.

Called by `tick` for attempts to launch, and by the simulate door, which shows what would be
created. Takes model objects, stored or not; asks the database nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queues.models import Job, JobRole
from scheduler.kube.manifests import (
    PLACED_ANNOTATION,
    AttemptName,
    AttemptPods,
    Preset,
    Replica,
    RolePods,
    Volume,
    deadline_seconds,
    master_host,
    pod_manifest,
)
from tenants.models import Tenant

MASTER_PORT = 29500
TOKEN_VARIABLE = "MUSTER_TOKEN"  # noqa: S105 - a variable's name
RESTRICTED = "restricted"


@dataclass(frozen=True, slots=True)
class Seat:
    """A replica with its rank and node; `creation` is the `<try>` of its pod's name."""

    role: str
    replica: int
    rank: int
    node: str
    creation: int = 1


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt to describe: its job and roles, which flavor's resource its GPUs are, who sits
    where, what pods call back to, whether the default scheduler binds."""

    job: Job
    roles: Sequence[JobRole]
    attempt: int
    resource: str
    seats: Sequence[Seat]
    url: str
    placed_at: datetime | None = None
    default_scheduler: bool = False


def attempt_name(job: Job, number: int) -> AttemptName:
    """What the names and labels of an attempt are made of."""
    tenant: Tenant = job.tenant
    return AttemptName(tenant.slug, tenant.namespace, job.pk, job.job8, number)


def gang_manifests(gang: Gang) -> list[dict[str, Any]]:
    """The pod of every seat, in the order of the seats."""
    attempt = _attempt(gang)
    roles = {role.name: _role(gang, role) for role in gang.roles}
    return [
        pod_manifest(
            attempt, roles[seat.role], Replica(seat.replica, seat.rank, seat.node, seat.creation)
        )
        for seat in gang.seats
    ]


def example_manifests(gang: Gang) -> list[dict[str, Any]]:
    """The pod of each role's first seat, as `gang_manifests` would make it."""
    attempt = _attempt(gang)
    first: dict[str, Seat] = {}
    for seat in gang.seats:
        first.setdefault(seat.role, seat)
    return [
        pod_manifest(
            attempt,
            _role(gang, role),
            Replica(taken.replica, taken.rank, taken.node, taken.creation),
        )
        for role in gang.roles
        if (taken := first.get(role.name)) is not None
    ]


def _attempt(gang: Gang) -> AttemptPods:
    job, name = gang.job, attempt_name(gang.job, gang.attempt)
    first = min(gang.seats, key=lambda seat: seat.rank)
    limit = job.max_runtime_seconds
    return AttemptPods(
        name=name,
        world_size=len(gang.seats),
        min_world_size=min(len(gang.seats), sum(role.min_replicas for role in gang.roles)),
        master_host=master_host(name, first.role, first.replica),
        master_port=MASTER_PORT,
        muster_url=gang.url,
        grace_seconds=job.grace_seconds,
        deadline_seconds=deadline_seconds(limit, job.grace_seconds) if limit else None,
        shared_memory_mib=job.shared_memory_mib,
        secret_env=(TOKEN_VARIABLE, *sorted(job.secret_env)),
        image_pull_secret=job.image_pull_secret or None,
        volumes=tuple(_volumes(job.volumes)),
        preset=preset_of(job.preset.spec if job.preset else {}),
        labels=job.labels,
        annotations={**job.annotations, **_adoption(gang)},
        notice_file=job.checkpoint_notice == "file",
        default_scheduler=gang.default_scheduler,
    )


def _adoption(gang: Gang) -> dict[str, str]:
    """What a person needs to recognise a pod whose rows were lost (an old backup restored), and we."""
    job = gang.job
    return {
        PLACED_ANNOTATION: gang.placed_at.isoformat() if gang.placed_at else "",
        "muster.dev/name": job.name,
        "muster.dev/queue": job.queue.name,
        "muster.dev/user": job.user.username,
    }


def _volumes(volumes: Iterable[Mapping[str, Any]]) -> Iterable[Volume]:
    for volume in volumes:
        yield Volume(volume["claim"], volume["mount_path"], bool(volume.get("read_only")))


def _role(gang: Gang, role: JobRole) -> RolePods:
    return RolePods(
        role=role.name,
        image=role.image,
        command=tuple(role.command),
        args=tuple(role.args),
        device=gang.resource,
        gpus=role.gpus_per_replica,
        cpu_millis=role.cpu_millis_per_replica,
        memory_mib=role.memory_mib_per_replica,
        env={**gang.job.env, **role.env},
        working_dir=gang.job.working_dir or None,
    )


def preset_of(spec: Mapping[str, Any]) -> Preset:
    """A preset's `spec` as `kube.manifests` wants it; keys as in `queues.models.Preset`."""
    return Preset(
        resources={name: str(amount) for name, amount in spec.get("resources", {}).items()},
        capabilities=tuple(spec.get("capabilities", ())),
        runtime_class=spec.get("runtime_class_name"),
        tolerations=tuple(spec.get("tolerations", ())),
        node_selector=spec.get("node_selector", {}),
        env={name: str(value) for name, value in spec.get("env", {}).items()},
        volumes=tuple(spec.get("volumes", ())),
        mounts=tuple(spec.get("volume_mounts", ())),
        annotations=spec.get("annotations", {}),
        labels=spec.get("labels", {}),
        run_as_user=spec.get("run_as_user"),
        run_as_root=pod_security_of(spec) != RESTRICTED,
        host_network=bool(spec.get("host_network")),
    )


def pod_security_of(spec: Mapping[str, Any]) -> str:
    """The Pod Security level that pods with this preset need."""
    return str(spec.get("pod_security") or RESTRICTED)
