"""From a place that was found to a `Start`: seats, levels, planned end and planned stop."""

from __future__ import annotations

from scheduler.core.calendar.ends import end_or_none
from scheduler.core.cycle.attempts import Placed
from scheduler.core.cycle.world import World
from scheduler.core.inputs.cluster import Window
from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.outputs import Start
from scheduler.core.placement.gang import Placement
from scheduler.core.placement.seats import seats_of


def start_of(world: World, job: WaitingJob, placed: Placed) -> Start:
    """The start of `job` now at the place found."""
    placement = placed.placement
    grid = placement.grid
    stay = world.stay_of(job, world.now)
    nodes, _ = placement.usage()
    window = world.fields[placed.flavor].windows.crossed(stay, nodes)
    first = int(grid.tiers[placement.tier].starts[placement.domain])
    return Start(
        job=job.id,
        class_key=world.key_of(job),
        flavor=placed.flavor,
        seats=seats_of(placement),
        asked_level=asked_level(job.ask),
        achieved_level=achieved_level(placement),
        domains=grid.domains_of(placement.tier, first),
        planned_end=end_or_none(stay.until),
        planned_stop_at=None if window is None else _stop_before(window, job.ask),
        planned_return_at=None if window is None else window.ends_at,
        job_version=job.version,
    )


def asked_level(ask: Ask) -> str | None:
    """The level that the user hopes for: preferred, else required, of the first role that says."""
    for role in ask.roles:
        level = role.topology.preferred or role.topology.required
        if level is not None:
            return level
    return None


def achieved_level(placement: Placement) -> str | None:
    """The narrowest level with one domain that holds the gang; None when it crosses the widest."""
    return placement.grid.tiers[placement.tier].name


def _stop_before(window: Window, ask: Ask) -> float:
    """When the job is told to save, so that it is gone when the window starts."""
    grace = ask.grace_seconds
    if ask.checkpoint is not None:
        grace += ask.checkpoint.grace_seconds
    return window.starts_at - grace
