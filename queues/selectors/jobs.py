"""Which jobs an actor may see, where they stand in line, how many there are. Read by API, pages and live hub."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import connection
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from controlplane.common.errors import NotVisibleError
from queues.ids import JOB_PREFIX
from queues.lifecycle import ACTIVE_PHASES, Phase
from queues.models import Attempt, Job
from tenants.access import Actor
from tenants.selectors import visible_tenants

LONGEST_ID = 32


def jobs_visible_to(actor: Actor) -> QuerySet[Job]:
    """The jobs of the actor's tenants; of all tenants for platform roles; of the token's tenant only."""
    return Job.objects.filter(visible_tenants(actor))


def with_job_parts(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """With tenant, queue, cluster, user and preset."""
    return jobs.select_related(*JOB_PARTS)


def job_of(
    actor: Actor, job_id: str, with_parts: Callable[[QuerySet[Job]], QuerySet[Job]] = with_job_parts
) -> Job:
    """The job, with as much of it loaded as `with_parts` says. Raises NotVisibleError, hidden or unknown alike."""
    found = None
    if _may_be_an_id(job_id):
        found = with_parts(jobs_visible_to(actor)).filter(pk=job_id).first()
    if found is None:
        raise no_such_job(job_id)
    return found


def _may_be_an_id(text: str) -> bool:
    """Whether it is worth asking the database, which refuses some characters."""
    short = text.startswith(JOB_PREFIX) and len(text) <= LONGEST_ID
    return short and text.isascii() and text.isprintable()


JOB_PARTS = ("tenant", "queue__cluster", "user", "preset")


def no_such_job(job_id: str) -> NotVisibleError:
    """The answer for a job that is unknown or hidden."""
    return NotVisibleError(_("There is no job “{job}” that you may see.").format(job=job_id[:40]))


def attempts_visible_to(actor: Actor) -> QuerySet[Attempt]:
    """The attempts of visible jobs."""
    return Attempt.objects.filter(job__in=jobs_visible_to(actor))


def open_attempt(job: Job) -> Attempt | None:
    """The attempt that has not ended, None for a job that is not active."""
    return job.attempts.filter(ended_at__isnull=True).first()


# One pass over the index of waiting jobs; Django would push `id IN` inside the window and number wrongly.
_POSITIONS = """
    SELECT id, position FROM (
        SELECT id, row_number() OVER (
            PARTITION BY queue_id ORDER BY priority DESC, submitted_at, id
        ) AS position
        FROM queues_job WHERE phase = 'pending' AND queue_id IN ({queues})
    ) AS line WHERE id IN ({jobs})
"""


def queue_positions(jobs: Iterable[Job]) -> dict[str, int]:
    """Place in its queue of each job that is pending, from 1: by priority, then age, then id. One query.

    Where a queue shares fairly between users the planner may consider a later job first.
    """
    waiting = [job for job in jobs if job.phase == Phase.PENDING]
    if not waiting:
        return {}
    queues = sorted({job.queue_id for job in waiting})
    ids = [job.pk for job in waiting]
    sql = _POSITIONS.format(queues=_marks(queues), jobs=_marks(ids))
    with connection.cursor() as cursor:
        cursor.execute(sql, [*queues, *ids])
        return {job_id: int(position) for job_id, position in cursor.fetchall()}


def _marks(values: list[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def jobs_ahead(job: Job) -> QuerySet[Job]:
    """Pending jobs of the same queue that come before this one, first first."""
    before = Q(priority__gt=job.priority) | Q(priority=job.priority) & (
        Q(submitted_at__lt=job.submitted_at) | Q(submitted_at=job.submitted_at, pk__lt=job.pk)
    )
    waiting = Job.objects.filter(before, queue_id=job.queue_id, phase=Phase.PENDING)
    return waiting.order_by("-priority", "submitted_at", "id")


def counts_by_phase(jobs: QuerySet[Job]) -> Mapping[str, int]:
    """How many of the jobs are unfinished, by phase, plus `waiting` (pending, held) and `active`.

    Finished ones are not counted: they may be millions.
    """
    rows = (
        jobs.exclude(phase=Phase.FINISHED).order_by().values_list("phase").annotate(n=Count("pk"))
    )
    found = {str(phase): int(n) for phase, n in rows}
    waiting = found.get(Phase.PENDING, 0) + found.get(Phase.HELD, 0)
    active = sum(found.get(phase, 0) for phase in ACTIVE_PHASES)
    return {**found, "waiting": waiting, "active": active}
