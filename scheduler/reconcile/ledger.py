"""The rows that the cluster process works on, kept in memory: open attempts, and ended ones whose
pods are not gone yet. Read by `tick`; re-read by job when the event log says that others changed it.

Plain dataclasses, not models: ten thousand of them are looked at often and written seldom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from queues.models import Attempt, Placement
from scheduler.reconcile.story import End, end_of
from scheduler.reconcile.view import AttemptKey

IDS_PER_QUERY = 500


@dataclass(slots=True)
class PlacementLife:
    """A `Placement` row. `role` is its role's name; the rest is as in the model."""

    id: int
    attempt_id: int
    role: str
    replica: int
    rank: int
    node: str
    gpus: int
    try_number: int
    pod_name: str
    pod_uid: str
    created_at: datetime | None
    bound_at: datetime | None
    delete_requested_at: datetime | None
    delete_sent_at: datetime | None
    pod_phase: str
    waiting_reason: str
    waiting_since: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    end_reason: str
    message: str
    released_at: datetime | None
    gone_at: datetime | None

    @property
    def has_pod(self) -> bool:
        """True from the pod's creation until it is seen gone."""
        return bool(self.pod_uid) and self.gone_at is None

    @property
    def end(self) -> End | None:
        """How its pod ended, by whose doing; None while it has not."""
        return None if self.ended_at is None else end_of(self.end_reason, self.exit_code)

    @property
    def succeeded(self) -> bool:
        """True when its program exited with 0."""
        return self.end is End.EXIT and self.exit_code == 0


@dataclass(slots=True)
class AttemptLife:
    """An `Attempt` row with what is needed of its job. Times in UTC, durations in seconds."""

    id: int
    number: int
    job_id: str
    job8: str
    tenant: str
    phase: str
    decides: str
    max_runtime_seconds: int | None
    grace_seconds: int
    checkpoint_grace_seconds: int | None
    checkpoint_notice: str
    placed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    stop_cause: str
    stop_requested_at: datetime | None
    stop_grace_seconds: int | None
    unknown_since: datetime | None
    service_created_at: datetime | None
    last_checkpoint_at: datetime | None
    message: str
    placements: list[PlacementLife] = field(default_factory=list)

    @property
    def key(self) -> AttemptKey:
        """As the labels of its pods say."""
        return self.job_id, self.number

    @property
    def namespace(self) -> str:
        """Where its pods are."""
        return f"muster-{self.tenant}"

    @property
    def service(self) -> str:
        """The name of its headless Service and Secret."""
        return f"{self.job8}-{self.number}"


_PLACEMENT_FIELDS = tuple(f.name for f in fields(PlacementLife))
_PLACEMENT_COLUMNS = tuple("role__name" if n == "role" else n for n in _PLACEMENT_FIELDS)
_FROM_JOB = (
    "job8",
    "phase",
    "decides",
    "max_runtime_seconds",
    "grace_seconds",
    "checkpoint_grace_seconds",
    "checkpoint_notice",
)
_ATTEMPT_FIELDS = tuple(f.name for f in fields(AttemptLife) if f.name != "placements")
_ATTEMPT_COLUMNS = tuple(
    "job__tenant__slug" if n == "tenant" else f"job__{n}" if n in _FROM_JOB else n
    for n in _ATTEMPT_FIELDS
)


@dataclass(slots=True)
class Ledger:
    """Attempts of one cluster by key. `seq` is the event up to which it is true."""

    cluster_id: int
    attempts: dict[AttemptKey, AttemptLife] = field(default_factory=dict)
    seq: int = 0
    _by_node: defaultdict[str, set[AttemptKey]] = field(default_factory=lambda: defaultdict(set))
    _by_job: defaultdict[str, set[AttemptKey]] = field(default_factory=lambda: defaultdict(set))

    def __iter__(self) -> Iterator[AttemptLife]:
        return iter(self.attempts.values())

    def on_node(self, node: str) -> frozenset[AttemptKey]:
        """Attempts with a placement on that node."""
        return frozenset(self._by_node.get(node, ()))

    def load(self) -> None:
        """Read everything again."""
        self.attempts.clear()
        self._by_node.clear()
        self._by_job.clear()
        self._take(_read(self._kept()))

    def reload(self, job_ids: Collection[str]) -> set[AttemptKey]:
        """Read the attempts of these jobs again; the keys concerned, those that went included."""
        concerned: set[AttemptKey] = set()
        listed = sorted(job_ids)
        for start in range(0, len(listed), IDS_PER_QUERY):
            part = listed[start : start + IDS_PER_QUERY]
            for job_id in part:
                concerned |= self._drop(job_id)
            concerned |= self._take(_read(self._kept().filter(job_id__in=part)))
        return concerned

    def _kept(self) -> QuerySet[Attempt]:
        # What is gone is released too, in one transaction: asking for one of them is enough.
        left = Placement.objects.filter(attempt=OuterRef("pk"), gone_at__isnull=True)
        return Attempt.objects.filter(cluster_id=self.cluster_id).filter(
            Q(ended_at__isnull=True) | Exists(left) | Q(service_created_at__isnull=False)
        )

    def _take(self, attempts: Iterable[AttemptLife]) -> set[AttemptKey]:
        keys: set[AttemptKey] = set()
        for attempt in attempts:
            self.attempts[attempt.key] = attempt
            keys.add(attempt.key)
            self._by_job[attempt.job_id].add(attempt.key)
            for placement in attempt.placements:
                self._by_node[placement.node].add(attempt.key)
        return keys

    def _drop(self, job_id: str) -> set[AttemptKey]:
        keys = self._by_job.pop(job_id, set())
        for key in keys:
            for placement in self.attempts.pop(key).placements:
                self._by_node[placement.node].discard(key)
        return keys


def _read(attempts: QuerySet[Attempt]) -> list[AttemptLife]:
    found = {row[0]: _attempt(row) for row in attempts.values_list(*_ATTEMPT_COLUMNS)}
    ids = sorted(found)
    for start in range(0, len(ids), IDS_PER_QUERY):
        part = ids[start : start + IDS_PER_QUERY]
        rows = Placement.objects.filter(attempt_id__in=part).order_by("attempt_id", "rank")
        for row in rows.values_list(*_PLACEMENT_COLUMNS):
            placement = PlacementLife(*row)
            found[placement.attempt_id].placements.append(placement)
    return list(found.values())


def _attempt(row: tuple[Any, ...]) -> AttemptLife:
    return AttemptLife(*row)
