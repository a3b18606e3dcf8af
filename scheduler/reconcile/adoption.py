"""Gangs that run while the rows know nothing of them: which may be adopted, and doing so.

Called by `tick`, inside its transaction, when nothing else is outstanding. After a database was restored from an
older backup the cluster goes on running what was started since; none of it is killed: it is adopted where its job's
row allows, else shown as unclaimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from scheduler.apply.adoption import FoundPod, NotAdoptableError, adopt_attempt
from scheduler.kube.seen import OUR_PREFIX, PodSeen
from scheduler.models import DriftKind, Healing
from scheduler.reconcile.books import Books
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.view import AttemptKey, is_forgotten, placed_stamp

AGAIN_SECONDS = 60


def has_forgotten_pods(books: Books, attempt: AttemptLife) -> bool:
    """True when an attempt was planned under a number whose gang runs already."""
    if attempt.phase != "placed" or any(p.pod_uid for p in attempt.placements):
        return False
    return any(is_forgotten(pod, attempt.placed_at) for pod in books.view.pods_of(attempt.key))


@dataclass(slots=True)
class Adoption:
    """`refused`: what could not be adopted, why, and when to try again."""

    refused: dict[AttemptKey, tuple[str, datetime]] = field(default_factory=dict)

    def take(self, books: Books, keys: Iterable[AttemptKey], now: datetime) -> set[AttemptKey]:
        """Adopt what can be; the attempts that have rows now."""
        adopted: set[AttemptKey] = set()
        for key in sorted(set(keys)):
            if key in self.refused and now < self.refused[key][1]:
                continue
            if self._adopt(books, key, now):
                adopted.add(key)
        if adopted:
            books.reload({job for job, _number in adopted})
        return adopted

    def why(self, key: AttemptKey) -> str:
        """Why its pods are unclaimed."""
        return self.refused[key][0] if key in self.refused else "no row knows its job or attempt"

    def _adopt(self, books: Books, key: AttemptKey, now: datetime) -> bool:
        pods = books.view.pods_of(key)
        books.flush()
        try:
            adopt_attempt(books.cluster, key[0], key[1], list(_found(pods)), now)
        except NotAdoptableError as error:
            self.refused[key] = (str(error), now + timedelta(seconds=AGAIN_SECONDS))
            return False
        self.refused.pop(key, None)
        uids = [pod.uid for pod in pods]
        books.drift.note_healed(DriftKind.UNCLAIMED, uids, Healing.ADOPTED, now)
        return True


def _found(pods: Iterable[PodSeen]) -> Iterable[FoundPod]:
    for pod in pods:
        if pod.terminating:
            raise NotAdoptableError("its pods are being deleted")
        if pod.node is None:
            raise NotAdoptableError("its pods are not all bound")
        yield FoundPod(
            uid=pod.uid,
            name=pod.name,
            role=pod.labels.get(f"{OUR_PREFIX}role", ""),
            replica=_number(pod, "replica"),
            rank=_number(pod, "rank"),
            try_number=_number(pod, "try"),
            node=pod.node,
            holds=not pod.finished,
            created_at=pod.created_at,
            placed_at=placed_stamp(pod),
        )


def _number(pod: PodSeen, label: str) -> int:
    text = pod.labels.get(f"{OUR_PREFIX}{label}", "")
    if not text.isdigit() or len(text) > 8:
        raise NotAdoptableError(f"label {OUR_PREFIX}{label} of {pod.name} is no number")
    return int(text)
