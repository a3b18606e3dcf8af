"""Giving capacity back. Called by the cluster process when a pod is seen gone or finished, or was never created.

The only place that deletes seats. No lease is needed: it records what was observed, and whoever plans learns
of it from the log.
"""

from collections.abc import Iterable
from datetime import datetime

from controlplane.common import log
from queues.models import Placement
from scheduler.models import Seat


def release_placements(placements: Iterable[Placement], now: datetime) -> int:
    """Delete the seats of `placements` and mark them released; returns how many had not been before.

    Repeating it changes nothing. Joins the caller's `log.writing()` or opens its own.
    """
    ids = [placement.pk for placement in placements]
    with log.writing():
        held = list(
            Placement.objects.select_for_update(of=("self",))
            .filter(pk__in=ids, released_at__isnull=True)
            .select_related("attempt__job__tenant", "attempt__cluster")
            .order_by("pk")
        )
        held_ids = [placement.pk for placement in held]
        Seat.objects.filter(placement__in=held_ids).delete()
        Placement.objects.filter(pk__in=held_ids).update(released_at=now)
        log.record(*_events(held, now))
    for placement in held:
        placement.released_at = now
    return len(held)


def _events(placements: Iterable[Placement], now: datetime) -> list[log.NewEvent]:
    """One event an attempt: its job is what a snapshot reads again."""
    by_attempt: dict[int, list[Placement]] = {}
    for placement in placements:
        by_attempt.setdefault(placement.attempt_id, []).append(placement)
    return [
        log.NewEvent(
            kind="placement.released",
            at=now,
            tenant=found[0].attempt.job.tenant.slug,
            job=found[0].attempt.job_id,
            cluster=found[0].attempt.cluster.name,
            actor="cluster",
            numbers={
                "attempt": found[0].attempt.number,
                "pods": len(found),
                "gpus": sum(placement.gpus for placement in found),
            },
        )
        for found in by_attempt.values()
    ]
