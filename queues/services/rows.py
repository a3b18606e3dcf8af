"""A job's spec → the rows that keep it, unsaved. Pure. Called by `services.submission`."""

from dataclasses import asdict
from datetime import datetime

from queues.ids import job8_of
from queues.models import Job, JobRole
from queues.reasons import NOT_YET_CONSIDERED
from queues.specs import JobSpec, RoleSpec


def job_row(spec: JobSpec, job_id: str, user_id: int, now: datetime) -> Job:
    """The job's row, pending and not yet considered."""
    checkpoint = spec.checkpoint
    return Job(
        id=job_id,
        job8=job8_of(job_id),
        tenant_id=spec.tenant_id,
        queue_id=spec.queue_id,
        user_id=user_id,
        name=spec.name,
        external_id=spec.external_id,
        submitted_at=now,
        gpu_model=list(spec.gpu_model),
        sharing=spec.sharing,
        min_cuda=spec.min_cuda,
        node_selector=dict(spec.node_selector),
        exclude_nodes=list(spec.exclude_nodes),
        preset_id=spec.preset_id,
        image_pull_secret=spec.image_pull_secret,
        shared_memory_mib=spec.shared_memory_mib,
        working_dir=spec.working_dir,
        env=dict(spec.env),
        secret_env=dict(spec.secret_env),
        volumes=[asdict(volume) for volume in spec.volumes],
        labels=dict(spec.labels),
        annotations=dict(spec.annotations),
        priority=spec.priority,
        preemptible=spec.preemptible,
        on_preemption=spec.on_preemption,
        max_runtime_seconds=spec.max_runtime_seconds,
        grace_seconds=spec.grace_seconds,
        checkpoint_interval_seconds=checkpoint.interval_seconds if checkpoint else None,
        checkpoint_grace_seconds=checkpoint.grace_seconds if checkpoint else None,
        checkpoint_notice=checkpoint.notice if checkpoint else "signal",
        max_restarts=spec.max_restarts,
        stall_timeout_seconds=spec.stall_timeout_seconds,
        on_stall=spec.on_stall,
        begin_at=spec.begin_at,
        decides=spec.decides,
        reason_code=NOT_YET_CONSIDERED,
        reason_since=now,
    )


def role_rows(spec: JobSpec, job_id: str) -> list[JobRole]:
    """The job's roles in order."""
    return [_role_row(role, job_id, position) for position, role in enumerate(spec.roles)]


def _role_row(role: RoleSpec, job_id: str, position: int) -> JobRole:
    topology = role.topology
    return JobRole(
        job_id=job_id,
        position=position,
        name=role.name,
        replicas=role.replicas,
        min_replicas=role.min_replicas,
        gpus_per_replica=role.gpus_per_replica,
        cpu_millis_per_replica=role.cpu_millis_per_replica,
        memory_mib_per_replica=role.memory_mib_per_replica,
        image=role.image,
        command=list(role.command),
        args=list(role.args),
        env=dict(role.env),
        topology_level=topology.level,
        topology_mode=topology.mode,
        topology_preferred_level=topology.preferred_level,
        slice_replicas=topology.slice.replicas if topology.slice else None,
        slice_level=topology.slice.level if topology.slice else "",
        tensor_parallel=role.tensor_parallel,
    )
