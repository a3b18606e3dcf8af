"""An attempt to launch → everything that `enact` needs to launch it, read fresh from its rows.

Called by `tick`. Here the rows are read once more before anything is done in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from queues.lifecycle import EndedBy
from queues.models import Attempt, Job
from scheduler.kube.namespaces import NamespaceWanted
from scheduler.reconcile.books import Books
from scheduler.reconcile.describe import Gang, Seat
from scheduler.reconcile.ends import Stop
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.tenants import MissingSecretError, pull_secret, secret_environment
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


def launch_order(books: Books, attempt: AttemptLife, now: datetime) -> LaunchOrder | None:
    """What to create; None when the attempt is no longer to be launched, or cannot be."""
    row = _fresh(attempt)
    if row is None or row.stop_cause or row.ended_at is not None:
        return None
    job: Job = row.job
    try:
        secrets, pull = secret_environment(job, row.number), pull_secret(job)
    except MissingSecretError as error:
        books.stops[attempt.key] = Stop(EndedBy.START_FAILED, str(error), job.grace_seconds)
        return None
    except NoFieldKeyError as error:
        # The installation's fault, not the job's.
        books.stops[attempt.key] = Stop(
            EndedBy.PLACEMENT_MISS, str(error.detail), job.grace_seconds
        )
        return None
    _note_objects(attempt, row, now)
    return LaunchOrder(
        key=attempt.key,
        gang=_gang(attempt, row),
        missing={p.id: at for at, p in enumerate(attempt.placements) if not p.pod_uid},
        secrets=secrets,
        pull_secret=pull,
        namespace=books.namespaces[attempt.namespace],
        claims=tuple(sorted({volume["claim"] for volume in job.volumes})),
    )


def _note_objects(attempt: AttemptLife, row: Attempt, now: datetime) -> None:
    """Service and Secret are written down before they are made: whatever happens then, they are
    removed with the attempt."""
    if row.service_created_at is None:
        Attempt.objects.filter(pk=row.pk).update(service_created_at=now)
        attempt.service_created_at = now


def _fresh(attempt: AttemptLife) -> Attempt | None:
    related = ("flavor", "job__tenant", "job__queue", "job__user", "job__preset")
    return Attempt.objects.select_related(*related).filter(pk=attempt.id).first()


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
    )
