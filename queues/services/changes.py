"""Changing a stored job: priority, queue, run-time limit. Called by `services.jobs`, which the doors call."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils.translation import gettext as _

from controlplane.common.errors import ConflictError, FieldError, StaleError
from queues.contract.context import Context
from queues.contract.course import read_max_runtime, read_priority
from queues.contract.jobs import read_job
from queues.contract.reading import Reader
from queues.lifecycle import Phase
from queues.models import Job, Queue
from queues.reasons import NOT_YET_CONSIDERED
from queues.selectors.answers import as_sent
from queues.selectors.offers import offer_of
from queues.services.lifecycle import record_job_event
from queues.services.planner import planner
from queues.services.validation import invalid
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class Changed:
    """The columns that become different, and what the event says of each: [before, after]."""

    columns: dict[str, Any]
    numbers: dict[str, list[Any]]


def change(
    actor: Actor, job: Job, changes: Mapping[str, Any], version: int | None, now: datetime
) -> None:
    """Apply `changes` to the job as it was read. Joins `log.writing()`.

    version: the one that the caller has seen, None for any. Raises StaleError, InvalidError with pointers, or
    ConflictError where the job's phase does not allow it.
    """
    if version is not None and version != job.version:
        raise _stale(job.version)
    if job.phase == Phase.FINISHED:
        raise ConflictError(_("The job has finished."), code="wrong_phase")
    changed = _read(actor, job, changes, now)
    if not changed.columns:
        return
    _check_running(job, changed, now)
    # Whatever the planner said was said of another job.
    forget = (
        {"class_key": "", "reason_code": NOT_YET_CONSIDERED, "reason_since": now}
        if job.phase == Phase.PENDING
        else {}
    )
    rows = Job.objects.filter(pk=job.pk, version=job.version, phase=job.phase)
    if not rows.update(version=F("version") + 1, **changed.columns, **forget):
        raise _stale(None)
    record_job_event(job, "job.changed", actor=actor.name, now=now, numbers=changed.numbers)


def _stale(current: int | None) -> StaleError:
    return StaleError(
        _("It was changed after you read it."),
        hint=_("Read it again and repeat your change."),
        extra={} if current is None else {"current_version": current},
    )


def _read(actor: Actor, job: Job, changes: Mapping[str, Any], now: datetime) -> Changed:
    context = Context(now, None, tuple(settings.METADATA_PREFIXES))
    reader = Reader(changes, "", context.errors)
    queue = _read_queue(reader, job)
    context.offer = offer_of(actor, job.tenant, queue)
    columns: dict[str, Any] = {}
    if reader.has("priority"):
        columns["priority"] = read_priority(reader, context)
    if "max_runtime_seconds" in changes:
        columns["max_runtime_seconds"] = read_max_runtime(reader, context)
    if queue.pk != job.queue_id:
        columns["queue_id"] = queue.pk
    reader.take("priority")
    reader.take("max_runtime_seconds")
    reader.finish()
    errors = list(context.errors.found)
    if "queue_id" in columns and not errors:
        errors += _queue_faults(job, context, queue, columns, now)
    if errors:
        raise invalid(errors)
    return _differences(job, columns, queue)


def _read_queue(reader: Reader, job: Job) -> Queue:
    name = reader.text("queue", job.queue.name, longest=63)
    if name == job.queue.name:
        return job.queue
    found = job.tenant.queues.select_related("cluster").filter(name=name).first()
    if found is None:
        reader.fault(
            "queue",
            "unknown_queue",
            _("is not a queue of tenant {tenant}").format(tenant=job.tenant.slug),
        )
        return job.queue
    if found.state == "closed":
        reader.fault("queue", "queue_closed", _("is closed: it takes no jobs"))
    if job.phase not in (Phase.PENDING, Phase.HELD):
        reader.fault("queue", "wrong_phase", _("can be changed only while the job waits"))
    return found


def _queue_faults(
    job: Job, context: Context, queue: Queue, columns: Mapping[str, Any], now: datetime
) -> list[FieldError]:
    """Whether the whole job, as it would be, is one that the other queue takes."""
    payload = as_sent(job) | {
        "queue": queue.name,
        # They were checked when the job was submitted, and time has passed since.
        "begin_at": None,
        "depends_on": [],
    }
    payload |= {
        name: columns[name] for name in ("priority", "max_runtime_seconds") if name in columns
    }
    check = Context(now, context.offer, context.prefixes)
    read_job(payload, check)
    return [
        FieldError("/queue", fault.code, f"{fault.pointer}: {fault.message}")
        for fault in check.errors.found
    ]


def _differences(job: Job, columns: dict[str, Any], queue: Queue) -> Changed:
    different = {name: value for name, value in columns.items() if getattr(job, name) != value}
    numbers = {
        name: [getattr(job, name), value] for name, value in different.items() if name != "queue_id"
    }
    if "queue_id" in different:
        numbers["queue"] = [job.queue.name, queue.name]
    return Changed(different, numbers)


def _check_deadline(job: Job, seconds: int | None) -> None:
    """The kubelet ends running pods at their own deadline, which Kubernetes lets nobody raise."""
    attempt = job.attempts.filter(ended_at__isnull=True).first()
    if attempt is None or attempt.pods_end_after_seconds is None:
        return
    most = attempt.pods_end_after_seconds - job.grace_seconds
    if seconds is None or seconds > most:
        told = _(
            "This attempt's pods end after {most} s whatever is asked now: requeue the job to run longer."
        )
        raise ConflictError(told.format(most=most), code="extension_beyond_deadline")


def _check_running(job: Job, changed: Changed, now: datetime) -> None:
    """Running longer than planned may delay a booking or cross a window: the planner decides."""
    if job.phase in (Phase.PENDING, Phase.HELD) or "max_runtime_seconds" not in changed.columns:
        return
    before, after = job.max_runtime_seconds, changed.columns["max_runtime_seconds"]
    if before is None or (after is not None and after <= before):
        return
    _check_deadline(job, after)
    refusal = planner().refuses_longer_run(job, after, now)
    if refusal is not None:
        raise ConflictError(refusal, code="extension_refused")
