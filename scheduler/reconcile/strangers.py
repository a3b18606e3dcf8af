"""Which pods are not ours to count as placements: others' work, leftovers, pods without a row.

Called by `tick`, inside its transaction. A pod that bears our labels while no row knows it is
shown as unclaimed and never deleted; one whose attempt is recorded as ended is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from queues.models import Attempt
from scheduler.kube.pods import PodKey
from scheduler.kube.seen import PodSeen
from scheduler.reconcile.books import Books
from scheduler.reconcile.view import AttemptKey, is_forgotten
from scheduler.reconcile.wanted import Delete

IDS_PER_QUERY = 500
LEFTOVER_GRACE_SECONDS = 30
_KEY_AND_TIME = ("job_id", "number", "placed_at")


@dataclass(slots=True)
class Strangers:
    """`known`: attempts that are not in the ledger, by when their rows say that they were planned;
    None: no row tells of them."""

    known: dict[AttemptKey, datetime | None] = field(default_factory=dict)

    def take(
        self, books: Books, pods: Mapping[str, AttemptKey | None], now: datetime
    ) -> list[Delete]:
        """Write the rows of these pods as they are now; leftovers to delete."""
        self._ask(books, {key for key in pods.values() if key is not None})
        wanted: dict[str, dict[str, Any] | None] = {}
        leftovers: list[Delete] = []
        for uid in pods:
            pod = books.view.pods.get(uid)
            wanted[uid] = self._row(books, pod, pods[uid])
            if pod is not None and self._is_leftover(books, pod, pods[uid]):
                key = PodKey(pod.namespace, pod.name, pod.uid)
                leftovers.append(Delete(key, LEFTOVER_GRACE_SECONDS))
        known = books.foreign.uids()
        books.foreign.write(
            {uid: row for uid, row in wanted.items() if row is not None or uid in known}, now
        )
        return leftovers

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Rows of these attempts have come or gone."""
        for key in keys:
            self.known.pop(key, None)

    def _row(
        self, books: Books, pod: PodSeen | None, key: AttemptKey | None
    ) -> dict[str, Any] | None:
        if pod is None or pod.node is None or pod.finished or _is_placed(books, pod, key):
            return None
        node = books.view.nodes.get(pod.node)
        unclaimed = key is not None and self.is_unclaimed(books, pod, key)
        return books.foreign.columns(pod, node, books.policy, unclaimed=unclaimed)

    def _is_leftover(self, books: Books, pod: PodSeen, key: AttemptKey | None) -> bool:
        """Unfinished, of an attempt that is recorded as ended and whose pods were all gone."""
        if key is None or key in books.ledger.attempts or pod.finished or pod.terminating:
            return False
        return not self.is_unclaimed(books, pod, key)

    def is_unclaimed(self, books: Books, pod: PodSeen, key: AttemptKey) -> bool:
        """True when no row tells of the attempt that this pod was made for."""
        attempt = books.ledger.attempts.get(key)
        placed_at = self.known.get(key) if attempt is None else attempt.placed_at
        adopted = attempt is not None and any(p.pod_uid == pod.uid for p in attempt.placements)
        return not adopted and (placed_at is None or is_forgotten(pod, placed_at))

    def unclaimed(self, books: Books) -> set[AttemptKey]:
        """Attempts that pods tell of, and no row."""
        return {
            key
            for key, placed_at in self.known.items()
            if placed_at is None and books.view.pods_of(key)
        }

    def _ask(self, books: Books, keys: set[AttemptKey]) -> None:
        unknown = sorted(keys - books.ledger.attempts.keys() - self.known.keys())
        for start in range(0, len(unknown), IDS_PER_QUERY):
            part = unknown[start : start + IDS_PER_QUERY]
            rows = Attempt.objects.filter(job_id__in={job for job, _number in part})
            found = {(job, number): at for job, number, at in rows.values_list(*_KEY_AND_TIME)}
            self.known.update({key: found.get(key) for key in part})


def _is_placed(books: Books, pod: PodSeen, key: AttemptKey | None) -> bool:
    attempt = books.ledger.attempts.get(key) if key is not None else None
    return attempt is not None and any(
        p.pod_uid == pod.uid and p.released_at is None for p in attempt.placements
    )
