"""Rows of job lists: what one line says, gathered for a whole page in a fixed number of queries.

Called by the job list, by the page Now, and by the live hub, which pushes single rows with the
template `queues/_job_row.html` (docs/live.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, QuerySet
from django.db.models.fields.json import KT
from django.urls import reverse
from django.utils.translation import ngettext

from controlplane.common.amounts import count
from queues.lifecycle import ACTIVE_PHASES, Phase
from queues.models import Estimate, Job, Placement
from queues.selectors.waiting import Said, Waiting, waiting_of
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of a list. `position` counts from 1 among its queue's waiting jobs."""

    id: str
    name: str
    href: str
    phase: str
    outcome: str
    shape: str
    model: str
    gpus: int
    tenant: str
    queue: str
    user: str
    priority: int
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    position: int | None
    reason_code: str
    reason_numbers: Mapping[str, Any]
    reason_message: str
    hint: str
    message: str
    place: str
    ends_by: datetime | None
    estimate: Estimate | None

    @property
    def why_href(self) -> str:
        """Where the reason is explained in full."""
        return f"{self.href}#why"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs: in a few words, and on which GPU model."""

    words: str
    model: str


def with_row_parts(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The query that `job_rows` wants: everything that a row reads, and no more."""
    return jobs.select_related("tenant", "queue", "user", "estimate").prefetch_related("roles")


def job_rows(actor: Actor, jobs: Sequence[Job]) -> list[JobRow]:
    """Rows for jobs read by `with_row_parts`, in the same order."""
    waiting = waiting_of(actor, jobs)
    places = _places(jobs)
    return [_row(job, waiting.get(job.pk), places.get(job.pk)) for job in jobs]


def shape_of(job: Job) -> str:
    """`8 × 8`: replicas × GPUs per replica; roles are joined by +."""
    return " + ".join(f"{role.replicas} × {role.gpus_per_replica}" for role in job.roles.all())


def gpus_of(job: Job) -> int:
    """GPUs that all replicas of a job ask for together."""
    return sum(role.replicas * role.gpus_per_replica for role in job.roles.all())


def short_model(model: str) -> str:
    """`H100` for `NVIDIA-H100-80GB-HBM3`: what people call it."""
    words = [w for w in model.replace("_", "-").split("-") if w and w.upper() not in _MAKERS]
    return words[0] if words else model


_MAKERS = {"NVIDIA", "AMD", "TESLA", "INTEL", "INSTINCT"}


def _row(job: Job, waiting: Waiting | None, place: Place | None) -> JobRow:
    said = waiting.dominant if waiting else None
    return JobRow(
        id=job.pk,
        name=job.name,
        href=reverse("job", args=[job.pk]),
        phase=job.phase,
        outcome=job.outcome,
        shape=shape_of(job),
        model=_model(job, said, place),
        gpus=gpus_of(job),
        tenant=job.tenant.slug,
        queue=job.queue.name,
        user=job.user.get_username(),
        priority=job.priority,
        submitted_at=job.submitted_at,
        started_at=job.started_at if job.phase in (*ACTIVE_PHASES, Phase.FINISHED) else None,
        finished_at=job.finished_at,
        position=waiting.position if waiting else None,
        reason_code=said.code if said else "",
        reason_numbers=said.numbers if said else {},
        reason_message=said.sentence if said else "",
        hint=said.hint if said else "",
        message=job.message if job.phase == Phase.FINISHED else "",
        place=place.words if place else "",
        ends_by=_ends_by(job),
        estimate=_estimate(job) if waiting else None,
    )


def _ends_by(job: Job) -> datetime | None:
    if job.phase != Phase.RUNNING or job.started_at is None or not job.max_runtime_seconds:
        return None
    return job.started_at + timedelta(seconds=job.max_runtime_seconds)


def _estimate(job: Job) -> Estimate | None:
    return job.estimate if hasattr(job, "estimate") else None


def _places(jobs: Iterable[Job]) -> dict[str, Place]:
    """Where active jobs run: the leaf if it is one, and how many nodes. One query."""
    active = [job.pk for job in jobs if job.phase in ACTIVE_PHASES]
    if not active:
        return {}
    rows = (
        Placement.objects.filter(attempt__job_id__in=active, attempt__ended_at__isnull=True)
        .values("attempt__job_id", "attempt__flavor__model")
        .annotate(
            nodes=Count("node", distinct=True),
            first=Min(KT("domains__leaf")),
            last=Max(KT("domains__leaf")),
            node=Min("node"),
        )
    )
    return {
        row["attempt__job_id"]: Place(_place(row), row["attempt__flavor__model"] or "")
        for row in rows
    }


def _place(row: Mapping[str, Any]) -> str:
    nodes = int(row["nodes"])
    if nodes == 1:
        return str(row["node"])
    text = ngettext("{n} node", "{n} nodes", nodes).format(n=count(nodes))
    leaf = row["first"] if row["first"] and row["first"] == row["last"] else ""
    return f"{leaf} · {text}" if leaf else text


def _model(job: Job, said: Said | None, place: Place | None) -> str:
    """The model that it has got, else those asked for, else the flavor that its reason speaks of."""
    spoken_of = str(said.numbers.get("flavor") or "") if said else ""
    asked = ", ".join(short_model(str(model)) for model in job.gpu_model)
    return (short_model(place.model) if place else "") or asked or spoken_of
