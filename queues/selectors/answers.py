"""Jobs as the API answers them (CONTRACT, "A job, as answered"), and as they could be sent again.

`job_answers` reads what a page of jobs needs in a fixed number of queries. Called by the REST doors, long polls
and batches; `as_sent` also by `services.changes` and by the form that clones a job.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import F, QuerySet

from queues.lifecycle import Phase
from queues.models import Attempt, Estimate, Job, JobRole, Placement
from queues.quantities import cpu_text, memory_text
from queues.selectors.jobs import JOB_PARTS, job_of, jobs_visible_to
from queues.selectors.waiting import Waiting, waiting_of
from queues.specs import MAIN_ROLE
from tenants.access import Actor

Answer = dict[str, Any]


def with_answer_parts(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The query that `job_answers` wants."""
    return jobs.select_related(*JOB_PARTS).prefetch_related("roles", "dependencies")


def job_with_parts(actor: Actor, job_id: str) -> Job:
    """The job, ready to be answered. Raises NotVisibleError, hidden or unknown alike."""
    return job_of(actor, job_id, with_answer_parts)


def jobs_with_parts(actor: Actor, ids: Sequence[str]) -> list[Job]:
    """The visible ones of these jobs, ready to be answered, in the order of `ids`."""
    rows = with_answer_parts(jobs_visible_to(actor)).in_bulk(ids)
    return [rows[job_id] for job_id in ids if job_id in rows]


def job_answer(actor: Actor, job: Job) -> Answer:
    """One job's answer."""
    return job_answers(actor, [job])[0]


def job_answers(actor: Actor, jobs: Sequence[Job]) -> list[Answer]:
    """The answers of jobs read by `with_answer_parts`, in the same order."""
    waiting = waiting_of(actor, jobs)
    estimates = _estimates(jobs)
    lives = _last_attempts(jobs)
    return [
        as_sent(job)
        | _state(job)
        | _why(waiting.get(job.pk), estimates.get(job.pk))
        | _where(lives.get(job.pk))
        for job in jobs
    ]


def time_text(at: datetime | None) -> str | None:
    """RFC 3339 in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _state(job: Job) -> Answer:
    return {
        "id": job.pk,
        "version": job.version,
        "user": job.user.get_username(),
        "phase": job.phase,
        "outcome": job.outcome or None,
        "message": job.message,
        "attempt": job.attempt_number,
        "exit_code": job.exit_code,
        "submitted_at": time_text(job.submitted_at),
        "started_at": time_text(job.started_at),
        "finished_at": time_text(job.finished_at),
    }


def _why(waiting: Waiting | None, estimate: Estimate | None) -> Answer:
    return {
        "position": waiting.position if waiting else None,
        "reason": waiting.dominant.answer if waiting else None,
        "reasons": [said.answer for said in waiting.reasons] if waiting else [],
        "estimated_start": {"p50": time_text(estimate.p50), "p90": time_text(estimate.p90)}
        if estimate
        else None,
    }


def _estimates(jobs: Sequence[Job]) -> dict[str, Estimate]:
    pending = [job.pk for job in jobs if job.phase == Phase.PENDING]
    return Estimate.objects.in_bulk(pending) if pending else {}


# --- the last attempt: where it ran, how its replicas ended ---


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """A job's last attempt with its placements in rank order."""

    attempt: Attempt
    placements: Sequence[Placement]


def _last_attempts(jobs: Sequence[Job]) -> dict[str, LastAttempt]:
    """By job; a job that waits for another attempt has none."""
    begun = [
        job.pk
        for job in jobs
        if job.attempt_number and job.phase not in (Phase.PENDING, Phase.HELD)
    ]
    if not begun:
        return {}
    attempts = list(Attempt.objects.filter(job__in=begun, number=F("job__attempt_number")))
    placements: dict[int, list[Placement]] = defaultdict(list)
    rows = Placement.objects.filter(attempt__in=[attempt.pk for attempt in attempts])
    for placement in rows.select_related("role").order_by("attempt_id", "rank"):
        placements[placement.attempt_id].append(placement)
    return {a.job_id: LastAttempt(a, placements[a.pk]) for a in attempts}


def _where(life: LastAttempt | None) -> Answer:
    if life is None:
        return {"unknown_since": None, "exit_codes": [], "placement": []}
    codes = [placement.exit_code for placement in life.placements]
    return {
        "unknown_since": time_text(life.attempt.unknown_since),
        "exit_codes": codes if any(code is not None for code in codes) else [],
        "placement": [placement_answer(placement) for placement in life.placements],
    }


