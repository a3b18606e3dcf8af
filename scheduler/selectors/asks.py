"""What a job asks, as the planner reads it: from a spec, from the parts of rows, and to and from JSON. Pure.

`scheduler.snapshot.jobs` builds asks from rows, the what-if doors from specs; both go through here, because a
simulation must ask exactly what the stored job will.
"""

from collections.abc import Mapping
from typing import Any

from queues.specs import JobSpec, RoleSpec
from scheduler.core.inputs.jobs import (
    NO_TOPOLOGY,
    Ask,
    Checkpoint,
    OnPreemption,
    Role,
    SliceAsk,
    TopologyAsk,
    WaitingJob,
)
from scheduler.core.resources import Amount

Json = dict[str, Any]


def version_pair(text: str) -> tuple[int, int] | None:
    """ "12.4" → (12, 4); None for an empty or unreadable version."""
    major, _dot, minor = text.partition(".")
    if not major.isdigit():
        return None
    return int(major), int(minor) if minor.isdigit() else 0


def checkpoint_of(interval_seconds: int | None, grace_seconds: int | None) -> Checkpoint | None:
    """A job that names no interval has no checkpoint."""
    if interval_seconds is None:
        return None
    return Checkpoint(float(interval_seconds), float(grace_seconds or 0))


def topology_of(
    level: str, mode: str, preferred_level: str, cut: tuple[int | None, str]
) -> TopologyAsk:
    """The topology fields of a role; `cut` is the slice (replicas, level). Empty text: not asked."""
    replicas, slice_level = cut
    required = level if mode == "required" else ""
    preferred = preferred_level if mode == "required" else level
    if not required and not preferred and not replicas:
        return NO_TOPOLOGY
    return TopologyAsk(
        required=required or None,
        preferred=preferred or None,
        slice=SliceAsk(replicas, slice_level) if replicas and slice_level else None,
    )


def queue_name(tenant: str, queue: str) -> str:
    """A queue's name in a snapshot, unique over tenants: "research/train"."""
    return f"{tenant}/{queue}"


def ask_of(spec: JobSpec, user: str) -> Ask:
    """What the job that `user` would submit asks of the planner."""
    checkpoint = spec.checkpoint
    return Ask(
        tenant=spec.tenant,
        queue=queue_name(spec.tenant, spec.queue),
        user=user,
        flavors=spec.flavors,
        roles=tuple(_role_of(role) for role in spec.roles),
        priority=spec.priority,
        preemptible=spec.preemptible,
        max_runtime_seconds=spec.max_runtime_seconds,
        grace_seconds=float(spec.grace_seconds),
        checkpoint=checkpoint_of(checkpoint.interval_seconds, checkpoint.grace_seconds)
        if checkpoint
        else None,
        on_preemption=OnPreemption(spec.on_preemption),
        node_selector=tuple(sorted(spec.node_selector.items())),
        exclude_nodes=frozenset(spec.exclude_nodes),
        min_cuda=version_pair(spec.min_cuda),
    )


def _role_of(role: RoleSpec) -> Role:
    asked = role.topology
    cut = (asked.slice.replicas, asked.slice.level) if asked.slice else (None, "")
    return Role(
        name=role.name,
        replicas=role.replicas,
        per_replica=Amount(
            role.gpus_per_replica,
            role.cpu_millis_per_replica,
            role.memory_mib_per_replica,
            pods=1,
        ),
        min_replicas=role.min_replicas,
        topology=topology_of(asked.level, asked.mode, asked.preferred_level, cut),
        tensor_parallel=role.tensor_parallel,
    )


# --- to and from JSON: between the doors and the what-if process ---


def waiting_to_json(job: WaitingJob) -> Json:
    """A job that is not stored, as sent to the what-if process."""
    return {
        "id": job.id,
        "submitted_at": job.submitted_at,
        "begin_at": job.begin_at,
        "depends_on": list(job.depends_on),
        "ask": ask_to_json(job.ask),
    }


def waiting_from_json(sent: Mapping[str, Any]) -> WaitingJob:
    """The reverse of `waiting_to_json`. KeyError or TypeError for what it did not write."""
    return WaitingJob(
        id=sent["id"],
        ask=ask_from_json(sent["ask"]),
        submitted_at=sent["submitted_at"],
        begin_at=sent["begin_at"],
        depends_on=tuple(sent["depends_on"]),
    )


def ask_to_json(ask: Ask) -> Json:
    """An ask as plain values."""
    checkpoint = ask.checkpoint
    return {
        "tenant": ask.tenant,
        "queue": ask.queue,
        "user": ask.user,
        "flavors": list(ask.flavors),
        "roles": [_role_to_json(role) for role in ask.roles],
        "priority": ask.priority,
        "preemptible": ask.preemptible,
        "max_runtime_seconds": ask.max_runtime_seconds,
        "grace_seconds": ask.grace_seconds,
        "checkpoint": [checkpoint.interval_seconds, checkpoint.grace_seconds]
        if checkpoint
        else None,
        "on_preemption": ask.on_preemption.value,
        "node_selector": [list(pair) for pair in ask.node_selector],
        "exclude_nodes": sorted(ask.exclude_nodes),
        "min_cuda": list(ask.min_cuda) if ask.min_cuda else None,
    }


def ask_from_json(sent: Mapping[str, Any]) -> Ask:
    """The reverse of `ask_to_json`."""
    checkpoint, min_cuda = sent["checkpoint"], sent["min_cuda"]
    return Ask(
        tenant=sent["tenant"],
        queue=sent["queue"],
        user=sent["user"],
        flavors=tuple(sent["flavors"]),
        roles=tuple(_role_from_json(role) for role in sent["roles"]),
        priority=sent["priority"],
        preemptible=sent["preemptible"],
        max_runtime_seconds=sent["max_runtime_seconds"],
        grace_seconds=sent["grace_seconds"],
        checkpoint=Checkpoint(*checkpoint) if checkpoint else None,
        on_preemption=OnPreemption(sent["on_preemption"]),
        node_selector=tuple((name, value) for name, value in sent["node_selector"]),
        exclude_nodes=frozenset(sent["exclude_nodes"]),
        min_cuda=(min_cuda[0], min_cuda[1]) if min_cuda else None,
    )


def _role_to_json(role: Role) -> Json:
    asked = role.topology
    return {
        "name": role.name,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "per_replica": list(role.per_replica.as_tuple()),
        "required": asked.required,
        "preferred": asked.preferred,
        "slice": [asked.slice.replicas, asked.slice.level] if asked.slice else None,
        "tensor_parallel": role.tensor_parallel,
    }


def _role_from_json(sent: Mapping[str, Any]) -> Role:
    cut = sent["slice"]
    return Role(
        name=sent["name"],
        replicas=sent["replicas"],
        per_replica=Amount(*sent["per_replica"]),
        min_replicas=sent["min_replicas"],
        topology=TopologyAsk(
            sent["required"], sent["preferred"], SliceAsk(cut[0], cut[1]) if cut else None
        ),
        tensor_parallel=sent["tensor_parallel"],
    )
