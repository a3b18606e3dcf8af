"""When jobs are expected to end. Infinity stands for never."""

from __future__ import annotations

import math

from scheduler.core.inputs.jobs import Ask, RunningJob

NEVER = math.inf

OVERDUE_SECONDS = 60.0
"""A job that is past its planned end is expected to end so much from now."""


def planned_length(ask: Ask, start_allowance_seconds: float) -> float:
    """Seconds from placement to the latest end; infinity without a limit."""
    if ask.max_runtime_seconds is None:
        return NEVER
    return start_allowance_seconds + ask.max_runtime_seconds + ask.grace_seconds


def planned_end(job: RunningJob, now: float) -> float:
    """The latest expected end of a running job, always after `now`."""
    end = nominal_end(job)
    return end if end > now else now + OVERDUE_SECONDS


def nominal_end(job: RunningJob) -> float:
    """The latest end of a running job by its limit; it may be past for one that is overdue."""
    if job.stopping and job.stops_by is not None:
        return job.stops_by
    limit = job.ask.max_runtime_seconds
    if limit is None:
        return NEVER
    if job.started_at is None:
        return job.placed_at + job.start_allowance_seconds + limit + job.ask.grace_seconds
    return job.started_at + limit + job.ask.grace_seconds


def saved_at(job: RunningJob, now: float) -> float | None:
    """When the job last saved: the checkpoint that it reported, else the last that its interval
    implies (started_at + k × interval); None for a job that has none."""
    if job.last_checkpoint_at is not None:
        return job.last_checkpoint_at
    if job.ask.checkpoint is None or job.started_at is None:
        return None
    interval = job.ask.checkpoint.interval_seconds
    made = math.floor((now - job.started_at) / interval) if interval > 0 else 0
    return job.started_at + made * interval if made >= 1 else None


def end_or_none(end: float) -> float | None:
    """As stored in outputs: None for never."""
    return None if end == NEVER else end
