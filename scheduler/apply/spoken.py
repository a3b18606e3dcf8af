"""What the planner has said so far, in memory, so that a cycle writes only what is new (rule 6).

Owned by the loop, one a cluster; read from rows when a worker takes a cluster over.
"""

from dataclasses import dataclass, field
from typing import Any

from queues.models import Estimate, Verdict
from scheduler.core.outputs import Booking
from scheduler.core.reasons import Reason
from scheduler.models import Booking as BookingRow

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpokenVerdict:
    """A verdict row's content: reasons as stored, the dominant one first, and the class's first job."""

    reasons: tuple[Json, ...]
    first_job: str

    @property
    def code(self) -> str:
        """The dominant reason's code."""
        return str(self.reasons[0]["code"])


@dataclass(frozen=True, slots=True)
class ToldRange:
    """The range of a start as people were told, in seconds since the epoch."""

    p50: float
    p90: float


@dataclass(slots=True)
class Spoken:
    """verdicts by class key; told ranges of starts by job; bookings by job."""

    verdicts: dict[str, SpokenVerdict] = field(default_factory=dict)
    estimates: dict[str, ToldRange] = field(default_factory=dict)
    bookings: dict[str, Booking] = field(default_factory=dict)


def read_spoken(cluster_id: int) -> Spoken:
    """Read it back from the rows of a cluster."""
    verdicts = Verdict.objects.filter(cluster_id=cluster_id)
    estimates = Estimate.objects.filter(job__queue__cluster_id=cluster_id)
    bookings = BookingRow.objects.filter(cluster_id=cluster_id)
    return Spoken(
        verdicts={
            key: SpokenVerdict(tuple(reasons), first_job)
            for key, reasons, first_job in verdicts.values_list("class_key", "reasons", "first_job")
        },
        estimates={
            job: ToldRange(p50.timestamp(), (p90 or p50).timestamp())
            for job, p50, p90 in estimates.values_list("job_id", "p50", "p90")
        },
        bookings={row.job_id: _booking(row) for row in bookings.select_related("flavor")},
    )


def _booking(row: BookingRow) -> Booking:
    return Booking(
        job=row.job_id,
        class_key="",
        flavor=row.flavor.name,
        starts_at=row.starts_at.timestamp(),
        until=None if row.until is None else row.until.timestamp(),
        nodes=tuple((name, gpus) for name, gpus in row.nodes),
    )


def reason_json(reason: Reason) -> Json:
    """A reason as verdict rows and answers have it."""
    return {"code": reason.code.value, "numbers": dict(reason.numbers)}
