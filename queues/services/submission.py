"""Specs → stored jobs, one or five hundred in one transaction with a handful of inserts.

Called by `services.jobs`. What collides is decided by unique indexes: an `external_id` in use is a refusal, a
`job8` in use is drawn again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ApplicationError, ConflictError
from queues.ids import job8_of, new_job_ids
from queues.lifecycle import Outcome, Phase
from queues.models import Job, JobDependency, JobRole, Queue
from queues.services.lifecycle import (
    dependency_is_lost,
    lost_dependency_message,
    record_job_event,
    transition_job,
)
from queues.services.rows import job_row, role_rows
from queues.specs import JobSpec
from tenants.models import User

# SQLite takes 32,766 variables in a statement; a job has some fifty columns.
ROWS_PER_INSERT = 500
# A clash is a chance of one in a million millions, or a race for an external id: twice in a row is a defect.
MOST_TRIES = 5


@dataclass(slots=True)
class Stored:
    """What became of specs, by index: the jobs that are stored, the refusals of the others."""

    jobs: dict[int, Job] = field(default_factory=dict)
    refused: dict[int, ApplicationError] = field(default_factory=dict)


def store(specs: Mapping[int, JobSpec], user: User, now: datetime) -> Stored:
    """Store the jobs, in the order of their keys, with their dependencies and events. Joins `log.writing()`.

    Raises IntegrityError only where the rows are wrong by themselves.
    """
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            with log.writing(), transaction.atomic():
                return _store(specs, user, now)
        except IntegrityError:
            # Somebody took an external id or a job8 since we looked: look again.
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def _store(specs: Mapping[int, JobSpec], user: User, now: datetime) -> Stored:
    stored = Stored()
    taken = _taken_external_ids(specs.values())
    accepted: dict[int, JobSpec] = {}
    for index, spec in specs.items():
        key = (spec.tenant_id, spec.external_id or "")
        if spec.external_id and key in taken:
            stored.refused[index] = _external_id_taken(spec, taken[key])
        else:
            accepted[index] = spec
            if spec.external_id:
                taken[key] = ""  # by this batch: its id comes below
    if accepted:
        stored.jobs = _insert(accepted, user, now)
        _link(accepted, stored.jobs, now)
    return stored


def _taken_external_ids(specs: Iterable[JobSpec]) -> dict[tuple[int, str], str]:
    """(tenant id, external id) → job id, of those that are in use."""
    wanted = [(spec.tenant_id, spec.external_id) for spec in specs if spec.external_id]
    if not wanted:
        return {}
    rows = Job.objects.filter(
        tenant_id__in={tenant for tenant, _name in wanted},
        external_id__in={name for _tenant, name in wanted},
    ).values_list("tenant_id", "external_id", "pk")
    return {(tenant, name or ""): job_id for tenant, name, job_id in rows}


def _external_id_taken(spec: JobSpec, job_id: str) -> ConflictError:
    name = spec.external_id or ""
    if not job_id:
        return ConflictError(
            _("The external_id “{name}” stands twice in this batch.").format(name=name),
            code="external_id_taken",
        )
    return ConflictError(
        _("The external_id “{name}” is in use by {job}.").format(name=name, job=job_id),
        code="external_id_taken",
        hint=_("Read that job, or choose another external_id."),
        extra={"job": job_id},
    )


def _insert(specs: Mapping[int, JobSpec], user: User, now: datetime) -> dict[int, Job]:
    queues = _queues(specs.values())
    ids = _free_ids(specs, now)
    jobs = {index: job_row(spec, ids[index], user.pk, now) for index, spec in specs.items()}
    for job in jobs.values():
        # Events and answers read these; they are the same few rows for a whole batch.
        job.queue = queues[job.queue_id]
        job.tenant = job.queue.tenant
        job.user = user
    Job.objects.bulk_create(jobs.values(), batch_size=ROWS_PER_INSERT)
    roles = [row for index, spec in specs.items() for row in role_rows(spec, ids[index])]
    JobRole.objects.bulk_create(roles, batch_size=ROWS_PER_INSERT)
    for job in jobs.values():
        record_job_event(
            job, "job.submitted", actor=user.get_username(), now=now, numbers=_numbers(job)
        )
    return jobs


def _numbers(job: Job) -> dict[str, object]:
    return {"name": job.name, "queue": job.queue.name, "priority": job.priority}


def _queues(specs: Iterable[JobSpec]) -> dict[int, Queue]:
    ids = {spec.queue_id for spec in specs}
    return Queue.objects.select_related("tenant", "cluster").in_bulk(ids)


def _free_ids(specs: Mapping[int, JobSpec], now: datetime) -> dict[int, str]:
    """An id for each spec, such that no tenant has its job8 twice. Drawn all anew on a clash."""
    tenants = {spec.tenant_id for spec in specs.values()}
    for _try in range(MOST_TRIES):
        ids = dict(zip(specs, new_job_ids(now, len(specs)), strict=True))
        if not _has_clash(ids.values(), tenants):
            return ids
    raise ConflictError(_("No free id was found; try again."), code="id_clash")


def _has_clash(ids: Collection[str], tenants: Collection[int]) -> bool:
    names = [job8_of(job_id) for job_id in ids]
    return Job.objects.filter(tenant_id__in=tenants, job8__in=names).exists()


def _link(specs: Mapping[int, JobSpec], jobs: Mapping[int, Job], now: datetime) -> None:
    """Write the dependencies; a job that needs one which is already lost ends at once, with the cause."""
    needing = {index: spec for index, spec in specs.items() if spec.depends_on}
    if not needing:
        return
    known = _jobs_needed(needing.values())
    for job in jobs.values():
        if job.external_id:
            known.setdefault((job.tenant_id, f"external:{job.external_id}"), job)
    rows = []
    lost: list[tuple[Job, Job]] = []
    for index, spec in needing.items():
        for needed in spec.depends_on:
            on = known[spec.tenant_id, needed.job or f"external:{needed.external_id}"]
            rows.append(JobDependency(job=jobs[index], on=on, condition=needed.on))
            if on.phase == Phase.FINISHED and dependency_is_lost(needed.on, on.outcome):
                lost.append((jobs[index], on))
    JobDependency.objects.bulk_create(rows, batch_size=ROWS_PER_INSERT)
    for job, on in lost:
        _end_as_lost(job, on, now)
    if lost:
        _reread(jobs.values())


def _end_as_lost(job: Job, on: Job, now: datetime) -> None:
    current = Job.objects.select_related("tenant", "queue__cluster").get(pk=job.pk)
    if current.phase == Phase.FINISHED:  # it needs two that are lost, or one that has just ended so
        return
    transition_job(
        current,
        Phase.FINISHED,
        actor="muster",
        now=now,
        outcome=Outcome.CANCELLED,
        message=lost_dependency_message(on),
    )


_CHANGED_BY_AN_END = ("phase", "outcome", "message", "finished_at", "version", "reason_code")


def _reread(jobs: Collection[Job]) -> None:
    """Bring jobs up to date of which some have ended, those that needed them too."""
    rows = Job.objects.in_bulk([job.pk for job in jobs])
    for job in jobs:
        for name in _CHANGED_BY_AN_END:
            setattr(job, name, getattr(rows[job.pk], name))


def _jobs_needed(specs: Iterable[JobSpec]) -> dict[tuple[int, str], Job]:
    """Stored jobs by (tenant id, id) and by (tenant id, "external:" and external id).

    Their rows are locked: one that ends meanwhile ends before we look, or sees who depends on it.
    """
    wanted = [(spec.tenant_id, needed) for spec in specs for needed in spec.depends_on]
    ids = {needed.job for _tenant, needed in wanted if needed.job}
    names = {needed.external_id for _tenant, needed in wanted if needed.external_id}
    rows = (
        Job.objects.select_for_update(of=("self",), no_key=True)
        .filter(Q(pk__in=ids) | Q(external_id__in=names))
        .filter(tenant_id__in={tenant for tenant, _needed in wanted})
        .order_by("pk")
    )
    found: dict[tuple[int, str], Job] = {}
    for job in rows:
        found[job.tenant_id, job.pk] = job
        if job.external_id:
            found[job.tenant_id, f"external:{job.external_id}"] = job
    return found
