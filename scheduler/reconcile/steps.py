"""Carries out what `ends` decides: phases, stops and ends by the services of `queues`, releases by
`scheduler.apply`. Called by `tick`, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from controlplane.common.errors import ConflictError
from queues.models import Attempt, Placement
from queues.services.attempts import end_attempt, mark_running, mark_starting, stop_attempt
from scheduler.apply.release import release_placements
from scheduler.kube.manifests import AttemptName, pod_name
from scheduler.reconcile.books import ACTOR, Books
from scheduler.reconcile.ends import (
    Circumstances,
    Conclude,
    Decision,
    NodeStanding,
    Recreate,
    Run,
    Step,
    Stop,
    decide,
)
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from scheduler.reconcile.placements import fresh_try
from scheduler.reconcile.view import AttemptKey

ROUNDS = 5


def settle(
    books: Books,
    keys: Iterable[AttemptKey],
    standings: dict[str, NodeStanding],
    busy: frozenset[AttemptKey],
    now: datetime,
) -> set[AttemptKey]:
    """Decide about each attempt until nothing more follows; those whose start has to be checked."""
    to_check: set[AttemptKey] = set()
    to_release: list[PlacementLife] = []
    for key in keys:
        decision = _settle_one(books, key, standings, busy, now)
        if decision is not None and decision.check_start:
            to_check.add(key)
        attempt = books.ledger.attempts.get(key)
        if attempt is not None:
            to_release += [p for p in attempt.placements if is_releasable(attempt, p, standings)]
    release(books, to_release, now)
    return to_check


def _settle_one(
    books: Books,
    key: AttemptKey,
    standings: dict[str, NodeStanding],
    busy: frozenset[AttemptKey],
    now: datetime,
) -> Decision | None:
    """Each step may make another one due: an attempt that stops may have nothing left to stop."""
    decision = None
    for _round in range(ROUNDS):
        attempt = books.ledger.attempts.get(key)
        if attempt is None:
            break
        _mark_starting(books, attempt, now)
        around = Circumstances(
            nodes=standings,
            now=now,
            busy=key in busy,
            pulling_until=books.starts.pulling_until.get(key),
            not_pulling=key in books.starts.not_pulling,
        )
        decision = decide(attempt, around)
        _note_unknown(books, attempt, decision, now)
        _note_due(books, key, decision.due)
        steps = _with_urgent(books, attempt, decision)
        if not steps:
            break
        for step in steps:
            _take(books, attempt, step, now)
    return decision


def _with_urgent(books: Books, attempt: AttemptLife, decision: Decision) -> tuple[Step, ...]:
    """What the outcome of a call told comes before what the rows tell."""
    urgent = books.stops.pop(attempt.key, None)
    if urgent is None or attempt.stop_cause or attempt.ended_at is not None:
        return decision.steps
    return (urgent,)


def _note_due(books: Books, key: AttemptKey, due: datetime | None) -> None:
    if due is None:
        books.dues.pop(key, None)
    else:
        books.dues[key] = due


def _note_unknown(books: Books, attempt: AttemptLife, decision: Decision, now: datetime) -> None:
    if attempt.ended_at is not None or attempt.unknown_since == decision.unknown_since:
        return
    attempt.unknown_since = decision.unknown_since
    Attempt.objects.filter(pk=attempt.id).update(unknown_since=decision.unknown_since)
    since = decision.unknown_since
    kind = "attempt.unknown" if since else "attempt.known_again"
    books.record(kind, attempt, now, since=since.isoformat() if since else None)


def _mark_starting(books: Books, attempt: AttemptLife, now: datetime) -> None:
    if attempt.phase != "placed" or attempt.stop_cause or attempt.ended_at is not None:
        return
    if all(p.bound_at is not None for p in attempt.placements):
        books.flush()
        job = mark_starting(_row(attempt), now=now)
        attempt.phase = str(job.phase)


def _take(books: Books, attempt: AttemptLife, step: Step, now: datetime) -> None:
    if isinstance(step, Recreate):
        for placement in attempt.placements:
            if placement.id == step.placement_id:
                make_again(books, attempt, placement)
        return
    books.flush()
    # Where somebody moved the job since it was read, it is read again, and decided anew.
    with suppress(ConflictError):
        _call_service(books, attempt, step, now)
    books.reload([attempt.job_id])


def _call_service(
    books: Books, attempt: AttemptLife, step: Run | Stop | Conclude, now: datetime
) -> None:
    row = _row(attempt)
    match step:
        case Run():
            mark_running(row, now=now)
            books.starts.forget(attempt.key)
        case Stop(cause, message, grace_seconds, refused):
            stop_attempt(
                row,
                cause=cause,
                grace_seconds=grace_seconds,
                message=message,
                actor=ACTOR,
                now=now,
                refused=refused,
            )
        case Conclude(ended_by, message, exit_code):
            end_attempt(row, ended_by=ended_by, message=message, exit_code=exit_code, now=now)
            books.starts.forget(attempt.key)
            _forget_never_made(attempt, now)


def _forget_never_made(attempt: AttemptLife, now: datetime) -> None:
    """Placements that never had a pod: there is nothing of them to wait for."""
    ids = [p.id for p in attempt.placements if not p.pod_uid and p.gone_at is None]
    if ids:
        release_placements([Placement(pk=pk) for pk in ids], now)
        Placement.objects.filter(pk__in=ids).update(gone_at=now)


def _row(attempt: AttemptLife) -> Attempt:
    return Attempt.objects.get(pk=attempt.id)


def make_again(books: Books, attempt: AttemptLife, placement: PlacementLife) -> None:
    """Let the placement's pod be created again under the next name. Its seats stay taken."""
    name = AttemptName(
        attempt.tenant, attempt.namespace, attempt.job_id, attempt.job8, attempt.number
    )
    following = pod_name(name, placement.role, placement.replica, placement.try_number + 1)
    books.changes.set(attempt, placement, **fresh_try(placement, following))
    books.kept_logs.discard(placement.id)


def is_releasable(
    attempt: AttemptLife, placement: PlacementLife, standings: dict[str, NodeStanding]
) -> bool:
    """True when nothing of the placement can hold its node any more.

    Before all have started, a pod that went is made again on its seats. On a lost node nothing
    is known: its seats stay taken until the kubelet confirms, or the node is deleted.
    """
    if placement.released_at is not None:
        return False
    over = attempt.ended_at is not None
    if over and (not placement.pod_uid or placement.node not in standings):
        return True
    if attempt.started_at is None and not attempt.stop_cause and not over:
        return False
    return placement.ended_at is not None or placement.gone_at is not None


def release(books: Books, placements: list[PlacementLife], now: datetime) -> None:
    """Give the seats back, in the rows and in memory."""
    if not placements:
        return
    books.flush()
    release_placements([Placement(pk=p.id) for p in placements], now)
    for placement in placements:
        placement.released_at = now


def release_after_reboot(books: Books, nodes: Iterable[str], now: datetime) -> None:
    """A node that has booted again runs nothing of the attempts that ended without its word."""
    rebooted = set(nodes)
    held = [
        placement
        for node in rebooted
        for key in books.ledger.on_node(node)
        if (attempt := books.ledger.attempts[key]).ended_at is not None
        for placement in attempt.placements
        if placement.node == node and placement.released_at is None
    ]
    release(books, held, now)
