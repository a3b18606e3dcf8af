"""GPU hours over a stretch of time, from the placements that held GPUs then. Called by `GET usage/`.

A replica counts from its attempt's placing until its GPUs are released: that is what nobody else could use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, Sum

from queues.models import Placement
from tenants.access import Actor
from tenants.selectors import visible_tenants

GROUPS = ("tenant", "queue", "user", "flavor", "day")
_DAY = timedelta(days=1)


@dataclass(slots=True)
class Usage:
    """What one group has used. key: a name for each of the groups asked for, in their order; a day as 2026-11-29."""

    key: tuple[str, ...]
    gpu_seconds: float = 0.0
    jobs: set[str] = field(default_factory=set)

    def answer(self, groups: Sequence[str]) -> dict[str, Any]:
        """As REST tells it."""
        hours = round(self.gpu_seconds / 3600, 4)
        return {
            **dict(zip(groups, self.key, strict=True)),
            "gpu_hours": hours,
            "jobs": len(self.jobs),
        }


@dataclass(frozen=True, slots=True)
class _Held:
    """GPUs that one attempt held for the same time."""

    names: dict[str, str]
    job: str
    begin: datetime
    end: datetime
    gpus: int


def usage_visible_to(
    actor: Actor, since: datetime, until: datetime, groups: Sequence[str], now: datetime
) -> list[Usage]:
    """The use of the tenants that the actor sees in [since, until), by group, sorted by key. One query.

    groups: some of GROUPS. What still runs counts until `now`.
    """
    found: dict[tuple[str, ...], Usage] = {}
    for held in _held(actor, since, min(until, now), now):
        for day, seconds in _parts(held, by_day="day" in groups):
            names = held.names | {"day": day}
            key = tuple(names[group] for group in groups)
            usage = found.setdefault(key, Usage(key))
            usage.gpu_seconds += seconds * held.gpus
            usage.jobs.add(held.job)
    return [found[key] for key in sorted(found)]


def _held(actor: Actor, since: datetime, until: datetime, now: datetime) -> Iterator[_Held]:
    """What was held at any time of the stretch, cut to it. What an attempt let go at once is one row."""
    rows = (
        Placement.objects.filter(visible_tenants(actor, "attempt__job__tenant"))
        .filter(Q(released_at__isnull=True) | Q(released_at__gt=since))
        .filter(attempt__placed_at__lt=until, gpus__gt=0)
        .order_by("attempt_id")
        .values_list(
            "attempt__job__tenant__slug",
            "attempt__job__queue__name",
            "attempt__job__user__username",
            "attempt__flavor__name",
            "attempt__job_id",
            "attempt__placed_at",
            "attempt__ended_at",
            "released_at",
        )
        .annotate(held=Sum("gpus"))
    )
    for tenant, queue, user, flavor, job, placed, ended, released, gpus in rows.iterator():
        begin, end = max(placed, since), min(released or ended or now, until)
        if begin < end:
            names = {
                "tenant": tenant,
                "queue": f"{tenant}.{queue}",
                "user": user,
                "flavor": flavor or "",
            }
            yield _Held(names, job, begin, end, gpus)


def _parts(held: _Held, *, by_day: bool) -> Iterator[tuple[str, float]]:
    """(day, seconds) of each day (UTC) of it; one part without a name where days are not asked for."""
    if not by_day:
        yield "", (held.end - held.begin).total_seconds()
        return
    at = held.begin
    while at < held.end:
        day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        until = min(held.end, day + _DAY)
        yield f"{day:%Y-%m-%d}", (until - at).total_seconds()
        at = until
