"""Carries out what `ends` decides: phases, stops and ends by the services of `queues`, releases by
`scheduler.apply`. Called by `tick`, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Placement
from queues.services.attempts import end_attempt, stop_attempt
from queues.services.starts import mark_many_running, mark_many_starting
from scheduler.apply.release import release_placements
from scheduler.kube.manifests import AttemptName, pod_name
from scheduler.models import Node
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
from scheduler.reconcile.suspects import suspect
from scheduler.reconcile.view import AttemptKey

T = TypeVar("T")
# How long the end of a failed attempt waits for the health process to have judged its nodes, how
# often that is asked, and after what silence there is no such process.
JUDGEMENT_SECONDS = 5.0
JUDGEMENT_ASKED_SECONDS = 0.5
JUDGED_SECONDS = 60.0
ROUNDS = 5
# Each costs a dozen statements: SQLite has one writer, and others wait for it.
MOST_SERVICES = 25


@dataclass(frozen=True, slots=True)
class Settled:
    """Attempts whose start has to be checked, and those that were left for the next tick."""

    to_check: set[AttemptKey]
    later: list[AttemptKey]


@dataclass(slots=True)
class _Round:
    """What a tick decides upon. `services`: calls that may still be made one by one."""

    books: Books
    standings: Mapping[str, NodeStanding]
    busy: frozenset[AttemptKey]
    now: datetime
    services: int = MOST_SERVICES


def settle(
    books: Books,
    keys: Sequence[AttemptKey],
    standings: Mapping[str, NodeStanding],
    busy: frozenset[AttemptKey],
    now: datetime,
) -> Settled:
    """Decide about each attempt until nothing more follows.

    What thousands of attempts come to at once, being bound and running, is written for all together;
    the rest one by one, so many in a tick.
    """
    this = _Round(books, standings, busy, now)
    to_check: set[AttemptKey] = set()
    later: list[AttemptKey] = []
    running: list[AttemptKey] = []
    _mark_starting(books, keys, now)
    for key in keys:
        if this.services <= 0:
            later.append(key)
            continue
        decision = _settle_one(this, key)
        if decision is not None and decision.steps == (Run(),):
            running.append(key)
        elif decision is not None and decision.check_start:
            to_check.add(key)
    if _mark_running(books, running, now):
        for key in running:
            _settle_one(this, key)
    else:
        later += running
    release(books, list(_releasable(books, keys, standings)), now)
    return Settled(to_check, later)


def _releasable(
    books: Books, keys: Iterable[AttemptKey], standings: Mapping[str, NodeStanding]
) -> Iterable[PlacementLife]:
    for key in keys:
        attempt = books.ledger.attempts.get(key)
        if attempt is not None:
            yield from (p for p in attempt.placements if is_releasable(attempt, p, standings))


def _settle_one(this: _Round, key: AttemptKey) -> Decision | None:
    """Each step may make another one due: an attempt that stops may have nothing left to stop.

    Stops before `Run`, which the caller does for all."""
    books, now = this.books, this.now
    decision = None
    for _round in range(ROUNDS):
        attempt = books.ledger.attempts.get(key)
        if attempt is None:
            break
        decision = decide(attempt, _around(this, key))
        _note_unknown(books, attempt, decision, now)
        _note_due(books, key, decision.due)
        steps = _with_urgent(books, attempt, decision)
        if not steps or steps == (Run(),):
            break
        if (until := _judgement_due(books, attempt, steps[0], now)) is not None:
            _note_due(books, key, until)
            break
        for step in steps:
            this.services -= 1
            _take(books, attempt, step, now)
    return decision


def _judgement_due(
    books: Books, attempt: AttemptLife, step: Step, now: datetime
) -> datetime | None:
    """When to look again, where a failure may yet turn out to be the hardware's: a program whose GPU
    dies exits a moment before the health process knows. None: nobody will judge, or has judged."""
    if not isinstance(step, Conclude) or step.ended_by is not EndedBy.FAILED:
        return None
    failed = [p for p in attempt.placements if p.exit_code and p.delete_sent_at is None]
    asked_at = attempt.stop_requested_at
    if not failed or asked_at is None:
        return None
    limit = asked_at + timedelta(seconds=JUDGEMENT_SECONDS)
    if now >= limit:
        return None
    rows = Node.objects.filter(cluster=books.cluster, name__in={p.node for p in failed})
    for judged_at in rows.values_list("health_judged_at", flat=True):
        if judged_at is None or judged_at < now - timedelta(seconds=JUDGED_SECONDS):
            continue
        if judged_at < asked_at:
            return min(limit, now + timedelta(seconds=JUDGEMENT_ASKED_SECONDS))
    return None


def _around(this: _Round, key: AttemptKey) -> Circumstances:
    starts = this.books.starts
    return Circumstances(
        nodes=this.standings,
        now=this.now,
        busy=key in this.busy,
        pulling_until=starts.pulling_until.get(key),
        not_pulling=key in starts.not_pulling,
    )


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


def _mark_starting(books: Books, keys: Iterable[AttemptKey], now: datetime) -> None:
    bound = [
        attempt
        for key in keys
        if (attempt := books.ledger.attempts.get(key)) is not None
        and attempt.phase == Phase.PLACED
        and not attempt.stop_cause
        and attempt.ended_at is None
        and all(p.bound_at is not None for p in attempt.placements)
    ]
    moved = _together(books, bound, partial(mark_many_starting, now=now)) if bound else None
    if moved is not None and moved < len(bound):
        books.reload([attempt.job_id for attempt in bound])
    elif moved is not None:
        for attempt in bound:
            attempt.phase = Phase.STARTING


def _mark_running(books: Books, keys: Sequence[AttemptKey], now: datetime) -> bool:
    """False when somebody moved one of the jobs: they were read again, and are to be looked at again."""
    if not keys:
        return True
    attempts = [books.ledger.attempts[key] for key in keys]
    started = _together(books, attempts, partial(mark_many_running, now=now))
    if started is None:
        return False
    for attempt in attempts:
        books.starts.forget(attempt.key)
        if attempt.id in started:
            attempt.phase, attempt.started_at = Phase.RUNNING, now
    if len(started) < len(attempts):
        books.reload([a.job_id for a in attempts if a.id not in started])
    return True


def _together(
    books: Books, attempts: Sequence[AttemptLife], mark: Callable[[list[int]], T]
) -> T | None:
    """Call a service for all; None, and the rows read again, where it met a conflict."""
    books.flush()
    try:
        return mark([attempt.id for attempt in attempts])
    except ConflictError:
        books.reload([attempt.job_id for attempt in attempts])
        return None


def _take(books: Books, attempt: AttemptLife, step: Step, now: datetime) -> None:
    if isinstance(step, Run):
        return  # for all of them together: `settle`
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


def _call_service(books: Books, attempt: AttemptLife, step: Stop | Conclude, now: datetime) -> None:
    row = _row(attempt)
    match step:
        case Stop(cause, message, grace_seconds, refused, suspects):
            stop_attempt(
                row,
                cause=cause,
                grace_seconds=grace_seconds,
                message=message,
                actor=ACTOR,
                now=now,
                refused=refused,
            )
            suspect(books.cluster, suspects, message, now)
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
    attempt: AttemptLife, placement: PlacementLife, standings: Mapping[str, NodeStanding]
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
