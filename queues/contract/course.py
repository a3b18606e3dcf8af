"""When a job may begin, how long it may run, how it ends and starts again. Pure. Called by `jobs`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from queues.contract.context import Context
from queues.contract.reading import Reader, listed
from queues.specs import HIGHEST_PRIORITY, PRIORITY_CLASSES, CheckpointSpec, DependencySpec

MOST_SECONDS = 10 * 366 * 24 * 3600
MOST_GRACE_SECONDS = 3600
FURTHEST_BEGIN = timedelta(days=366)
ON_PREEMPTION = ("requeue", "stop")
NOTICES = ("signal", "poll", "file")
ON_STALL = ("alert", "restart")
CONDITIONS = ("succeeded", "finished")


@dataclass(frozen=True, slots=True)
class Course:
    """The part of a job that says when, how long, and what follows an end."""

    priority: int
    preemptible: bool
    on_preemption: str
    max_runtime_seconds: int | None
    grace_seconds: int
    checkpoint: CheckpointSpec | None
    max_restarts: int
    stall_timeout_seconds: int | None
    on_stall: str
    begin_at: datetime | None
    depends_on: tuple[DependencySpec, ...]


def read_course(job: Reader, context: Context) -> Course:
    """Read them all."""
    return Course(
        priority=read_priority(job, context),
        preemptible=job.flag("preemptible", default=True),
        on_preemption=job.choice("on_preemption", "requeue", ON_PREEMPTION),
        max_runtime_seconds=read_max_runtime(job, context),
        grace_seconds=job.whole("grace_seconds", 30, most=MOST_GRACE_SECONDS),
        checkpoint=_read_checkpoint(job),
        max_restarts=job.whole("max_restarts", 0, most=1000),
        stall_timeout_seconds=job.optional_whole(
            "stall_timeout_seconds", least=60, most=MOST_SECONDS
        ),
        on_stall=job.choice("on_stall", "alert", ON_STALL),
        begin_at=_read_begin(job, context),
        depends_on=_read_dependencies(job),
    )


def read_priority(job: Reader, context: Context) -> int:
    """0…1000 or the name of a class, within what the submitter may ask for."""
    value = job.take("priority")
    least, most = _priority_range(context)
    if value is None:
        context.note_default(job.at("priority"), "contract")
        return min(max(PRIORITY_CLASSES["normal"], least), most)
    priority = PRIORITY_CLASSES.get(value) if isinstance(value, str) else value
    if isinstance(priority, bool) or not isinstance(priority, int):
        job.fault(
            "priority",
            "invalid_priority",
            _("must be a number from 0 to 1000 or one of {classes}").format(
                classes=listed(tuple(PRIORITY_CLASSES))
            ),
        )
        return most
    if not least <= priority <= most:
        job.fault("priority", "out_of_range", _priority_message(context, least, most))
        return most
    return priority


def _priority_range(context: Context) -> tuple[int, int]:
    if context.offer is None:
        return 0, HIGHEST_PRIORITY
    return context.offer.lowest_priority, context.offer.highest_priority


def _priority_message(context: Context, least: int, most: int) -> str:
    if context.offer is None:
        return _("must be from {least} to {most}").format(least=least, most=most)
    return _(
        "must be from {least} to {most}: that is what you may ask for in queue {queue}"
    ).format(least=least, most=most, queue=context.offer.queue)


def read_max_runtime(job: Reader, context: Context) -> int | None:
    """The limit of each attempt; the queue's default where none was sent, at most the queue's longest."""
    found = job.optional_whole("max_runtime_seconds", least=1, most=MOST_SECONDS)
    offer = context.offer
    longest = offer.longest_max_runtime_seconds if offer else None
    if job.has("max_runtime_seconds"):
        if found is not None and longest is not None and found > longest:
            job.fault(
                "max_runtime_seconds",
                "too_large",
                _("must be at most {longest}, the longest that the queue allows").format(
                    longest=longest
                ),
            )
        return found
    context.note_default(job.at("max_runtime_seconds"), "queue")
    default = offer.default_max_runtime_seconds if offer else None
    return longest if default is None else default


def _read_checkpoint(job: Reader) -> CheckpointSpec | None:
    reader = job.object("checkpoint")
    if reader is None:
        return None
    reader.required("interval_seconds")
    spec = CheckpointSpec(
        interval_seconds=reader.whole("interval_seconds", 1, least=1, most=MOST_SECONDS),
        grace_seconds=reader.whole("grace_seconds", 120, most=MOST_GRACE_SECONDS * 4),
        notice=reader.choice("notice", "signal", NOTICES),
    )
    reader.finish()
    return spec


def _read_begin(job: Reader, context: Context) -> datetime | None:
    begin = job.moment("begin_at")
    if begin is None:
        return None
    if begin < context.now:
        job.fault("begin_at", "in_the_past", _("must not be in the past"))
    elif begin > context.now + FURTHEST_BEGIN:
        job.fault("begin_at", "too_late", _("must be within a year"))
    return begin


def _read_dependencies(job: Reader) -> tuple[DependencySpec, ...]:
    return tuple(_read_dependency(reader) for reader in job.objects("depends_on", most=100))


def _read_dependency(reader: Reader) -> DependencySpec:
    spec = DependencySpec(
        job=reader.text("job", longest=32),
        external_id=reader.text("external_id", longest=200),
        on=reader.choice("on", "succeeded", CONDITIONS),
    )
    if reader.has("job") == reader.has("external_id"):
        reader.errors.add(
            reader.pointer, "one_of", _("must name a job either by job or by external_id")
        )
    reader.finish()
    return spec