def placement_answer(placement: Placement) -> Answer:
    """One replica: its place in the gang, its pod, its node."""
    return {
        "role": placement.role.name,
        "replica": placement.replica,
        "rank": placement.rank,
        "pod": placement.pod_name,
        "node": placement.node,
        "gpus": placement.gpus,
        "domains": placement.domains,
    }


def attempt_answer(attempt: Attempt, placements: Sequence[Placement]) -> Answer:
    """One life of a job."""
    return {
        "number": attempt.number,
        "placed_at": time_text(attempt.placed_at),
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "ended_by": attempt.ended_by or None,
        "message": attempt.message,
        "unknown_since": time_text(attempt.unknown_since),
        "lost_gpu_seconds": attempt.lost_gpu_seconds,
        "asked_level": attempt.asked_level or None,
        "achieved_level": attempt.achieved_level or None,
        "placement": [placement_answer(placement) for placement in placements],
    }


def attempt_answers(job: Job) -> list[Answer]:
    """All lives of a job, first first. Two queries."""
    attempts = list(job.attempts.order_by("number"))
    placements: dict[int, list[Placement]] = defaultdict(list)
    rows = Placement.objects.filter(attempt__job=job).select_related("role")
    for placement in rows.order_by("attempt_id", "rank"):
        placements[placement.attempt_id].append(placement)
    return [attempt_answer(attempt, placements[attempt.pk]) for attempt in attempts]


# --- as it was sent ---


def as_sent(job: Job) -> Answer:
    """The job as it could be sent again, every default filled in. Needs roles and dependencies loaded."""
    return {
        "name": job.name,
        "tenant": job.tenant.slug,
        "queue": job.queue.name,
        **_roles(job),
        "gpu_model": job.gpu_model,
        "sharing": job.sharing,
        "min_cuda": job.min_cuda or None,
        "shared_memory_mib": job.shared_memory_mib,
        "image_pull_secret": job.image_pull_secret or None,
        "working_dir": job.working_dir or None,
        "env": job.env,
        "secret_env": job.secret_env,
        "volumes": job.volumes,
        "preset": job.preset.name if job.preset else None,
        "node_selector": job.node_selector,
        "exclude_nodes": job.exclude_nodes,
        "priority": job.priority,
        "preemptible": job.preemptible,
        "on_preemption": job.on_preemption,
        "max_runtime_seconds": job.max_runtime_seconds,
        "grace_seconds": job.grace_seconds,
        "checkpoint": _checkpoint(job),
        "max_restarts": job.max_restarts,
        "stall_timeout_seconds": job.stall_timeout_seconds,
        "on_stall": job.on_stall,
        "begin_at": time_text(job.begin_at),
        "depends_on": [
            {"job": needed.on_id, "on": needed.condition} for needed in job.dependencies.all()
        ],
        "external_id": job.external_id,
        "labels": job.labels,
        "annotations": job.annotations,
    }


def _checkpoint(job: Job) -> Answer | None:
    if job.checkpoint_interval_seconds is None:
        return None
    return {
        "interval_seconds": job.checkpoint_interval_seconds,
        "grace_seconds": job.checkpoint_grace_seconds,
        "notice": job.checkpoint_notice,
    }


def _roles(job: Job) -> Mapping[str, Any]:
    """The per-replica fields of a sole role `main`, else `roles` and `decides`."""
    roles = list(job.roles.all())
    if len(roles) == 1 and roles[0].name == MAIN_ROLE and not roles[0].env:
        return _role(roles[0])
    named = [{"name": role.name, **_role(role), "env": role.env} for role in roles]
    return {"roles": named, "decides": job.decides}


def _role(role: JobRole) -> Answer:
    part = (
        {"replicas": role.slice_replicas, "level": role.slice_level}
        if role.slice_replicas
        else None
    )
    return {
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "gpus_per_replica": role.gpus_per_replica,
        "cpu_per_replica": cpu_text(role.cpu_millis_per_replica),
        "memory_per_replica": memory_text(role.memory_mib_per_replica),
        "image": role.image,
        "command": role.command,
        "args": role.args,
        "topology": {
            "level": role.topology_level or None,
            "mode": role.topology_mode,
            "preferred_level": role.topology_preferred_level or None,
            "slice": part,
        },
        "tensor_parallel": role.tensor_parallel,
    }
