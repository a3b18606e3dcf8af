"""What a running attempt says of itself: that it lives, and what it has saved. Called by `attempts/me/`.

A heartbeat is a column, not an event: a thousand replicas that beat every few seconds must cost next to nothing. A
checkpoint is an event: an eviction that waits for it goes on at once.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from queues.contract.reading import Reader
from queues.models import Attempt, Placement
from queues.services.lifecycle import record_job_event

# Sooner after the last one a heartbeat is not written down, unless the step has moved.
BEAT_RESOLUTION = timedelta(seconds=5)
# How far a job's clock may be ahead of ours.
SKEW = timedelta(seconds=60)
BIGGEST_STEP = 2**63 - 1


def note_heartbeat(attempt: Attempt, sent: Mapping[str, Any], now: datetime) -> None:
    """{"replica", "role"?, "step"?}. Raises InvalidError for a replica that the attempt does not have."""
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("replica")
    replica = reader.whole("replica", 0)
    role = reader.text("role", longest=20)
    step = reader.optional_whole("step", most=BIGGEST_STEP)
    reader.finish()
    errors.raise_if_any()
    rows = Placement.objects.filter(attempt=attempt, replica=replica)
    rows = rows.filter(role__name=role) if role else rows.filter(role__position=0)
    old = Q(heartbeat_at__isnull=True) | Q(heartbeat_at__lte=now - BEAT_RESOLUTION)
    changes: dict[str, Any] = {"heartbeat_at": now}
    if step is not None:
        changes["heartbeat_step"] = step
        old |= ~Q(heartbeat_step=step) | Q(heartbeat_step__isnull=True)
    if not rows.filter(old).update(**changes) and not rows.exists():
        reader.fault("replica", "unknown_replica", _("is no replica of this attempt"))
        errors.raise_if_any()


def note_checkpoint(attempt: Attempt, sent: Mapping[str, Any], now: datetime) -> Attempt:
    """{"step", "at"?, "uri"?}: saved. `at` is now unless sent; one that is older than the last changes nothing.

    Raises InvalidError, and ConflictError when the attempt has ended.
    """
    step, at, uri = _read_checkpoint(attempt, sent, now)
    with log.writing():
        newer = Q(last_checkpoint_at__isnull=True) | Q(last_checkpoint_at__lt=at)
        mine = Attempt.objects.filter(newer, pk=attempt.pk, ended_at__isnull=True)
        if mine.update(last_checkpoint_at=at, last_checkpoint_step=step, checkpoint_uri=uri):
            attempt.last_checkpoint_at, attempt.last_checkpoint_step = at, step
            attempt.checkpoint_uri = uri
            numbers = {"attempt": attempt.number, "step": step, "at": at.isoformat()}
            record_job_event(
                attempt.job,
                "attempt.checkpoint",
                actor="job",
                now=now,
                message=uri,
                numbers=numbers,
            )
        elif not Attempt.objects.filter(pk=attempt.pk, ended_at__isnull=True).exists():
            raise ConflictError(_("The attempt has ended."), code="attempt_ended")
    return attempt


def _read_checkpoint(
    attempt: Attempt, sent: Mapping[str, Any], now: datetime
) -> tuple[int, datetime, str]:
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("step")
    step = reader.whole("step", 0, most=BIGGEST_STEP)
    at = reader.moment("at") or now
    uri = reader.text("uri", longest=1024)
    reader.finish()
    if at > now + SKEW:
        reader.fault("at", "in_the_future", _("must not be in the future"))
    if attempt.started_at is not None and at < attempt.started_at - SKEW:
        reader.fault("at", "too_early", _("must not be before the attempt started"))
    errors.raise_if_any()
    return step, min(at, now), uri
