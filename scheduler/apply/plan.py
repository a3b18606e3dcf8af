"""A plan → rows: starts first, each in a transaction of its own, then what is said of the jobs that wait.

Start estimates come from a plan of their own (`estimates`). Called by `scheduler.loop.cycle`, which holds the lease.
"""

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime

from scheduler.apply.fence import HeldLease
from scheduler.apply.spoken import Spoken
from scheduler.apply.starts import batches_of, commit_starts
from scheduler.apply.verdicts import write_reasons, write_verdicts
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Plan

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Applied:
    """What a plan became: jobs placed, starts that no longer matched the rows, starts left for the next cycle."""

    started: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    left: int = 0
    verdict_rows: int = 0
    jobs_told: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What was said before, kept by the loop between cycles and brought up to date here.

    heard: (class key, reason code) by waiting job, as its row has it.
    """

    spoken: Spoken
    heard: MutableMapping[str, tuple[str, str]]


def apply_plan(
    lease: HeldLease,
    snapshot: Snapshot,
    plan: Plan,
    told: Told,
    now: datetime,
    has_time: Callable[[], bool] = lambda: True,
) -> Applied:
    """Commit `plan`, which was made from `snapshot`. Raises LeaseLostError; what was committed before stays.

    Starts are committed while `has_time`; at least one is, so that every cycle gets somewhere.
    """
    applied = Applied()
    _apply_starts(lease, plan, applied, now, has_time)
    applied.verdict_rows = write_verdicts(lease, plan, told.spoken, now)
    tenants = {job.id: job.ask.tenant for job in snapshot.waiting}
    cluster = snapshot.cluster.name
    applied.jobs_told = write_reasons(lease, cluster, plan, told.heard, tenants, now)
    return applied


def _apply_starts(
    lease: HeldLease,
    plan: Plan,
    applied: Applied,
    now: datetime,
    has_time: Callable[[], bool],
) -> None:
    applied.left = len(plan.starts)
    for number, batch in enumerate(batches_of(plan.starts)):
        if number and not has_time():
            return
        found = commit_starts(lease, batch, now)
        applied.left -= len(batch)
        applied.started += [attempt.job_id for attempt in found.attempts]
        for job, why in found.outdated:
            logger.info("start skipped: %s", why)
            applied.outdated.append(job)
