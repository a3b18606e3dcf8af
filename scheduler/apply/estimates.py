"""Start estimates: a range for each, rewritten when it moved by more than a minute and 5 % (rule 6).

Called by `scheduler.loop.estimating`, part by part. The plan's moment is a bound (every job to its limit);
the range comes from what earlier bounds came to. The first estimate of each wait is kept as a forecast for that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Estimate, Forecast, Job
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.spoken import Spoken, ToldRange
from scheduler.core.explain.calibration import Calibration
from scheduler.selectors.forecasts import calibration_of

# A start waits for one of these at most.
ROWS_PER_TRANSACTION = 200
LEAST_MOVE_SECONDS = 60.0
LEAST_MOVE_SHARE = 0.05


def estimates_written(
    lease: HeldLease,
    starts: Mapping[str, float | None],
    plan_now: float,
    spoken: Spoken,
    now: datetime,
) -> Iterator[int]:
    """Write the estimates that moved enough, delete those that are no longer given; yields after each transaction how
    many rows it wrote.

    starts: the plan's moments of the first waiting jobs; None where nobody can say. plan_now: the moment of that plan.
    """
    bounds = {job: at for job, at in starts.items() if at is not None}
    given = _ranges(calibration_of(lease.cluster_id), plan_now, bounds)
    moved = {
        job: told
        for job, told in given.items()
        if _is_news(spoken.estimates.get(job), told, plan_now)
    }
    gone = [job for job in spoken.estimates if job not in given]
    for part in _parts(sorted(moved)):
        _upsert(lease, {job: moved[job] for job in part}, bounds, now)
        spoken.estimates.update({job: moved[job] for job in part})
        yield len(part)
    for part in _parts(gone):
        with log.writing():
            hold(lease)
            Estimate.objects.filter(job__in=part).delete()
        for job in part:
            del spoken.estimates[job]
        yield len(part)


def note_starts(jobs: Sequence[str], now: datetime) -> None:
    """These jobs start: their forecasts have come true so. In the caller's transaction; two statements."""
    Estimate.objects.filter(job__in=jobs).delete()
    Forecast.objects.filter(job__in=jobs, started_at__isnull=True).update(started_at=now)


def has_moved(before: float | None, after: float, now: float) -> bool:
    """Whether an estimate differs from the one shown by more than a minute and 5 % of the time to go."""
    if before is None:
        return True
    return abs(after - before) > max(LEAST_MOVE_SECONDS, LEAST_MOVE_SHARE * max(0.0, before - now))


def _ranges(calibration: Calibration, now: float, bounds: dict[str, float]) -> dict[str, ToldRange]:
    ranges = {job: calibration.range_for(now, at) for job, at in bounds.items()}
    return {job: ToldRange(found.p50, found.p90) for job, found in ranges.items()}


def _is_news(before: ToldRange | None, after: ToldRange, now: float) -> bool:
    if before is None:
        return True
    return has_moved(before.p50, after.p50, now) or has_moved(before.p90, after.p90, now)


def _upsert(
    lease: HeldLease, moved: dict[str, ToldRange], bounds: dict[str, float], now: datetime
) -> None:
    with log.writing():
        hold(lease)
        # A job may have started or ended since the plan: then its estimate is not wanted.
        waiting = Job.objects.filter(pk__in=moved, phase=Phase.PENDING)
        attempts = dict(waiting.values_list("pk", "attempt_number"))
        Estimate.objects.bulk_create(
            [
                Estimate(job_id=job, p50=_moment(told.p50), p90=_moment(told.p90), made_at=now)
                for job, told in moved.items()
                if job in attempts
            ],
            update_conflicts=True,
            unique_fields=["job"],
            update_fields=["p50", "p90", "made_at"],
        )
        # Only the first of a wait counts: the rows that are there stay as they are.
        Forecast.objects.bulk_create(
            [
                Forecast(
                    cluster_id=lease.cluster_id,
                    job_id=job,
                    attempt=attempts[job] + 1,
                    made_at=now,
                    planned_at=_moment(bounds[job]),
                    p50=_moment(told.p50),
                    p90=_moment(told.p90),
                )
                for job, told in moved.items()
                if job in attempts
            ],
            ignore_conflicts=True,
        )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _parts(jobs: Iterable[str]) -> Iterable[list[str]]:
    remaining = iter(jobs)
    while part := list(islice(remaining, ROWS_PER_TRANSACTION)):
        yield part
