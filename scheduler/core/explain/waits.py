"""Reasons that speak of time: what is booked, and when the nodes come free."""

from __future__ import annotations

from scheduler.core.reasons import Numbers, Reason, ReasonCode
from scheduler.core.timeline.bookings import Booked, Bookings


def booking_reason(now: float, extra_seconds: float, gpus: int, booked: Booked) -> Reason:
    """WAITING_FOR_BOOKING: a start now would delay `booked`.

    `extra_seconds` is what the plan adds to a limit (start allowance and grace), so that
    `longest_seconds` is the longest limit that would end before the booking.
    """
    starts_at = booked.claim.start
    numbers: Numbers = {
        "booked_job": booked.stay.job,
        "booked_at": starts_at,
        "longest_seconds": max(0.0, starts_at - now - extra_seconds),
        "needed_gpus": gpus,
    }
    return Reason(ReasonCode.WAITING_FOR_BOOKING, numbers)


def with_frees_at(
    reasons: tuple[Reason, ...], booked: Booked, bookings: Bookings
) -> tuple[Reason, ...]:
    """The reasons with the moment and the job that free the nodes, where they speak of it."""
    last = bookings.future.last_release(booked.claim.nodes, booked.claim.start)
    told = {"frees_at": booked.claim.start, "frees_job": None if last is None else last.job}
    return tuple(
        Reason(reason.code, {**reason.numbers, **told}) if "frees_at" in reason.numbers else reason
        for reason in reasons
    )
