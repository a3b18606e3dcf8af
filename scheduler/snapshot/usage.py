"""Past use of GPUs, decayed by a half-life: what orders the users of a queue and the tenants of a cohort.

A GPU held from a to b counts, at now, the integral of 2^((t - now) / half-life) over [a, b]. Weights are taken
against one fixed moment, so that a sum once made only has to be scaled as time goes by. Called by `warm`.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Max, Sum

from queues.models import Placement
from scheduler.core.inputs.jobs import RunningJob
from scheduler.core.inputs.quotas import DecayedUsage

HALF_LIFE_SECONDS = 604_800.0
# What was released longer ago counts for less than half a percent.
WINDOW = timedelta(seconds=8 * HALF_LIFE_SECONDS)
# 2026-01-01 UTC. Doubles hold the weights for some twenty years from here.
_REFERENCE = 1_767_225_600.0

Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PastUse:
    """What the released placements of one job have used. weighted: GPUs times the difference of weights."""

    owner: Owner
    weighted: float


def weight(at: float) -> float:
    """The weight of a moment, in seconds since the epoch."""
    return float(2.0 ** ((at - _REFERENCE) / HALF_LIFE_SECONDS))


def read_past(cluster_id: int, jobs: Collection[str] | None = None) -> dict[str, PastUse]:
    """Past use by job on a cluster: of all jobs released within the window, or of those given."""
    released = Placement.objects.filter(attempt__cluster_id=cluster_id, released_at__isnull=False)
    if jobs is None:
        newest = released.aggregate(at=Max("released_at"))["at"]
        if newest is None:
            return {}
        rows = released.filter(released_at__gte=newest - WINDOW)
    else:
        rows = released.filter(attempt__job__in=jobs)
    found: dict[str, PastUse] = {}
    for job, tenant, user, placed_at, released_at, gpus in (
        rows.order_by("attempt__job_id", "attempt_id", "released_at")
        .values_list(
            "attempt__job_id",
            "attempt__job__tenant__slug",
            "attempt__job__user__username",
            "attempt__placed_at",
            "released_at",
        )
        .annotate(g=Sum("gpus"))
    ):
        span = weight(released_at.timestamp()) - weight(placed_at.timestamp())
        before = found.get(job)
        total = gpus * max(0.0, span) + (before.weighted if before else 0.0)
        found[job] = PastUse((tenant, user), total)
    return found


def decayed_usage(
    past: Mapping[Owner, float], running: Iterable[RunningJob], now: float
) -> tuple[DecayedUsage, ...]:
    """Usage at `now` of every user and every tenant that has any, by name; running jobs count up to now."""
    weighted: dict[tuple[str, str | None], float] = defaultdict(float)
    for (tenant, user), amount in past.items():
        weighted[tenant, user] += amount
        weighted[tenant, None] += amount
    now_weight = weight(max(now, _REFERENCE))
    for job in running:
        amount = job.gpus * max(0.0, now_weight - weight(job.placed_at))
        weighted[job.ask.tenant, job.ask.user] += amount
        weighted[job.ask.tenant, None] += amount
    scale = HALF_LIFE_SECONDS / math.log(2) / now_weight
    usage = [
        DecayedUsage(tenant, user, round(amount * scale, 1))
        for (tenant, user), amount in weighted.items()
    ]
    kept = (row for row in usage if row.gpu_seconds > 0)
    return tuple(sorted(kept, key=lambda row: (row.tenant, row.user or "")))


def is_close(one: Iterable[DecayedUsage], other: Iterable[DecayedUsage]) -> bool:
    """Whether two usages are the same but for the order in which floats were added, and the window's edge."""
    left = {(row.tenant, row.user): row.gpu_seconds for row in one}
    right = {(row.tenant, row.user): row.gpu_seconds for row in other}
    return all(
        math.isclose(left.get(key, 0.0), right.get(key, 0.0), rel_tol=0.01, abs_tol=1.0)
        for key in left.keys() | right.keys()
    )
