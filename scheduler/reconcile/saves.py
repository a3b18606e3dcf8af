"""Checkpoints that a pod's annotation tells of, from trainers that cannot call Muster: somebody who watches them writes

    muster.dev/checkpoint: {"step": 1200, "at": "2027-01-12T02:00:00Z", "uri": "s3://…"}

on any pod of the attempt. Called by `reconcile.tick` with the pods that have changed. `at` is needed: without it an
annotation that is read again would be a new save.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.common.errors import ConflictError, InvalidError
from queues.models import Attempt
from scheduler.kube.seen import PodSeen
from scheduler.reconcile.books import Books
from scheduler.reconcile.view import AttemptKey
from scheduler.services.attempt_signs import note_checkpoint

logger = logging.getLogger(__name__)
ANNOTATION = "muster.dev/checkpoint"
LONGEST = 2_000
KEPT = 10_000


@dataclass(slots=True)
class SaveReader:
    """Remembers by pod what it has read, so that a pod that changes otherwise costs nothing."""

    _read: dict[str, str] = field(default_factory=dict)

    def take(self, books: Books, changed: Mapping[str, AttemptKey | None], now: datetime) -> None:
        """Note the saves that these pods tell of anew, in the caller's transaction. changed: by uid, whose they are."""
        for uid, key in changed.items():
            pod = books.view.pods.get(uid)
            text = pod.annotations.get(ANNOTATION, "") if pod else ""
            if pod and key and text and self._read.get(uid) != text:
                self._remember(uid, text)
                _note(books, key, pod, text, now)

    def _remember(self, uid: str, text: str) -> None:
        if len(self._read) >= KEPT:
            self._read.clear()
        self._read[uid] = text


def _note(books: Books, key: AttemptKey, pod: PodSeen, text: str, now: datetime) -> None:
    life, sent = books.ledger.attempts.get(key), _parsed(text)
    mine = life is not None and any(p.pod_uid == pod.uid for p in life.placements)
    if life is None or not mine or sent is None:
        logger.warning("Pod %s: %s cannot be read, or is of no attempt", pod.name, ANNOTATION)
        return
    attempt = Attempt.objects.select_related("job__tenant").get(pk=life.id)
    try:
        note_checkpoint(attempt, sent, now)
    except InvalidError as error:
        logger.warning("Pod %s: %s: %s", pod.name, ANNOTATION, error.detail)
    except ConflictError:
        pass  # it has ended meanwhile


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text[: LONGEST + 1])
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("at") else None
