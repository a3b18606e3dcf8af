"""Carries out what `ends` decides: phases, stops and ends by the services of `queues`, releases by
`scheduler.apply`. Called by `tick`, inside its transaction.

All attempts take their steps together, round by round: what a thousand of them come to at once costs a handful of
statements, not a dozen for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Placement
from queues.services.ends import Ending, StopOrder, end_attempts, stop_attempts
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
LATE_SECONDS = 10.0
# Each step may make another one due: an attempt that stops may have nothing left to stop.
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Settled:
    """Attempts whose start has to be checked, and those that were left for the next tick."""

    to_check: set[AttemptKey]
    later: list[AttemptKey]


@dataclass(frozen=True, slots=True)
class _Tick:
    """What a tick decides upon."""

    books: Books
    standings: Mapping[str, NodeStanding]
    busy: frozenset[AttemptKey]
    now: datetime
    to_check: set[AttemptKey] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Round:
    """The steps of one round, by kind, each with its attempt."""

    runs: list[AttemptLife] = field(default_factory=list)
    stops: list[tuple[AttemptLife, Stop]] = field(default_factory=list)
    ends: list[tuple[AttemptLife, Conclude]] = field(default_factory=list)
    again: list[tuple[AttemptLife, Recreate]] = field(default_factory=list)

    def add(self, attempt: AttemptLife, step: Step) -> None:
        """Put a step to those of its kind."""
        match step:
            case Run():
                self.runs.append(attempt)
            case Stop():
                self.stops.append((attempt, step))
            case Conclude():
                self.ends.append((attempt, step))
            case Recreate():
                self.again.append((attempt, step))


def settle(
    books: Books,
    keys: Sequence[AttemptKey],
    standings: Mapping[str, NodeStanding],
    busy: frozenset[AttemptKey],
    now: datetime,
) -> Settled:
    """Decide about each attempt until nothing more follows."""
    this = _Tick(books, standings, busy, now)
    _mark_starting(books, keys, now)
    following = list(keys)
    for _round in range(ROUNDS):
        if not following:
            break
        following = _one_round(this, following)
    release(books, list(_releasable(books, keys, standings)), now)
    return Settled(this.to_check, following)


def _one_round(this: _Tick, keys: Iterable[AttemptKey]) -> list[AttemptKey]:
    """Take the next steps of all these attempts; those of which more may follow."""
    books, now = this.books, this.now
    steps = _Round()
    decided: list[tuple[AttemptLife, Decision]] = []
    for key in keys:
        attempt = books.ledger.attempts.get(key)
        if attempt is None:
            continue
        decision = decide(attempt, _around(this, key))
        decided.append((attempt, decision))
        _note_due(books, key, decision.due)
        taken = _with_urgent(books, attempt, decision)
        if not taken and decision.check_start:
            this.to_check.add(key)
        else:
            this.to_check.discard(key)
        for step in taken:
            steps.add(attempt, step)
    _note_unknown(books, decided, now)
    return _take(books, steps, now)


def _take(books: Books, steps: _Round, now: datetime) -> list[AttemptKey]:
    """Carry the steps out; the attempts that took one."""
    ends = _judged(books, steps.ends, now)
    taken = [
        *steps.runs,
        *(attempt for attempt, _step in (*steps.stops, *ends, *steps.again)),
    ]
    keys = [attempt.key for attempt in taken]
    for attempt, step in steps.again:
        for placement in attempt.placements:
            if placement.id == step.placement_id:
                make_again(books, attempt, placement)
    _mark_running(books, steps.runs, now)
    _in_parts(books, steps.stops, partial(_stop, books, now=now))
    _in_parts(books, ends, partial(_conclude, books, now=now))
    return keys


def _in_parts(
    books: Books,
    steps: Sequence[tuple[AttemptLife, T]],
    carry_out: Callable[[Sequence[tuple[AttemptLife, T]]], None],
) -> None:
    """All together, and each alone where somebody moved one of the jobs; read again, and decided anew, in any case."""
    if not steps:
        return
    books.flush()
    try:
        carry_out(steps)
    except ConflictError:
        if len(steps) > 1:
            for step in steps:
                _in_parts(books, [step], carry_out)
            return
    books.reload([attempt.job_id for attempt, _step in steps])


def _stop(books: Books, steps: Sequence[tuple[AttemptLife, Stop]], now: datetime) -> None:
    rows = _rows(steps)
    orders = [
        StopOrder(
            rows[attempt.id],
            step.cause,
            step.grace_seconds,
            step.message,
            refused=step.refused,
            elsewhere=step.elsewhere,
        )
        for attempt, step in steps
    ]
    stop_attempts(orders, actor=ACTOR, now=now)
    for _attempt, step in steps:
        suspect(books.cluster, step.suspects, step.message, now)


def _conclude(books: Books, steps: Sequence[tuple[AttemptLife, Conclude]], now: datetime) -> None:
    rows = _rows(steps)
    end_attempts(
        [
            Ending(rows[attempt.id], step.ended_by, step.message, step.exit_code)
            for attempt, step in steps
        ],
        now=now,
    )
    for attempt, _step in steps:
        books.starts.forget(attempt.key)
    _forget_never_made([attempt for attempt, _step in steps], now)


def _rows(steps: Iterable[tuple[AttemptLife, T]]) -> dict[int, Attempt]:
    return Attempt.objects.in_bulk([attempt.id for attempt, _step in steps])


def _releasable(
    books: Books, keys: Iterable[AttemptKey], standings: Mapping[str, NodeStanding]
) -> Iterable[PlacementLife]:
    for key in keys:
        attempt = books.ledger.attempts.get(key)
        if attempt is not None:
            yield from (p for p in attempt.placements if is_releasable(attempt, p, standings))


# --- what waits for a judgement ---


def _judged(
    books: Books, ends: Sequence[tuple[AttemptLife, Conclude]], now: datetime
) -> list[tuple[AttemptLife, Conclude]]:
    """The ends that need not wait for the health process; the others are looked at again.

    A failure may yet turn out to be the hardware's: a program whose GPU dies exits a moment before anybody knows why.
    """
    open_to_doubt = [attempt for attempt, step in ends if _may_be_blamed(attempt, step, now)]
    if not open_to_doubt:
        return list(ends)
    nodes = {node for attempt in open_to_doubt for node in _failed_on(attempt)}
    rows = Node.objects.filter(cluster=books.cluster, name__in=nodes)
    judged_at = dict(rows.values_list("name", "health_judged_at"))
    waiting: set[AttemptKey] = set()
    for attempt in open_to_doubt:
        if _awaits_judgement(attempt, judged_at, now):
            waiting.add(attempt.key)
            limit = _judgement_limit(attempt) or now
            _note_due(
                books, attempt.key, min(limit, now + timedelta(seconds=JUDGEMENT_ASKED_SECONDS))
            )
    return [(attempt, step) for attempt, step in ends if attempt.key not in waiting]


def _may_be_blamed(attempt: AttemptLife, step: Conclude, now: datetime) -> bool:
    limit = _judgement_limit(attempt)
    doubtful = step.ended_by is EndedBy.FAILED and limit is not None and now < limit
    return doubtful and bool(_failed_on(attempt))


def _judgement_limit(attempt: AttemptLife) -> datetime | None:
    asked_at = attempt.stop_requested_at
    return asked_at + timedelta(seconds=JUDGEMENT_SECONDS) if asked_at else None


def _failed_on(attempt: AttemptLife) -> list[str]:
    """Nodes where a program ended badly by itself."""
    return [p.node for p in attempt.placements if p.exit_code and p.delete_sent_at is None]


def _awaits_judgement(
    attempt: AttemptLife, judged_at: Mapping[str, datetime | None], now: datetime
) -> bool:
    """Whether one of its nodes is judged regularly, and was not since the stop was asked for."""
    asked_at = attempt.stop_requested_at or now
    moments = [judged_at.get(node) for node in _failed_on(attempt)]
    lately = now - timedelta(seconds=JUDGED_SECONDS)
    return any(moment is not None and lately <= moment < asked_at for moment in moments)


# --- what each decision rests on, and what is noted of it ---


def _around(this: _Tick, key: AttemptKey) -> Circumstances:
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


def _note_unknown(
    books: Books, decided: Iterable[tuple[AttemptLife, Decision]], now: datetime
) -> None:
    for attempt, decision in decided:
        if attempt.ended_at is not None or attempt.unknown_since == decision.unknown_since:
            continue
        attempt.unknown_since = since = decision.unknown_since
        Attempt.objects.filter(pk=attempt.id).update(unknown_since=since)
        kind = "attempt.unknown" if since else "attempt.known_again"
        books.record(kind, attempt, now, since=since.isoformat() if since else None)


# --- starts ---


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


def _mark_running(books: Books, attempts: Sequence[AttemptLife], now: datetime) -> None:
    """Where somebody moved one of the jobs they are read again: the next round decides anew."""
    if not attempts:
        return
    since = {a.id: began for a in attempts if (began := _began_before(a, now)) is not None}
    started = _together(books, attempts, partial(mark_many_running, now=now, since=since))
    if started is None:
        return
    for attempt in attempts:
        books.starts.forget(attempt.key)
        if attempt.id in started:
            attempt.phase, attempt.started_at = Phase.RUNNING, started[attempt.id]
    if len(started) < len(attempts):
        books.reload([a.job_id for a in attempts if a.id not in started])


def _began_before(attempt: AttemptLife, now: datetime) -> datetime | None:
    """When an attempt began to run that we learn of late: adopted, or started while this process was away.

    Kubernetes' times are whole seconds by another clock: where we were there, ours is the better one.
    """
    began = max((p.started_at for p in attempt.placements if p.started_at), default=None)
    if began is None or now - began < timedelta(seconds=LATE_SECONDS):
        return None
    return max(began, attempt.placed_at)


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


# --- placements ---


def _forget_never_made(attempts: Iterable[AttemptLife], now: datetime) -> None:
    """Placements that never had a pod: there is nothing of them to wait for."""
    ids = [
        p.id
        for attempt in attempts
        for p in attempt.placements
        if not p.pod_uid and p.gone_at is None
    ]
    if ids:
        release_placements([Placement(pk=pk) for pk in ids], now)
        Placement.objects.filter(pk__in=ids).update(gone_at=now)


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
