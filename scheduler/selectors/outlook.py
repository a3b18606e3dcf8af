"""What the planner intends: windows, bookings, planned ends and holds on one axis of time. Called by the page Plan."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet, Sum

from queues.lifecycle import ACTIVE_PHASES
from queues.models import Attempt, Cluster, Job
from queues.selectors.jobs import jobs_visible_to
from scheduler.maintenance.selection import selector_of
from scheduler.models import Booking, Hold
from scheduler.selectors.windows import node_looks, spans_of, windows_in_force
from tenants.access import Actor

MOST_BOOKINGS = 40
MOST_RUNNING = 40
MOST_SPANS = 20


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that takes nodes for a while; ends_at None: never ends.

    kind: window, reserved, booking, running or stopping.
    """

    kind: str
    name: str
    key: str
    cluster: str
    nodes: int
    gpus: int
    starts_at: datetime
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """All bars that touch the time asked for, and how many bookings and holds belong to others."""

    windows: list[Bar]
    bookings: list[Bar]
    running: list[Bar]
    more_running: int
    hidden_bookings: int
    holds: list[Hold]
    hidden_holds: int


def outlook(
    actor: Actor, now: datetime, until: datetime, *, most_running: int = MOST_RUNNING
) -> Outlook:
    """What touches the time from now until then; jobs only where the actor may see them."""
    seen = jobs_visible_to(actor)
    bookings = Booking.objects.filter(starts_at__lt=until)
    holds = Hold.objects.filter(expires_at__gt=now)
    running = _running(seen)
    mine = _bookings(bookings.filter(job__in=seen))
    kept = holds.filter(job__in=seen).select_related("job", "cluster", "flavor")
    kept = kept.order_by("expires_at")[:MOST_BOOKINGS]
    return Outlook(
        windows=_windows(now, until),
        bookings=mine,
        running=running[:most_running],
        more_running=max(0, len(running) - most_running),
        hidden_bookings=bookings.exclude(job__in=seen).count(),
        holds=list(kept),
        hidden_holds=holds.exclude(job__in=seen).count(),
    )


def _windows(now: datetime, until: datetime) -> list[Bar]:
    found: list[Bar] = []
    for cluster in Cluster.objects.order_by("name"):
        rows = list(windows_in_force(cluster))
        looks = node_looks(cluster) if rows else []
        for row in rows:
            nodes = len(selector_of(row.nodes).of(looks))
            kind = "window" if row.kind == "maintenance" else "reserved"
            found += [
                Bar(kind, row.title, str(row.pk), cluster.name, nodes, 0, s.starts_at, s.ends_at)
                for s in spans_of(row, now, until)[:MOST_SPANS]
            ]
    return sorted(found, key=lambda bar: bar.starts_at)


def _bookings(rows: QuerySet[Booking]) -> list[Bar]:
    found = rows.select_related("job", "cluster").order_by("starts_at", "pk")[:MOST_BOOKINGS]
    return [
        Bar(
            "booking",
            row.job.name,
            row.job_id,
            row.cluster.name,
            len(row.nodes),
            sum(int(gpus) for _node, gpus in row.nodes),
            row.starts_at,
            row.until,
        )
        for row in found
    ]


def _running(seen: QuerySet[Job]) -> list[Bar]:
    """Active gangs by when they end at the latest; those without a limit last. One query."""
    open_ones = Attempt.objects.filter(
        Q(job__in=seen), job__phase__in=ACTIVE_PHASES, ended_at__isnull=True
    )
    rows = open_ones.select_related("job", "cluster").annotate(gpus=Sum("placements__gpus"))
    bars = [_run(attempt, int(attempt.gpus or 0)) for attempt in rows[:2_000]]
    far = datetime.max.replace(tzinfo=bars[0].starts_at.tzinfo) if bars else None
    return sorted(bars, key=lambda bar: (bar.ends_at or far, -bar.gpus, bar.key))


def _run(attempt: Attempt, gpus: int) -> Bar:
    job = attempt.job
    begun = attempt.started_at or attempt.placed_at
    limit = job.max_runtime_seconds
    ends = begun + timedelta(seconds=limit + job.grace_seconds) if limit else None
    kind = "stopping" if attempt.stop_cause else "running"
    return Bar(kind, job.name, job.pk, attempt.cluster.name, 0, gpus, begun, ends)
