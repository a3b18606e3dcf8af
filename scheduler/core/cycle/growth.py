"""Elastic jobs that should grow: at a checkpoint, when nobody waits, when it pays.

A resize ends the attempt and restarts it from the checkpoint, so it is only worth its restart when
the larger size saves more than that over the remaining time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scheduler.core.calendar.ends import NEVER, planned_end, saved_at
from scheduler.core.calendar.windows import Stay
from scheduler.core.cycle.world import World
from scheduler.core.inputs.jobs import RunningJob
from scheduler.core.outputs import Resize
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import place
from scheduler.core.roster import Holding

GAP_SECONDS = 60.0
"""How long after a checkpoint stopping still costs next to nothing (the training gap)."""


def growing(world: World) -> dict[str, list[Holding]]:
    """By flavor, the jobs that may grow at this moment if anything lets them, by id."""
    found: dict[str, list[Holding]] = {}
    for flavor, roster in sorted(world.rosters.items()):
        places = np.flatnonzero(roster.rows["may_grow"]).tolist()
        jobs = [roster.holdings[i] for i in places]
        jobs = [holding for holding in jobs if _is_in_gap(holding.job, world.now)]
        if jobs:
            found[flavor] = jobs
    return found


def resizes(world: World, wishes: dict[str, list[Holding]]) -> tuple[Resize, ...]:
    """Jobs that should grow now, of those that may: one a flavor, those that nobody waits for.

    One at a time, so that no two count on the same nodes: the next plan sees what is left.
    """
    made = []
    for flavor, jobs in wishes.items():
        found = (_resize(world, world.fields[flavor], holding) for holding in jobs)
        first = next((resize for resize in found if resize is not None), None)
        if first is not None:
            made.append(first)
    return tuple(made)


def _is_in_gap(job: RunningJob, now: float) -> bool:
    saved = saved_at(job, now)
    return saved is not None and now - saved <= GAP_SECONDS


def _resize(world: World, field: Field, holding: Holding) -> Resize | None:
    job = holding.job
    size = _largest(world, field, holding)
    if size <= len(job.seats):
        return None
    remaining = planned_end(job, world.now) - world.now
    restart = world.options.start_allowance_seconds + _since_checkpoint(job, world.now)
    gain = remaining * (1.0 - len(job.seats) / size) - restart
    if gain <= restart:
        return None
    told = None if gain == NEVER else gain
    return Resize(job.id, job.attempt, len(job.seats), size, told)


def _since_checkpoint(job: RunningJob, now: float) -> float:
    saved = saved_at(job, now)
    return 0.0 if saved is None else now - saved


def _largest(world: World, field: Field, holding: Holding) -> int:
    """The largest size that quota and nodes allow, the job's own seats counted as free."""
    job = holding.job
    view = field.lens.view(job.ask)
    role = job.ask.roles[0]
    room = world.accounts.room(job.ask, job.flavor) + holding.gpus
    gpus = role.per_replica.gpus
    most = role.replicas if gpus == 0 else min(role.replicas, room // gpus)
    if most <= len(job.seats):
        return 0
    until = planned_end(job, world.now)
    usable = field.usable(Stay(job.ask, job.id, world.now, until))
    field.give_back(holding.nodes, holding.amounts)
    wanted = replace(view.demands[0], count=most, least=min(view.demands[0].least, most))
    placement = place(field.grid, (wanted,), field.free, usable)
    field.take(holding.nodes, holding.amounts)
    return 0 if placement is None else sum(part.replicas for part in placement.parts)
