"""One job against the state of the pass: a place now, or why not.

`attempt` decides and is fast; `refusals` explains and is asked once per refused class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.core.cycle.world import World
from scheduler.core.explain.refusals import also_unhealthy, passing_refusal, static_refusal
from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.placement.demand import Demand, UnknownLevelError
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place, place_beside
from scheduler.core.reasons import FOR_EVER, Numbers, Reason, ReasonCode
from scheduler.core.topology.grid import GPUS, Bools

_ORDER = {code: position for position, code in enumerate(ReasonCode)}


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A place for the whole gang, not yet taken."""

    flavor: str
    placement: Placement


def attempt(world: World, job: WaitingJob) -> Placed | None:
    """A place now on the first flavor of the ask that has one."""
    for flavor in job.ask.flavors:
        field = world.fields.get(flavor)
        if field is None:
            continue
        placement = attempt_on(world, field, job)
        if placement is not None:
            return Placed(flavor, placement)
    return None


def attempt_on(
    world: World, field: Field, job: WaitingJob, barred: Bools | None = None
) -> Placement | None:
    """A place now on one flavor, within quota and limits, off the `barred` nodes."""
    demands = allowed_demands(world, field, job.ask)
    if demands is None:
        return None
    usable = field.usable(world.stay_of(job, world.now))
    if barred is not None:
        usable = usable & ~barred
    if job.survivors:
        beside = place_beside(field.grid, demands, job.survivors, field.free, usable)
        if beside is not None:
            return beside
    return place(field.grid, demands, field.free, usable)


def allowed_demands(world: World, field: Field, ask: Ask) -> tuple[Demand, ...] | None:
    """The ask's demands cut to what quota and limits leave; None when even the least is too much."""
    try:
        demands = field.lens.demands(ask)
    except UnknownLevelError:
        return None
    room = world.accounts.room(ask, field.grid.flavor.name)
    if ask.gpus <= room:
        return demands
    return _cut(demands, room)


def _cut(demands: tuple[Demand, ...], room: int) -> tuple[Demand, ...] | None:
    """Elastic roles shrunk, the first role last, until the gang takes at most `room` GPUs."""
    over = sum(demand.count * demand.request[GPUS] for demand in demands) - room
    cut: list[Demand] = []
    for demand in reversed(demands):
        gpus = demand.request[GPUS]
        count = demand.count
        if over > 0 and gpus > 0 and demand.least < count:
            fewer = -(-over // gpus)
            smaller = (count - fewer) // demand.granule * demand.granule
            count = max(demand.least, smaller)
            over -= (demand.count - count) * gpus
        cut.append(replace(demand, count=count))
    return None if over > 0 else tuple(reversed(cut))


def refusals(world: World, job: WaitingJob) -> tuple[Reason, ...]:
    """All that keeps the job from starting, the dominant reason first.

    Each flavor's checks are made in order. The flavor that gets furthest speaks; others follow.
    """
    found: list[tuple[Reason, ...]] = []
    for flavor in job.ask.flavors:
        field = world.fields.get(flavor)
        if field is not None:
            reasons = _refusals_on(world, field, job)
            if reasons:
                found.append(reasons)
    if not found:
        return (_no_flavor(job),)
    best = min(
        range(len(found)),
        key=lambda i: (found[i][0].code in FOR_EVER, -_ORDER[found[i][0].code], i),
    )
    rest = [reason for i, reasons in enumerate(found) if i != best for reason in reasons]
    return (*found[best], *rest)


def _no_flavor(job: WaitingJob) -> Reason:
    numbers: Numbers = {
        "flavor": ", ".join(job.ask.flavors) or None,
        "needed_replicas": sum(role.least_replicas for role in job.ask.roles),
        "needed_gpus": job.ask.least_gpus,
        "needed_nodes": sum(role.least_replicas for role in job.ask.roles),
        "most_replicas": 0,
        "level": None,
    }
    return Reason(ReasonCode.EXCEEDS_CLUSTER_FOR_EVER, numbers)


def _refusals_on(world: World, field: Field, job: WaitingJob) -> tuple[Reason, ...]:
    ask, flavor = job.ask, field.grid.flavor.name
    accounts = world.accounts
    needed = ask.least_gpus
    static = static_reason(world, field, job)
    checks = [
        accounts.never_fits(ask, flavor, needed),
        static,
        accounts.limit_refusal(ask, flavor, needed),
        accounts.quota_refusal(ask, flavor, needed),
    ]
    besides: Reason | None = None
    if static is None:
        demands = _least_of(field.lens.demands(ask))
        stay = world.stay_of(job, world.now)
        passing = passing_refusal(field, stay, demands)
        checks.append(passing)
        besides = None if passing is None else also_unhealthy(field, stay, demands)
    failed = sorted((r for r in checks if r is not None), key=lambda r: _ORDER[r.code])
    return (*failed, besides) if besides is not None else tuple(failed)


def static_reason(world: World, field: Field, job: WaitingJob) -> Reason | None:
    """What an empty cluster refuses, remembered until a node changes."""
    ask = job.ask
    key = (
        field.grid.flavor.name,
        ask.roles,
        ask.node_selector,
        ask.exclude_nodes,
        ask.min_cuda,
    )
    cache = world.memo.static_refusals
    if key not in cache:
        try:
            demands = _least_of(field.lens.demands(ask))
        except UnknownLevelError as error:
            cache[key] = replace_level(_no_flavor(job), str(error))
        else:
            cache[key] = static_refusal(field, world.stay_of(job, world.now), demands)
    return cache[key]


def replace_level(reason: Reason, level: str) -> Reason:
    """The reason with the level that the cluster does not have."""
    return Reason(reason.code, {**reason.numbers, "level": level})


def _least_of(demands: tuple[Demand, ...]) -> tuple[Demand, ...]:
    return tuple(
        demand if demand.least == demand.count else replace(demand, count=demand.least)
        for demand in demands
    )
