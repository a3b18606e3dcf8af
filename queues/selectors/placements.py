"""Which replica of an attempt failed by itself. Called by the job page and by whoever chooses a log to show."""

from collections.abc import Iterable
from datetime import timedelta

from queues.models import Placement

# Kubernetes tells ends in whole seconds: what we ended may seem to have ended a moment before.
CLOCK_STEP = timedelta(seconds=1)


def first_failed(placements: Iterable[Placement]) -> Placement | None:
    """The replica that ended first with another code than 0, of those that nobody stopped; None without one."""
    failed = [p for p in placements if p.exit_code and p.ended_at and not was_stopped(p)]
    return min(failed, key=lambda p: (p.ended_at, p.rank), default=None)


def was_stopped(placement: Placement) -> bool:
    """Whether its pod was deleted while it ran: its exit code then says nothing of the program.

    Pods that have ended by themselves are deleted, too, but later.
    """
    ended, deleted = placement.ended_at, placement.delete_sent_at
    return ended is not None and deleted is not None and deleted < ended + CLOCK_STEP
