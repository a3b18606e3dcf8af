"""Bookings as people may see them: which future start, on which nodes, is kept for a job. Called by doors and pages."""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from queues.models import Job
from queues.selectors.answers import time_text
from queues.selectors.jobs import jobs_visible_to
from scheduler.models import Booking
from tenants.access import Actor

Json = dict[str, Any]


def bookings_visible_to(actor: Actor) -> QuerySet[Booking]:
    """Bookings of jobs that the actor may see, the soonest first."""
    rows = Booking.objects.filter(job__in=jobs_visible_to(actor))
    return with_parts(rows).order_by("starts_at", "pk")


def with_parts(rows: QuerySet[Booking]) -> QuerySet[Booking]:
    """With all that an answer names."""
    return rows.select_related("cluster", "flavor", "job__tenant", "job__queue")


def booking_of(job: Job) -> Booking | None:
    """What is kept for a job that the reader may see. One query."""
    return with_parts(Booking.objects.filter(job=job)).first()


def booking_answers(bookings: Sequence[Booking]) -> list[Json]:
    """As the API shows them. No query."""
    return [booking_answer(booking) for booking in bookings]


def booking_answer(booking: Booking) -> Json:
    """One booking; `until` null: the job has no time limit."""
    job = booking.job
    return {
        "job": job.pk,
        "name": job.name,
        "tenant": job.tenant.slug,
        "queue": job.queue.name,
        "cluster": booking.cluster.name,
        "flavor": booking.flavor.name,
        "gpus": sum(int(gpus) for _node, gpus in booking.nodes),
        "nodes": [{"node": node, "gpus": int(gpus)} for node, gpus in booking.nodes],
        "starts_at": time_text(booking.starts_at),
        "until": time_text(booking.until),
        "made_at": time_text(booking.made_at),
    }
