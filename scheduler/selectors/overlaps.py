"""Windows that overlap: other windows on some of the same nodes at the same time.

That is allowed (a reservation may hold nodes that are maintained one day); the preview, the answer and the page say it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queues.models import Cluster
from queues.selectors.answers import time_text
from scheduler.maintenance.recurrence import Span
from scheduler.maintenance.selection import selector_of
from scheduler.models import MaintenanceWindow
from scheduler.selectors.windows import (
    HORIZON,
    node_looks,
    spans_of,
    window_answers,
    windows_in_force,
)
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class Overlap:
    """The first time that another window shares with this one. nodes: how many both mean today."""

    window: MaintenanceWindow
    starts_at: datetime
    ends_at: datetime
    nodes: int

    def answer(self) -> dict[str, Any]:
        """As REST tells it."""
        return {
            "window": self.window.pk,
            "title": self.window.title,
            "kind": self.window.kind,
            "starts_at": time_text(self.starts_at),
            "ends_at": time_text(self.ends_at),
            "nodes": self.nodes,
        }


def overlaps_of(row: MaintenanceWindow, now: datetime) -> list[Overlap]:
    """Windows in force that overlap with this one within the horizon, by time. The row need not be stored.

    Two queries.
    """
    return Overlaps(row.cluster, now).of(row)


def full_answers(
    actor: Actor, rows: Sequence[MaintenanceWindow], now: datetime, *, most: int = 5
) -> list[dict[str, Any]]:
    """`window_answers`, each with the `overlaps` of its window. Two queries more a cluster."""
    by_cluster = {row.cluster_id: row.cluster for row in rows}
    known = {pk: Overlaps(cluster, now) for pk, cluster in by_cluster.items()}
    return [
        answer | {"overlaps": [each.answer() for each in known[row.cluster_id].of(row)]}
        for row, answer in zip(rows, window_answers(actor, rows, now, most=most), strict=True)
    ]


class Overlaps:
    """The windows of one cluster, to compare some with all. Spans are worked out only where nodes are shared."""

    def __init__(self, cluster: Cluster, now: datetime) -> None:
        self._now = now
        self._looks = node_looks(cluster)
        self._all = {row.pk: row for row in windows_in_force(cluster)}
        self._nodes = {pk: self._meant(row) for pk, row in self._all.items()}
        self._spans: dict[int, Sequence[Span]] = {}

    def of(self, row: MaintenanceWindow) -> list[Overlap]:
        """As `overlaps_of`."""
        if row.cancelled_at is not None:
            return []
        nodes = self._nodes.get(row.pk) or self._meant(row)
        found = []
        own: Sequence[Span] | None = None
        for pk, other in self._all.items():
            shared = nodes & self._nodes[pk]
            if pk == row.pk or not shared:
                continue
            own = self._ahead(row) if own is None else own
            both = first_shared(own, self._ahead(other))
            if both is not None:
                found.append(Overlap(other, both.starts_at, both.ends_at, len(shared)))
        return sorted(found, key=lambda each: (each.starts_at, each.window.pk))

    def _meant(self, row: MaintenanceWindow) -> frozenset[str]:
        return selector_of(row.nodes).of(self._looks)

    def _ahead(self, row: MaintenanceWindow) -> Sequence[Span]:
        if row.pk is None:
            return spans_of(row, self._now, self._now + HORIZON)
        if row.pk not in self._spans:
            self._spans[row.pk] = spans_of(row, self._now, self._now + HORIZON)
        return self._spans[row.pk]


def first_shared(these: Sequence[Span], those: Sequence[Span]) -> Span | None:
    """The first time that both hold; None where they never meet."""
    ours, theirs = (sorted(spans, key=lambda s: s.starts_at) for spans in (these, those))
    i = j = 0
    while i < len(ours) and j < len(theirs):
        starts = max(ours[i].starts_at, theirs[j].starts_at)
        ends = min(ours[i].ends_at, theirs[j].ends_at)
        if starts < ends:
            return Span(starts, ends)
        if ours[i].ends_at <= theirs[j].ends_at:
            i += 1
        else:
            j += 1
    return None
