"""Evictions: the one order to stop a running attempt so that its job may come back, from order to end.

Ordered by the loop (priority, reclaim, fair share, shrink, grow), by maintenance windows, by drains and by health
rules. `carry_out_evictions` stops what is due; the loop calls it in every tick, tests and drivers may too. Nobody
else writes these rows. An owner that goes on wanting an attempt gone orders it again and again: that is cheap, and
needed, because a sooner order for another reason may have taken its place and been withdrawn since.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import F, Sum

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Cluster, Job
from queues.services.attempts import saves_of, stop_attempt
from scheduler.models import Eviction, EvictionRule

# What the attempt will have ended by. Faults of the infrastructure have a budget and a back-off of their own.
CAUSES: Mapping[str, EndedBy] = {
    EvictionRule.PRIORITY: EndedBy.PREEMPTED,
    EvictionRule.RECLAIM: EndedBy.PREEMPTED,
    EvictionRule.FAIR_SHARE: EndedBy.PREEMPTED,
    EvictionRule.SHRINK: EndedBy.RESIZE,
    EvictionRule.GROW: EndedBy.RESIZE,
    EvictionRule.MAINTENANCE: EndedBy.MAINTENANCE,
    EvictionRule.DRAIN: EndedBy.MAINTENANCE,
    EvictionRule.HEALTH: EndedBy.NODE_FAILURE,
}
# Rules under which a job makes room for others: each counts against its preemption budget.
FOR_OTHERS = frozenset(
    {EvictionRule.PRIORITY, EvictionRule.RECLAIM, EvictionRule.FAIR_SHARE, EvictionRule.SHRINK}
)
SUPERSEDED = "another order stops it sooner"
IN_VAIN = "the job that it was to make room for no longer waits"


@dataclass(frozen=True, slots=True)
class _Order:
    """What `order_eviction` was asked."""

    rule: EvictionRule
    message: str
    ordered_by: str
    preemptor: Job | None
    keeps_replicas: int
    lost_gpu_seconds: int | None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    refused: Sequence[Sequence[str]] = ()
    wait_for_checkpoint: bool = False
    latest_at: datetime | None = None


def order_eviction(  # noqa: PLR0913  one door for every order
    attempt: Attempt,
    *,
    rule: EvictionRule | str,
    message: str,
    ordered_by: str,
    now: datetime,
    preemptor: Job | None = None,
    keeps_replicas: int = 0,
    lost_gpu_seconds: float | None = None,
    numbers: Mapping[str, Any] | None = None,
    refused: Sequence[Sequence[str]] = (),
    wait_for_checkpoint: bool = False,
    latest_at: datetime | None = None,
) -> Eviction:
    """Order that `attempt` leaves: at once, or after its next checkpoint and at the latest at `latest_at`.

    An attempt has one open order. It is kept as it is when it stops the attempt no later than this one would;
    `latest_at` is drawn in where this one's is sooner; an order that waits gives way to one that does not.
    lost_gpu_seconds None: reckoned from the last checkpoint. refused: (job, why not) pairs.
    Joins the caller's `log.writing()`. Raises ConflictError when the attempt has ended, or is stopping already
    for a reason that needs no eviction.
    """
    order = _Order(
        EvictionRule(rule),
        message,
        ordered_by,
        preemptor,
        keeps_replicas,
        None if lost_gpu_seconds is None else round(lost_gpu_seconds),
        numbers or {},
        refused,
        wait_for_checkpoint,
        latest_at,
    )
    known = open_eviction(attempt)
    if known is not None and not _is_sooner(order, known):
        return known
    try:
        with log.writing():
            return _ordered(attempt, order, now)
    except IntegrityError as error:
        raise ConflictError(
            f"somebody else orders attempt {attempt.number} of {attempt.job_id} to leave",
            code="eviction_ordered",
        ) from error


def open_eviction(attempt: Attempt) -> Eviction | None:
    """The order under which the attempt is to leave, if there is one."""
    return Eviction.objects.filter(Eviction.OPEN, attempt=attempt).first()


def _is_sooner(order: _Order, known: Eviction) -> bool:
    """Whether the order would stop the attempt before the known one does."""
    if known.signalled_at is not None or not known.wait_for_checkpoint:
        return False
    if not order.wait_for_checkpoint:
        return True
    return order.latest_at is not None and (
        known.latest_at is None or order.latest_at < known.latest_at
    )


def _ordered(attempt: Attempt, order: _Order, now: datetime) -> Eviction:
    job = (
        Job.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=attempt.job_id)
    )
    attempt.refresh_from_db()
    known = open_eviction(attempt)
    if known is not None and not _is_sooner(order, known):
        return known
    if attempt.ended_at is not None or attempt.stop_cause:
        state = "has ended" if attempt.ended_at else "is stopping"
        raise ConflictError(
            f"attempt {attempt.number} of {attempt.job_id} {state}", code="attempt_stopping"
        )
    if known is not None:
        if order.wait_for_checkpoint:
            return _drawn_in(known, order)
        _withdraw(known, SUPERSEDED, now)
    eviction = Eviction.objects.create(
        cluster_id=attempt.cluster_id,
        attempt=attempt,
        rule=order.rule,
        preemptor=order.preemptor,
        keeps_replicas=order.keeps_replicas,
        lost_gpu_seconds=_lost(attempt, job, now)
        if order.lost_gpu_seconds is None
        else order.lost_gpu_seconds,
        numbers=dict(order.numbers),
        refused=[list(pair) for pair in order.refused],
        message=order.message,
        ordered_by=order.ordered_by,
        ordered_at=now,
        wait_for_checkpoint=order.wait_for_checkpoint,
        latest_at=order.latest_at,
    )
    _record(eviction, job, "eviction.ordered", order.ordered_by, order.message, now)
    return eviction


def _drawn_in(known: Eviction, order: _Order) -> Eviction:
    Eviction.objects.filter(pk=known.pk, signalled_at__isnull=True).update(
        latest_at=order.latest_at
    )
    known.latest_at = order.latest_at
    return known


def _lost(attempt: Attempt, job: Job, now: datetime) -> int:
    gpus = attempt.placements.aggregate(total=Sum("gpus"))["total"] or 0
    return round(saves_of(attempt, job).lost_seconds(now) * int(gpus))


def withdraw_eviction(eviction: Eviction, *, message: str, now: datetime) -> Eviction:
    """Let the attempt run on. Repeating it changes nothing; raises ConflictError once its pods were told."""
    with log.writing():
        _withdraw(eviction, message, now)
    return eviction


def _withdraw(eviction: Eviction, message: str, now: datetime) -> None:
    rows = Eviction.objects.filter(Eviction.OPEN, pk=eviction.pk, signalled_at__isnull=True)
    if not rows.update(withdrawn_at=now):
        eviction.refresh_from_db()
        if eviction.withdrawn_at is not None:
            return
        raise ConflictError(
            f"the eviction of {eviction.attempt_id} is under way: its pods were told",
            code="eviction_signalled",
        )
    eviction.withdrawn_at = now
    job = Job.objects.select_related("tenant").get(attempts=eviction.attempt_id)
    _record(eviction, job, "eviction.withdrawn", "scheduler", message, now)


def carry_out_evictions(
    cluster: Cluster | int, now: datetime, hold: Callable[[], None] = lambda: None
) -> list[Eviction]:
    """Stop what is due, close what has left; returns the evictions that were signalled now.

    Each in a transaction of its own, which begins with `hold` (the loop's fence). Costs one query when there is
    nothing to do.
    """
    cluster_id = cluster if isinstance(cluster, int) else cluster.pk
    rows = Eviction.objects.filter(Eviction.OPEN, cluster_id=cluster_id)
    told = []
    parts = ("attempt__job__tenant", "preemptor", "cluster")
    for eviction in rows.select_related(*parts).order_by("pk"):
        attempt = eviction.attempt
        if attempt.ended_at is not None:
            _close(eviction, now, hold)
        elif _is_in_vain(eviction):
            with log.writing():
                hold()
                _withdraw(eviction, IN_VAIN, now)
        elif _is_due(eviction, now) and _signal(eviction, now, hold):
            told.append(eviction)
    return told


def _is_in_vain(eviction: Eviction) -> bool:
    """Whether nobody was told yet, and the job that was to have the room no longer waits for it."""
    preemptor = eviction.preemptor
    if eviction.signalled_at is not None or preemptor is None:
        return False
    return preemptor.phase != Phase.PENDING


def _is_due(eviction: Eviction, now: datetime) -> bool:
    if eviction.signalled_at is not None:
        return False
    return bool(eviction.attempt.stop_cause) or now >= due_at(eviction)


def due_at(eviction: Eviction) -> datetime:
    """When an open eviction is to be signalled, as far as can be known now.

    At once unless it waits for a checkpoint: then when one was reported since the order, when the next one that the
    interval promises is written, and at `latest_at` in any case. A job that promises none and has no `latest_at`
    is not waited for.
    """
    attempt = eviction.attempt
    saves = saves_of(attempt, attempt.job)
    if not eviction.wait_for_checkpoint or attempt.started_at is None:
        return eviction.ordered_at
    reported = attempt.last_checkpoint_at
    if reported is not None and reported > eviction.ordered_at:
        return eviction.ordered_at
    moments = [saves.written_by(eviction.ordered_at), eviction.latest_at]
    return min((moment for moment in moments if moment is not None), default=eviction.ordered_at)


def deadline_of(eviction: Eviction) -> datetime | None:
    """By when the attempt's pods are told to end: for the notice that a job reads. None before the signal."""
    attempt = eviction.attempt
    if eviction.signalled_at is None or attempt.stop_requested_at is None:
        return None
    grace = attempt.job.checkpoint_grace_seconds or attempt.job.grace_seconds
    return attempt.stop_requested_at + timedelta(seconds=grace)


def _signal(eviction: Eviction, now: datetime, hold: Callable[[], None]) -> bool:
    """Stop the attempt under this order; False when somebody else was first."""
    attempt, job = eviction.attempt, eviction.attempt.job
    rule = EvictionRule(eviction.rule)
    try:
        with log.writing():
            hold()
            mine = Eviction.objects.filter(Eviction.OPEN, pk=eviction.pk, signalled_at__isnull=True)
            lost = _lost(attempt, job, now)
            if not mine.update(signalled_at=now, lost_gpu_seconds=lost):
                return False
            stopping = bool(attempt.stop_cause)
            stop_attempt(
                attempt,
                cause=_cause(eviction),
                grace_seconds=job.grace_seconds,
                message=eviction.message,
                actor=eviction.ordered_by,
                now=now,
            )
            if rule in FOR_OTHERS and not stopping:
                Job.objects.filter(pk=job.pk).update(preemptions=F("preemptions") + 1)
            eviction.signalled_at, eviction.lost_gpu_seconds = now, lost
            _record(eviction, job, "eviction.signalled", eviction.ordered_by, eviction.message, now)
    except ConflictError:
        # It has ended in this very moment: the next tick closes the row.
        return False
    return True


def _cause(eviction: Eviction) -> EndedBy:
    """Whoever only gives up some replicas is resized, whatever the rule: it is never finished by `on_preemption`."""
    shrinks = eviction.keeps_replicas > 0 and eviction.rule in FOR_OTHERS
    return EndedBy.RESIZE if shrinks else CAUSES[eviction.rule]


def _close(eviction: Eviction, now: datetime, hold: Callable[[], None]) -> None:
    """The attempt has ended. One that ended by itself before it was told was not evicted."""
    ended_at = eviction.attempt.ended_at or now
    with log.writing():
        hold()
        open_rows = Eviction.objects.filter(Eviction.OPEN, pk=eviction.pk)
        if eviction.signalled_at is None:
            changed = open_rows.update(withdrawn_at=ended_at)
            kind, message = "eviction.withdrawn", "the attempt ended by itself"
        else:
            changed = open_rows.update(ended_at=ended_at)
            kind, message = "eviction.ended", ""
        if changed:
            _record(eviction, eviction.attempt.job, kind, "scheduler", message, now)


def _record(
    eviction: Eviction, job: Job, kind: str, actor: str, message: str, now: datetime
) -> None:
    """One event about the evicted job, without the preemptor's name: its tenant may not see it."""
    log.record(
        log.NewEvent(
            kind=kind,
            at=now,
            tenant=job.tenant.slug,
            job=job.pk,
            cluster=eviction.cluster.name,
            actor=actor,
            message=message,
            numbers={
                "attempt": eviction.attempt.number,
                "eviction": eviction.pk,
                "rule": str(eviction.rule),
                "keeps_replicas": eviction.keeps_replicas,
                "lost_gpu_seconds": eviction.lost_gpu_seconds,
            },
        )
    )
