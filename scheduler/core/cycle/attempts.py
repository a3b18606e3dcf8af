"""One job against the state of the pass: a place now, or why not.

`attempt` decides and is fast; `refusals` explains and is asked once per refused class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.core.calendar.windows import Stay
from scheduler.core.cycle.world import World
from scheduler.core.explain.refusals import also_unhealthy, passing_refusal, static_refusal
from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.placement.demand import Demand, UnknownLevelError
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import Placement, place_beside
from scheduler.core.placement.lens import on_one_node
from scheduler.core.reasons import FOR_EVER, Numbers, Reason, ReasonCode
from scheduler.core.timeline.bookings import Booked, claim_of
from scheduler.core.timeline.pledges import Use
from scheduler.core.topology.grid import GPUS, Bools

_ORDER = {code: position for position, code in enumerate(ReasonCode)}


class Obstacle(StrEnum):
    """What kind of thing keeps a job from starting; decides whether it gets a booking."""

    QUOTA = "quota"
    STATIC = "static"
    ROOM = "room"
    BOOKING = "booking"


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A place for the whole gang, not yet taken."""

    flavor: str
    placement: Placement


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """No place now. `booked` is the booking that a start would have delayed."""

    obstacle: Obstacle
    booked: Booked | None = None


def attempt(world: World, job: WaitingJob) -> Placed | Blocked:
    """A place now on the first flavor of the ask that has one and delays no booking."""
    met: list[Blocked] = []
    for flavor in job.ask.flavors:
        field = world.fields.get(flavor)
        if field is None:
            continue
        found = _attempt_on(world, field, job)
        if isinstance(found, Placed):
            return found
        met.append(found)
    return max(met, key=lambda blocked: _SEVERITY[blocked.obstacle], default=_NOWHERE)


def _attempt_on(world: World, field: Field, job: WaitingJob) -> Placed | Blocked:
    flavor = field.grid.flavor.name
    demands = allowed_demands(world, field, job.ask)
    if demands is None:
        return Blocked(Obstacle.QUOTA)
    stay = world.stay_of(job, world.now)
    usable = field.usable(stay)
    placement = place_now(field, job, demands, usable)
    if placement is None:
        placement = _on_a_suspect(field, stay, demands)
    if placement is None:
        if static_reason(world, field, job) is not None:
            return Blocked(Obstacle.STATIC)
        return Blocked(Obstacle.ROOM)
    broken = _broken_pledge(world, job, stay, Placed(flavor, placement))
    if broken is not None:
        return Blocked(Obstacle.BOOKING, broken)
    bookings = world.bookings.get(flavor)
    if bookings is None or bookings.admits(claim_of(stay, placement)):
        return Placed(flavor, placement)
    delayed = bookings.delayed_by(claim_of(stay, placement))
    kept = bookings.kept_nodes(stay.until)
    beside = place_now(field, job, demands, usable & ~kept, once=True)
    if beside is None or _broken_pledge(world, job, stay, Placed(flavor, beside)) is not None:
        return Blocked(Obstacle.BOOKING, delayed)
    if not bookings.admits(claim_of(stay, beside)):
        return Blocked(Obstacle.BOOKING, delayed)
    return Placed(flavor, beside)


def _broken_pledge(world: World, job: WaitingJob, stay: Stay, placed: Placed) -> Booked | None:
    if world.pledges is None:
        return None
    return world.pledges.broken_by(Use(job.ask, placed.flavor, placed.placement.gpus, stay.until))


_NOWHERE = Blocked(Obstacle.STATIC)
_SEVERITY = {
    Obstacle.STATIC: 0,
    Obstacle.QUOTA: 1,
    Obstacle.ROOM: 2,
    Obstacle.BOOKING: 3,
}


def _on_a_suspect(field: Field, stay: Stay, demands: tuple[Demand, ...]) -> Placement | None:
    """A place on one node that is under suspicion: it may take a whole job, never a part of a gang."""
    usable = field.usable_alone(stay)
    if usable is None or len(demands) != 1:
        return None
    return field.place((on_one_node(field.grid, demands[0]),), usable)


def place_now(
    field: Field,
    job: WaitingJob,
    demands: tuple[Demand, ...],
    usable: Bools,
    *,
    once: bool = False,
) -> Placement | None:
    """A place on the field as it is: beside the survivors if the job has any, else anywhere."""
    if field.is_short_of(field.lens.view(job.ask).least_gpus):
        return None
    if job.survivors:
        beside = place_beside(field.grid, demands, job.survivors, field.free, usable)
        if beside is not None:
            return beside
    return field.place(demands, usable, once=once)


def allowed_demands(world: World, field: Field, ask: Ask) -> tuple[Demand, ...] | None:
    """The ask's demands cut to what quota and limits leave; None when even the least is too much."""
    try:
        demands = field.lens.view(ask).demands
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
        _never_fits(world, ask, flavor, needed),
        static,
        accounts.limit_refusal(ask, flavor, needed),
        accounts.quota_refusal(ask, flavor, needed),
    ]
    besides: Reason | None = None
    if static is None:
        demands = field.lens.view(ask).least
        stay = world.stay_of(job, world.now)
        passing = passing_refusal(field, stay, demands)
        checks.append(passing)
        besides = None if passing is None else also_unhealthy(field, stay, demands)
    failed = [reason for reason in checks if reason is not None]
    if len(failed) > 1:
        failed.sort(key=lambda reason: _ORDER[reason.code])
    return (*failed, besides) if besides is not None else tuple(failed)


def _never_fits(world: World, ask: Ask, flavor: str, needed: int) -> Reason | None:
    """What quota refuses for ever, remembered until a quota changes."""
    by_ask = world.memo.quota_refusals.setdefault(flavor, {})
    found = by_ask.get(id(ask))
    if found is None or found[0] is not ask:
        found = by_ask[id(ask)] = (ask, world.accounts.never_fits(ask, flavor, needed))
    return found[1]


def static_reason(world: World, field: Field, job: WaitingJob) -> Reason | None:
    """What an empty cluster refuses, remembered until a node changes."""
    ask = job.ask
    by_ask = world.memo.static_refusals.setdefault(field.grid.flavor.name, {})
    found = by_ask.get(id(ask))
    if found is None or found[0] is not ask:
        found = by_ask[id(ask)] = (ask, _static_reason(world, field, job))
    return found[1]


def _static_reason(world: World, field: Field, job: WaitingJob) -> Reason | None:
    try:
        demands = field.lens.view(job.ask).least
    except UnknownLevelError as error:
        return replace_level(_no_flavor(job), str(error))
    return static_refusal(field, world.stay_of(job, world.now), demands)


def replace_level(reason: Reason, level: str) -> Reason:
    """The reason with the level that the cluster does not have."""
    return Reason(reason.code, {**reason.numbers, "level": level})
