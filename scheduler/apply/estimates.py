"""Start estimates, rewritten when they moved by more than a minute and 5 % (rule 6).

Called by `scheduler.loop.cycle`, with a plan that estimates.
"""

from datetime import UTC, datetime

from controlplane.common import log
from queues.models import Estimate, Job
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.spoken import Spoken
from scheduler.core.outputs import Plan

ROWS_PER_TRANSACTION = 500
LEAST_MOVE_SECONDS = 60.0
LEAST_MOVE_SHARE = 0.05


def write_estimates(lease: HeldLease, plan: Plan, spoken: Spoken, now: datetime) -> int:
    """Write the estimates that moved enough, delete those that the plan no longer gives; returns rows written."""
    given = {e.job: e.starts_at for e in plan.estimates if e.starts_at is not None}
    moved = {
        job: starts_at
        for job, starts_at in given.items()
        if has_moved(spoken.estimates.get(job), starts_at, plan.now)
    }
    gone = [job for job in spoken.estimates if job not in given]
    for part in _parts(sorted(moved)):
        _upsert(lease, {job: moved[job] for job in part}, spoken, now)
    for part in _parts(gone):
        with log.writing():
            hold(lease)
            Estimate.objects.filter(job__in=part).delete()
        for job in part:
            del spoken.estimates[job]
    return len(moved) + len(gone)


def has_moved(before: float | None, after: float, now: float) -> bool:
    """Whether an estimate differs from the one shown by more than a minute and 5 % of the time to go."""
    if before is None:
        return True
    return abs(after - before) > max(LEAST_MOVE_SECONDS, LEAST_MOVE_SHARE * max(0.0, before - now))


def _upsert(lease: HeldLease, moved: dict[str, float], spoken: Spoken, now: datetime) -> None:
    with log.writing():
        hold(lease)
        # A job may have been deleted by retention, never while it waits; then its estimate is not wanted.
        known = set(Job.objects.filter(pk__in=moved).values_list("pk", flat=True))
        Estimate.objects.bulk_create(
            [
                Estimate(job_id=job, p50=datetime.fromtimestamp(at, UTC), made_at=now)
                for job, at in moved.items()
                if job in known
            ],
            update_conflicts=True,
            unique_fields=["job"],
            update_fields=["p50", "made_at"],
        )
    spoken.estimates.update(moved)


def _parts(jobs: list[str]) -> list[list[str]]:
    return [
        jobs[at : at + ROWS_PER_TRANSACTION] for at in range(0, len(jobs), ROWS_PER_TRANSACTION)
    ]
