"""Which jobs a window or drain would send away, when and at what cost: the preview, and what is then done.

Called by `services.windows`, `services.occurrences`, `services.drains`.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common.errors import ConflictError
from queues.models import Attempt, Cluster, Job, Placement
from queues.selectors.answers import time_text
from queues.selectors.jobs import jobs_visible_to
from queues.services.attempts import saves_of
from scheduler.maintenance.life import Departure, Runner, expected_empty_at
from scheduler.selectors.overlaps import Overlap
from tenants.access import Actor

Json = dict[str, Any]
START_ALLOWANCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Leaver:
    """A running attempt with pods on the nodes in question."""

    attempt: Attempt
    runner: Runner
    nodes: frozenset[str]


def leavers(
    cluster: Cluster, nodes: Collection[str], admits: Mapping[str, Iterable[str]] | None = None
) -> list[Leaver]:
    """Attempts that hold some of these nodes, by id; without those that a reservation admits. Three queries."""
    rows = Placement.objects.filter(
        node__in=nodes, released_at__isnull=True, attempt__cluster=cluster
    )
    held: dict[int, set[str]] = {}
    for attempt_id, node in rows.values_list("attempt_id", "node"):
        held.setdefault(attempt_id, set()).add(node)
    attempts = Attempt.objects.filter(pk__in=held).select_related(
        "job__tenant", "job__queue", "job__user"
    )
    gpus = _gpus(held)
    return [
        Leaver(each, _runner(each, gpus.get(each.pk, 0)), frozenset(held[each.pk]))
        for each in attempts.order_by("pk")
        if not _is_admitted(each.job, admits or {})
    ]


def _gpus(attempts: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    rows = Placement.objects.filter(attempt__in=attempts, released_at__isnull=True)
    for attempt_id, gpus in rows.values_list("attempt_id", "gpus"):
        found[attempt_id] = found.get(attempt_id, 0) + gpus
    return found


def _is_admitted(job: Job, admits: Mapping[str, Iterable[str]]) -> bool:
    return (
        job.tenant.slug in admits.get("tenants", ())
        or f"{job.tenant.slug}.{job.queue.name}" in admits.get("queues", ())
        or job.pk in admits.get("jobs", ())
    )


def _runner(attempt: Attempt, gpus: int) -> Runner:
    job = attempt.job
    return Runner(
        saves=saves_of(attempt, job),
        gpus=gpus,
        ends_at=_latest_end(attempt, job),
        grace=timedelta(seconds=job.grace_seconds),
        notice=job.checkpoint_notice if job.checkpoint_interval_seconds else "signal",
    )


def _latest_end(attempt: Attempt, job: Job) -> datetime | None:
    """The end that the limit allows, as the planner reckons it."""
    if attempt.stop_requested_at is not None:
        grace = attempt.stop_grace_seconds or 0
        return attempt.stop_requested_at + timedelta(seconds=grace)
    if job.max_runtime_seconds is None:
        return None
    limit = timedelta(seconds=job.max_runtime_seconds + job.grace_seconds)
    if attempt.started_at is None:
        return attempt.placed_at + START_ALLOWANCE + limit
    return attempt.started_at + limit


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would become of the jobs on some nodes. parts: by attempt, in the order in which they leave."""

    nodes: tuple[str, ...]
    parts: tuple[tuple[Leaver, Departure], ...]
    empty_at: datetime | None
    # Other windows on these nodes at that time: told, not refused.
    overlaps: tuple[Overlap, ...] = ()

    @property
    def lost_gpu_seconds(self) -> int:
        """Work thrown away, of all gangs."""
        return round(sum(part.lost_seconds * leaver.runner.gpus for leaver, part in self.parts))

    @property
    def plan_id(self) -> str:
        """Changes when other jobs would be hit, or other nodes, or in another way."""
        told = [
            *self.nodes,
            *(f"{leaver.attempt.pk}:{part.way}" for leaver, part in self.parts),
        ]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:24]


def outlook(
    nodes: Iterable[str],
    found: Iterable[Leaver],
    leaves: Callable[[Runner], Departure],
    now: datetime,
) -> Outlook:
    """Departures of all, the first to go first; of those that go together the one that loses least."""
    parts = [(leaver, leaves(leaver.runner)) for leaver in found]
    far = now + timedelta(days=36_500)
    parts.sort(
        key=lambda pair: (
            pair[1].leaves_at or far,
            pair[1].lost_seconds * pair[0].runner.gpus,
            pair[0].attempt.pk,
        )
    )
    return Outlook(
        tuple(sorted(nodes)), tuple(parts), expected_empty_at([part for _, part in parts], now)
    )


def outlook_answer(actor: Actor, found: Outlook) -> Json:
    """The preview for a reader: jobs that they may see by id, the others by number."""
    ids = [leaver.attempt.job_id for leaver, _part in found.parts]
    visible = set(jobs_visible_to(actor).filter(pk__in=ids).values_list("pk", flat=True))
    shown = [
        {
            "job": leaver.attempt.job_id,
            "name": leaver.attempt.job.name,
            "tenant": leaver.attempt.job.tenant.slug,
            "gpus": leaver.runner.gpus,
            "nodes": sorted(leaver.nodes),
            "way": part.way.value,
            "leaves_at": time_text(part.leaves_at),
            "lost_gpu_seconds": round(part.lost_seconds * leaver.runner.gpus),
        }
        for leaver, part in found.parts
        if leaver.attempt.job_id in visible
    ]
    return {
        "plan_id": found.plan_id,
        "nodes": list(found.nodes),
        "jobs": shown,
        "hidden_jobs": len(ids) - len(shown),
        "lost_gpu_seconds": found.lost_gpu_seconds,
        "empty_at": time_text(found.empty_at),
        "overlaps": [each.answer() for each in found.overlaps],
    }


def plan_changed(found: Outlook) -> ConflictError:
    """Other jobs would be hit than the preview said."""
    return ConflictError(
        _("What would happen has changed since the preview."),
        code="plan_changed",
        hint=_("Look at the new preview, and confirm it with its plan_id."),
        extra={"plan_id": found.plan_id, "lost_gpu_seconds": found.lost_gpu_seconds},
    )
