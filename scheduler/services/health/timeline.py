"""The fault timeline of a node: one row a line, and an event in the log, so that pages and planner hear of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.common import log
from queues.models import Attempt, Cluster
from scheduler.health.findings import Finding
from scheduler.models import HealthEvent

HEALTH = "health"
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """A job that a fault has met. how: `on_gpu` (by the exporter's pod labels), or `possibly` (nobody can say)."""

    attempt: Attempt
    how: str
    nodes: frozenset[str] = frozenset()

    def answer(self, *, evicted: bool) -> dict[str, Any]:
        """As the timeline keeps it."""
        return {
            "job": self.attempt.job_id,
            "tenant": self.attempt.job.tenant.slug,
            "attempt": self.attempt.number,
            "how": self.how,
            "evicted": evicted,
        }


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the timeline; what is empty is left out."""

    kind: str
    gpu: str = ""
    before: str = ""
    after: str = ""
    cause: str = ""
    evidence: str = ""
    action: str = ""
    next_step: str = ""
    rule: str = ""
    actor: str = HEALTH
    finding: Finding | None = None
    jobs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def write_lines(cluster: Cluster, node: str, lines: Iterable[Line], now: datetime) -> None:
    """Add lines to a node's timeline, and one event to the log. Joins the caller's `log.writing()`."""
    rows = [_row(cluster, node, line, now) for line in lines]
    if not rows:
        return
    with log.writing():
        HealthEvent.objects.bulk_create(rows)
        log.record(*(_event(cluster, row, now) for row in rows))


def _row(cluster: Cluster, node: str, line: Line, now: datetime) -> HealthEvent:
    finding = line.finding
    row = HealthEvent(
        cluster=cluster,
        node=node,
        gpu=line.gpu,
        at=now,
        kind=line.kind,
        rule=line.rule or (finding.rule if finding else ""),
        before=line.before,
        after=line.after,
        cause=(line.cause or (finding.cause if finding else ""))[:LONGEST],
        evidence=line.evidence or (finding.evidence if finding else ""),
        jobs=list(line.jobs),
        action=line.action[:LONGEST],
        next_step=line.next_step[:LONGEST],
        actor=line.actor,
    )
    if finding is not None:
        row.signal, row.xid = finding.source.value, finding.xid
        row.signal_age_seconds = max(0.0, (now - finding.at).total_seconds())
    return row


def _event(cluster: Cluster, row: HealthEvent, now: datetime) -> log.NewEvent:
    """Everyone who is signed in sees node events: jobs, which not everyone may know of, stay in the timeline."""
    numbers: dict[str, Any] = {
        "what": row.kind,
        "gpu": row.gpu,
        "before": row.before,
        "after": row.after,
        "rule": row.rule,
        "action": row.action,
        "next_step": row.next_step,
    }
    if row.signal:
        numbers |= {"signal": row.signal, "signal_age_seconds": row.signal_age_seconds}
    if row.xid is not None:
        numbers["xid"] = row.xid
    return log.NewEvent(
        kind="node.health",
        at=now,
        cluster=cluster.name,
        node=row.node,
        actor=row.actor,
        message=row.cause or row.action,
        numbers={name: value for name, value in numbers.items() if value not in ("", None)},
    )
