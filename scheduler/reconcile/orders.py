"""Attempts to launch → everything that `enact` needs to launch them, read fresh from their rows.

Called by `tick`. Here the rows are read once more before anything is done in Kubernetes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from queues.lifecycle import EndedBy
from queues.models import Attempt, Job
from scheduler.kube.manifests import deadline_seconds
from scheduler.kube.namespaces import NamespaceWanted
from scheduler.reconcile.books import Books
from scheduler.reconcile.describe import Gang, Seat
from scheduler.reconcile.ends import Stop
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.tenants import (
    KnownSecrets,
    MissingSecretError,
    pull_secret,
    secret_environment,
    secrets_of,
)
from scheduler.reconcile.view import AttemptKey
from tenants.vault import NoFieldKeyError


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """`missing`: placements whose pods are not there, with their index in the gang's seats."""

    key: AttemptKey
    gang: Gang
    missing: Mapping[int, int]
    secrets: Mapping[str, str]
    pull_secret: Mapping[str, Any] | None
    namespace: NamespaceWanted
    claims: tuple[str, ...]


def launch_orders(
    books: Books, attempts: Sequence[AttemptLife], now: datetime
) -> list[LaunchOrder]:
    """What to create, for those that are still to be launched and can be; few statements for all."""
    if not attempts:
        return []
    rows = _fresh(attempts)
    secrets = secrets_of([row.job for row in rows.values()])
    orders: list[LaunchOrder] = []
    for attempt in attempts:
        row = rows.get(attempt.id)
        if row is None or row.stop_cause or row.ended_at is not None:
            continue
        order = _order(books, attempt, row, secrets)
        if order is not None:
            orders.append(order)
    _note_objects(attempts, {order.key for order in orders}, now)
    return orders


def _order(
    books: Books, attempt: AttemptLife, row: Attempt, known: KnownSecrets
) -> LaunchOrder | None:
    job: Job = row.job
    try:
        secrets, pull = secret_environment(job, row.number, known), pull_secret(job, known)
    except MissingSecretError as error:
        books.stops[attempt.key] = Stop(EndedBy.START_FAILED, str(error), job.grace_seconds)
        return None
    except NoFieldKeyError as error:
        # The installation's fault, not the job's.
        books.stops[attempt.key] = Stop(
            EndedBy.PLACEMENT_MISS, str(error.detail), job.grace_seconds
        )
        return None
    return LaunchOrder(
        key=attempt.key,
        gang=_gang(attempt, row),
        missing={p.id: at for at, p in enumerate(attempt.placements) if not p.pod_uid},
        secrets=secrets,
        pull_secret=pull,
        namespace=books.namespaces[attempt.namespace],
        claims=tuple(sorted({volume["claim"] for volume in job.volumes})),
    )


def _note_objects(
    attempts: Iterable[AttemptLife], keys: Collection[AttemptKey], now: datetime
) -> None:
    """Service and Secret are written down before they are made: whatever happens then, they are
    removed with the attempt."""
    new = [a for a in attempts if a.key in keys and a.service_created_at is None]
    by_deadline: dict[int | None, list[int]] = defaultdict(list)
    for attempt in new:
        by_deadline[_deadline_of(attempt)].append(attempt.id)
    for seconds, ids in by_deadline.items():
        Attempt.objects.filter(pk__in=ids).update(
            service_created_at=now, pods_end_after_seconds=seconds
        )
    for attempt in new:
        attempt.service_created_at = now


def _deadline_of(attempt: AttemptLife) -> int | None:
    limit = attempt.max_runtime_seconds
    return deadline_seconds(limit, attempt.grace_seconds) if limit else None


def _fresh(attempts: Iterable[AttemptLife]) -> dict[int, Attempt]:
    """Thousands of jobs have few tenants, queues and users: those are read once, not joined to each row."""
    related = ("flavor", "job__tenant", "job__queue", "job__user", "job__preset", "job__roles")
    rows = Attempt.objects.select_related("job").prefetch_related(*related)
    return {row.pk: row for row in rows.filter(pk__in=[a.id for a in attempts])}


def _gang(attempt: AttemptLife, row: Attempt) -> Gang:
    return Gang(
        job=row.job,
        roles=tuple(row.job.roles.all()),
        attempt=row.number,
        resource=row.flavor.resource_name if row.flavor else "",
        seats=tuple(
            Seat(p.role, p.replica, p.rank, p.node, p.try_number) for p in attempt.placements
        ),
        url=settings.PUBLIC_URL,
        placed_at=row.placed_at,
    )
