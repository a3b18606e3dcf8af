"""Holds and bookings → rows: what is kept for a job, now or at a later moment.

Called by `scheduler.loop`: holds beside the evictions that free them (`loop.preemption`), bookings after each plan.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from controlplane.common import log
from queues.models import Flavor, Job
from scheduler.apply.estimates import has_moved
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.spoken import Spoken
from scheduler.core.inputs.jobs import Hold
from scheduler.core.outputs import Booking, Plan
from scheduler.models import Booking as BookingRow
from scheduler.models import Hold as HoldRow


def write_holds(cluster_id: int, cluster: str, holds: Iterable[Hold], now: datetime) -> None:
    """Keep these. Inside the caller's transaction, which holds the lease; each job is told of its own."""
    wanted = {each.job: each for each in holds}
    flavors = _flavors(cluster_id)
    tenants = _tenants(wanted)
    rows = [
        HoldRow(
            job_id=each.job,
            cluster_id=cluster_id,
            flavor_id=flavors[each.flavor],
            nodes=[list(row) for row in each.nodes],
            expires_at=_moment(each.expires_at),
        )
        for each in wanted.values()
        if each.flavor in flavors and each.job in tenants
    ]
    HoldRow.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["cluster", "flavor", "nodes", "expires_at"],
    )
    for row in rows:
        gpus = sum(each[1] for each in row.nodes)
        numbers = {"nodes": len(row.nodes), "gpus": gpus}
        _record(cluster, tenants[row.job_id], row.job_id, "preemption.held", numbers, now)


def drop_holds(lease: HeldLease, cluster: str, jobs: Collection[str], now: datetime) -> int:
    """Keep nothing for these any more; returns for how many something was kept."""
    if not jobs:
        return 0
    with log.writing():
        hold(lease)
        rows = HoldRow.objects.filter(cluster_id=lease.cluster_id, job__in=jobs)
        held = list(rows.values_list("job_id", flat=True))
        rows.delete()
        for job, tenant in _tenants(held).items():
            _record(cluster, tenant, job, "preemption.given_up", {}, now)
    return len(held)


def write_bookings(lease: HeldLease, plan: Plan, spoken: Spoken, now: datetime) -> int:
    """Write the bookings that moved, delete those that the plan no longer makes; returns rows written.

    As with estimates a move of less than a minute or 5 % is none: what runs past its limit moves all behind it.
    """
    made = {booking.job: booking for booking in plan.bookings}
    moved = [
        booking
        for job, booking in made.items()
        if _has_moved(spoken.bookings.get(job), booking, plan.now)
    ]
    gone = [job for job in spoken.bookings if job not in made]
    if not moved and not gone:
        return 0
    with log.writing():
        hold(lease)
        BookingRow.objects.filter(job__in=gone).delete()
        BookingRow.objects.bulk_create(
            _booking_rows(lease.cluster_id, moved, now),
            update_conflicts=True,
            unique_fields=["job"],
            update_fields=["cluster", "flavor", "starts_at", "until", "nodes", "made_at"],
        )
    for job in gone:
        del spoken.bookings[job]
    spoken.bookings.update({booking.job: booking for booking in moved})
    return len(moved) + len(gone)


def _booking_rows(cluster_id: int, moved: Iterable[Booking], now: datetime) -> list[BookingRow]:
    listed = list(moved)
    flavors = _flavors(cluster_id)
    known = _tenants([booking.job for booking in listed])
    return [
        BookingRow(
            job_id=booking.job,
            cluster_id=cluster_id,
            flavor_id=flavors[booking.flavor],
            starts_at=_moment(booking.starts_at),
            until=None if booking.until is None else _moment(booking.until),
            nodes=[list(pair) for pair in booking.nodes],
            made_at=now,
        )
        for booking in listed
        if booking.job in known and booking.flavor in flavors
    ]


def _has_moved(before: Booking | None, after: Booking, now: float) -> bool:
    if before is None or before.flavor != after.flavor:
        return True
    return before.nodes != after.nodes or has_moved(before.starts_at, after.starts_at, now)


def _flavors(cluster_id: int) -> Mapping[str, int]:
    return dict(Flavor.objects.filter(cluster_id=cluster_id).values_list("name", "pk"))


def _tenants(jobs: Collection[str]) -> dict[str, str]:
    """Slug of the tenant by job, of those that exist."""
    return dict(Job.objects.filter(pk__in=jobs).values_list("pk", "tenant__slug"))


def _record(
    cluster: str, tenant: str, job: str, kind: str, numbers: dict[str, int], now: datetime
) -> None:
    log.record(
        log.NewEvent(
            kind=kind,
            at=now,
            tenant=tenant,
            job=job,
            cluster=cluster,
            actor="scheduler",
            numbers=numbers,
        )
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
