"""Counterfactuals: the variants of a refused job, each tried on the state that it met.

Trying changes nothing: a place that is found is not taken, bookings are put back.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.core.cycle.attempts import Placed, attempt
from scheduler.core.cycle.backfill import Backfill
from scheduler.core.cycle.world import World
from scheduler.core.explain.variants import Variant, variants
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.outputs import Counterfactual
from scheduler.core.reasons import Reason

BEST = 3


def counterfactuals(
    world: World, backfill: Backfill, job: WaitingJob, reasons: tuple[Reason, ...]
) -> tuple[Counterfactual, ...]:
    """The best three changes that let the job start now, or earlier than it is booked to.

    Those that start it now come first, in the order of `variants`; then by start.
    """
    booked_at = backfill.booked_at(job.id)
    allowed = world.queue_of(job).flavors
    flavors = allowed or [flavor.name for flavor in world.snapshot.flavors]
    found: list[tuple[float, int, Counterfactual]] = []
    for place, variant in enumerate(
        variants(job.ask, reasons, world.snapshot.cluster.levels, flavors)
    ):
        told = _try(world, backfill, job, variant)
        if told is None or told.estimated_start is None:
            continue
        if told.starts_now or (booked_at is not None and told.estimated_start < booked_at):
            found.append((told.estimated_start, place, told))
    found.sort(key=lambda entry: entry[:2])
    return tuple(told for _, _, told in found[:BEST])


def _try(
    world: World, backfill: Backfill, job: WaitingJob, variant: Variant
) -> Counterfactual | None:
    changed = replace(job, ask=variant.ask, survivors=())
    kept = {flavor: bookings.booked for flavor, bookings in world.bookings.items()}
    try:
        # The job's own booking is not in the way of its variant.
        for bookings in world.bookings.values():
            bookings.booked = [b for b in bookings.booked if b.stay.job != job.id]
        found = attempt(world, changed)
        if isinstance(found, Placed):
            change = dict(variant.change)
            if variant.sized:
                change = {"replicas": sum(part.replicas for part in found.placement.parts)}
            return Counterfactual(change, starts_now=True, estimated_start=world.now)
        return _later(backfill, changed, variant)
    finally:
        for flavor, bookings in world.bookings.items():
            bookings.booked = kept.get(flavor, [])


def _later(backfill: Backfill, changed: WaitingJob, variant: Variant) -> Counterfactual | None:
    if variant.sized:
        return None
    starts_at = backfill.try_booking(changed)
    if starts_at is None:
        return None
    return Counterfactual(dict(variant.change), starts_now=False, estimated_start=starts_at)
