"""Start estimates for waiting jobs: a conservative plan behind the decisions of a pass.

Every job in order gets the earliest start beside those before it, if all run to their limits. That
bound is late on the mean, as limits are over-asked; `scheduler.core.explain.calibration` turns it
into a range.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.cycle.backfill import Backfill
from scheduler.core.cycle.world import World
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.outputs import Booking, Estimate


def estimates(
    world: World, backfill: Backfill, order: list[str], bookings: tuple[Booking, ...]
) -> Iterator[Estimate]:
    """Estimates for the first `options.estimates` jobs of `order`, one at a time; those booked have
    theirs, and those booked further behind come last.

    Equal jobs start in order, so each search begins where the last of its class ended.
    """
    told: dict[str, float | None] = {b.job: b.starts_at for b in bookings}
    waiting = world.memo.lines(world.snapshot).jobs
    latest: dict[str, float | None] = {}
    first = order[: world.options.estimates]
    for job_id in first:
        if job_id not in told:
            told[job_id] = _estimate(world, backfill, waiting[job_id], latest)
        yield Estimate(job_id, told[job_id])
    ahead = set(first)
    yield from (Estimate(b.job, b.starts_at) for b in bookings if b.job not in ahead)


def _estimate(
    world: World, backfill: Backfill, job: WaitingJob, latest: dict[str, float | None]
) -> float | None:
    if job.depends_on:
        return None
    key = world.key_of(job)
    before = latest.get(key, world.now)
    if before is None:
        return None
    own = [t for t in (job.begin_at, job.backoff_until, job.refused_until) if t is not None]
    found = backfill.estimate(job, max(before, *own) if own else before)
    latest[key] = found
    return found
