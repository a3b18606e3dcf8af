"""What became of actions → rows. Called by `tick`, before it decides.

What a refusal means is here: whose fault it is, and whether to try again (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from queues.lifecycle import EndedBy
from queues.models import Attempt
from scheduler.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from scheduler.reconcile import results
from scheduler.reconcile.books import Books
from scheduler.reconcile.ends import MOST_TRIES, Stop
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from scheduler.reconcile.placements import note_created
from scheduler.reconcile.steps import make_again
from scheduler.reconcile.view import AttemptKey, is_forgotten

PULLING_SECONDS = 60


def take_results(
    books: Books, given: Iterable[results.Result], now: datetime
) -> tuple[set[AttemptKey], set[str]]:
    """Write down what was done; the attempts and the nodes to look at because of it."""
    keys: set[AttemptKey] = set()
    nodes: set[str] = set()
    bare: list[int] = []
    for result in given:
        if isinstance(result, results.LookAtNode):
            nodes.add(result.node)
            continue
        if isinstance(result, results.NamespaceRead):
            books.drift.namespaces[result.name] = result.differences
            continue
        keys.add(result.key)
        attempt = books.ledger.attempts.get(result.key)
        if attempt is not None:
            _take(books, attempt, result, now)
            if isinstance(result, results.ObjectsRemoved):
                bare.append(attempt.id)
    if bare:
        Attempt.objects.filter(pk__in=bare).update(service_created_at=None)
    return keys, nodes


def _take(books: Books, attempt: AttemptLife, result: results.OfAttempt, now: datetime) -> None:
    match result:
        case results.Launched():
            _launched(books, attempt, result, now)
        case results.Bound():
            _bound(books, attempt, result, now)
        case results.DeleteSent(placement_id):
            placement = _placement(attempt, placement_id)
            if placement is not None and placement.delete_sent_at is None:
                books.changes.set(attempt, placement, delete_requested_at=now, delete_sent_at=now)
        case results.LogKept(placement_id, _, size, final):
            _log_kept(books, placement_id, size, final=final)
        case results.StartChecked(key, pulling):
            _start_checked(books, key, now, pulling=pulling)
        case results.ObjectsRemoved():
            attempt.service_created_at = None


def _placement(attempt: AttemptLife, placement_id: int) -> PlacementLife | None:
    return next((p for p in attempt.placements if p.id == placement_id), None)


def _launched(books: Books, attempt: AttemptLife, result: results.Launched, now: datetime) -> None:
    for placement in attempt.placements:
        pod = result.pods.get(placement.id)
        if pod is not None:
            books.view.note_created(pod, now)
            if is_forgotten(pod, attempt.placed_at):
                continue  # found there, of a life that the rows forgot: `adoption` looks at it
            if not placement.pod_uid and pod.name == placement.pod_name:
                note_created(attempt, placement, pod, books.changes, now)
    if result.refusal is not None:
        _refused(books, attempt, result.refusal)
    for placement_id, error in result.errors.items():
        refused = _placement(attempt, placement_id)
        if refused is not None:
            _create_refused(books, attempt, refused, error)


def _create_refused(
    books: Books, attempt: AttemptLife, placement: PlacementLife, error: KubeError
) -> None:
    if not isinstance(error, AlreadyExists):
        _refused(books, attempt, error)
    elif placement.try_number < MOST_TRIES:
        # The name is another pod's, or one's that is still going: take the next.
        make_again(books, attempt, placement)
    else:
        message = f"the name {placement.pod_name} is taken: {error.message}"
        books.stops[attempt.key] = _stop(attempt, EndedBy.PLACEMENT_MISS, message)


def _refused(books: Books, attempt: AttemptLife, error: KubeError) -> None:
    """A refusal that repeating does not cure stops the gang; the others are tried again."""
    if isinstance(error, Invalid | BadRequest | NotFound):
        # The pod itself is wrong, or names what is not there (a claim, a priority class).
        books.stops[attempt.key] = _stop(attempt, EndedBy.START_FAILED, error.message)
    elif isinstance(error, Forbidden):
        books.stops[attempt.key] = Stop(
            EndedBy.PLACEMENT_MISS, error.message, attempt.grace_seconds, refused=True
        )


def _bound(books: Books, attempt: AttemptLife, result: results.Bound, now: datetime) -> None:
    done = set(result.done)
    for placement in attempt.placements:
        if placement.id in done and placement.bound_at is None:
            books.changes.set(attempt, placement, bound_at=now)
    for placement_id, error in result.errors.items():
        unbound = _placement(attempt, placement_id)
        if unbound is None or isinstance(error, NotFound):
            continue  # gone before it was bound: the watch tells, and it is made again
        if isinstance(error, Conflict | Forbidden | Invalid | BadRequest):
            where = f"{unbound.pod_name} could not be bound to {unbound.node}"
            books.stops[attempt.key] = _stop(
                attempt, EndedBy.PLACEMENT_MISS, f"{where}: {error.message}"
            )


def _stop(attempt: AttemptLife, cause: EndedBy, message: str) -> Stop:
    return Stop(cause, message, attempt.grace_seconds)


def _log_kept(books: Books, placement_id: int, size: int | None, *, final: bool) -> None:
    if final:
        books.kept_logs.add(placement_id)
    if size is not None:
        books.changes.columns[placement_id]["log_bytes"] = size


def _start_checked(books: Books, key: AttemptKey, now: datetime, *, pulling: bool) -> None:
    if pulling:
        books.starts.pulling_until[key] = now + timedelta(seconds=PULLING_SECONDS)
        books.starts.not_pulling.discard(key)
    else:
        books.starts.not_pulling.add(key)
