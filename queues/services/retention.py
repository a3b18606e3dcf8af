"""What is kept for how long, and its deletion in small batches (DESIGN section 9). Called by `tasks`.

Batches keep transactions short: a web request never waits long for a row, and SQLite's one writer is soon free.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import models, transaction

from controlplane.common.models import Event, IdempotencyKey
from queues.lifecycle import Phase
from queues.models import Attempt, Estimate, Forecast, Job, Placement
from tenants.models import OutboxMessage

ROWS_PER_BATCH = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of one kind, and how long they are kept after the moment in `column`."""

    name: str
    model: type[models.Model]
    column: str
    days: int


# Jobs go with their attempts: nothing of a job is left to show once its lives are forgotten.
KEPT = (
    Kept("events", Event, "at", 90),
    Kept("jobs", Job, "finished_at", 400),
    Kept("attempts", Attempt, "ended_at", 400),
    Kept("estimates", Estimate, "made_at", 30),
    Kept("forecasts", Forecast, "made_at", 30),
    Kept("messages", OutboxMessage, "created_at", 30),
    Kept("idempotency_keys", IdempotencyKey, "created_at", 1),
)


def prune(now: datetime, has_time: Callable[[], bool] = lambda: True) -> dict[str, int]:
    """Delete what is past its time while `has_time`; returns how many rows of each kind."""
    return {kept.name: _prune(kept, now, has_time) for kept in KEPT}


def _prune(kept: Kept, now: datetime, has_time: Callable[[], bool]) -> int:
    deleted = 0
    while has_time():
        batch = _batch(kept, now)
        if not batch:
            break
        with transaction.atomic():
            _rows(kept, now).filter(pk__in=batch).delete()
        deleted += len(batch)
    return deleted


def _rows(kept: Kept, now: datetime) -> "models.QuerySet[models.Model]":
    until = now - timedelta(days=kept.days)
    return kept.model._default_manager.filter(**{f"{kept.column}__lt": until})


def _batch(kept: Kept, now: datetime) -> list[object]:
    """The oldest rows that may go.

    A job that others still wait for stays, and so does a life whose placements still hold a node's capacity.
    """
    rows = _rows(kept, now).order_by(kept.column)
    held = Placement.objects.filter(released_at__isnull=True)
    if kept.model is Job:
        rows = rows.exclude(dependents__job__phase__in=_UNFINISHED)
        rows = rows.exclude(pk__in=held.values("attempt__job_id"))
    if kept.model is Attempt:
        rows = rows.exclude(pk__in=held.values("attempt_id"))
    return list(rows.values_list("pk", flat=True)[:ROWS_PER_BATCH])


_UNFINISHED = [phase for phase in Phase if phase is not Phase.FINISHED]
