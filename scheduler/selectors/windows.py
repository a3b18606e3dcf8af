"""Maintenance windows as the planner, pages and the API read them.

`windows_of` is for the planner: every occurrence ahead, with the nodes it means now. Everyone who is signed in sees
windows; whom a reservation admits only where they may see that tenant (`window_answer`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import QuerySet

from queues.models import Cluster
from queues.selectors.answers import time_text
from queues.selectors.jobs import jobs_visible_to
from queues.selectors.queues import queues_visible_to
from scheduler.core.inputs.cluster import Crossing as CoreCrossing
from scheduler.core.inputs.cluster import Window
from scheduler.core.inputs.cluster import WindowKind as CoreKind
from scheduler.maintenance.ics import CalendarEvent, calendar_text
from scheduler.maintenance.recurrence import Recurrence, Span
from scheduler.maintenance.selection import NodeLooks, selector_of
from scheduler.models import MaintenanceWindow, Node, Occurrence, OccurrenceState, WindowKind
from scheduler.selectors.asks import queue_name
from tenants.access import Actor
from tenants.selectors import tenants_visible_to

Json = dict[str, Any]
# A daily rule for a year; beyond that nothing is planned.
MOST_SPANS = 400
# The planner is told of occurrences this far ahead, unless it asks for another horizon.
HORIZON = timedelta(days=366)
# States after which an occurrence keeps nobody off.
ENDED = frozenset({OccurrenceState.OVER, OccurrenceState.CANCELLED})
BEFORE_DRAINING = frozenset({OccurrenceState.PLANNED, OccurrenceState.NOTICED})
_STEPS = ("noticed_at", "draining_at", "empty_at", "opened_at", "checking_at", "over_at")


def windows_of(cluster: Cluster, now: datetime, horizon: timedelta = HORIZON) -> tuple[Window, ...]:
    """The planner's windows that are not over and begin within `horizon`, by start. Four queries.

    Read again when an event `window.…` or `node.…` of the cluster says so, and once an hour, since the horizon moves.
    """
    rows = list(windows_in_force(cluster))
    if not rows:
        return ()
    looks = node_looks(cluster)
    known = _known(rows)
    found = []
    for row in rows:
        nodes = selector_of(row.nodes).of(looks)
        for span in spans_of(row, now, now + horizon):
            occurrence = known.get((row.pk, span.starts_at))
            if occurrence is None or occurrence.state not in ENDED:
                found.append(_window(row, span, _all_nodes(nodes, occurrence), occurrence))
    return tuple(sorted(found, key=lambda window: (window.starts_at, window.id)))


def windows_in_force(cluster: Cluster) -> QuerySet[MaintenanceWindow]:
    """Windows of a cluster that are not cancelled."""
    return MaintenanceWindow.objects.filter(cluster=cluster, cancelled_at__isnull=True).order_by(
        "pk"
    )


def recurrence_of(row: MaintenanceWindow) -> Recurrence:
    """When a window happens, its exceptions kept."""
    return Recurrence(
        Span(row.starts_at, row.ends_at), ZoneInfo(row.time_zone), row.rrule, exceptions_of(row)
    )


def exceptions_of(row: MaintenanceWindow) -> dict[datetime, Span | None]:
    """Where single occurrences were moved to, by their start by the rule; None: skipped."""
    found: dict[datetime, Span | None] = {}
    for key, what in (row.exceptions or {}).items():
        at = datetime.fromisoformat(key)
        starts, ends = what.get("starts_at"), what.get("ends_at")
        found[at] = (
            Span(datetime.fromisoformat(starts), datetime.fromisoformat(ends), at)
            if starts and ends
            else None
        )
    return found


def spans_of(row: MaintenanceWindow, after: datetime, before: datetime) -> list[Span]:
    """A window's occurrences that end after `after` and start before `before`, at most MOST_SPANS."""
    spans = recurrence_of(row).spans(after, before)
    return [span for _number, span in zip(range(MOST_SPANS), spans, strict=False)]


def latest_of(row: MaintenanceWindow, span: Span) -> datetime | None:
    """When jobs leave anyway in this occurrence."""
    return None if row.latest_at is None else span.starts_at + (row.latest_at - row.starts_at)


def node_looks(cluster: Cluster) -> list[NodeLooks]:
    """What selectors see of the cluster's nodes."""
    rows = Node.objects.filter(cluster=cluster, gone_at__isnull=True)
    return [
        NodeLooks(name, domains, labels, flavor or "")
        for name, domains, labels, flavor in rows.values_list(
            "name", "domains", "labels", "flavor__name"
        )
    ]


def _known(rows: Iterable[MaintenanceWindow]) -> dict[tuple[int, datetime], Occurrence]:
    found = Occurrence.objects.filter(window__in=[row.pk for row in rows])
    return {(each.window_id, each.starts_at): each for each in found}


def _all_nodes(now: frozenset[str], occurrence: Occurrence | None) -> frozenset[str]:
    """What the selector means now, and what was drained though it no longer does."""
    return now | frozenset(occurrence.nodes) if occurrence else now


def _crossing(row: MaintenanceWindow, occurrence: Occurrence | None) -> CoreCrossing:
    """Once the nodes drain nobody is placed across the start any more: who has left would come straight back."""
    drains = occurrence is not None and occurrence.state not in BEFORE_DRAINING
    return CoreCrossing.NEVER if drains else CoreCrossing(row.crossing)


def _window(
    row: MaintenanceWindow, span: Span, nodes: frozenset[str], occurrence: Occurrence | None
) -> Window:
    admits: Mapping[str, Sequence[str]] = row.admits or {}
    reserved = row.kind == WindowKind.RESERVED
    return Window(
        id=f"{row.pk}@{span.starts_at:%Y%m%dT%H%M%SZ}",
        starts_at=span.starts_at.timestamp(),
        ends_at=span.ends_at.timestamp(),
        nodes=nodes,
        kind=CoreKind(row.kind),
        crossing=_crossing(row, occurrence),
        admits_tenants=frozenset(admits.get("tenants", ())),
        admits_queues=frozenset(map(_planner_name, admits.get("queues", ()))),
        admits_jobs=frozenset(admits.get("jobs", ())),
        spare=reserved and not any(admits.get(key) for key in ("tenants", "queues", "jobs")),
        version=row.version,
    )


def _planner_name(key: str) -> str:
    """A queue as the planner names it, from `tenant.queue`."""
    tenant, _dot, name = key.partition(".")
    return queue_name(tenant, name)


# --- for people ---


def windows_visible_to(_actor: Actor) -> QuerySet[MaintenanceWindow]:
    """All windows: everyone who is signed in plans around them. Whom they admit is `window_answers`' matter."""
    return MaintenanceWindow.objects.select_related("cluster")


def window_answers(
    actor: Actor, rows: Sequence[MaintenanceWindow], now: datetime, *, most: int = 5
) -> list[Json]:
    """The contract's answers, with what goes on and the next `most` occurrences of each."""
    seen = _admits_seen(actor, rows)
    stored = _stored_occurrences(rows)
    looks = {row.cluster_id: node_looks(row.cluster) for row in rows}
    return [
        _answer(row, seen)
        | {
            "node_count": len(selector_of(row.nodes).of(looks[row.cluster_id])),
            "occurrences": _occurrences(row, stored[row.pk], now, most),
        }
        for row in rows
    ]


def _answer(row: MaintenanceWindow, seen: "_Seen") -> Json:
    return {
        "id": row.pk,
        "version": row.version,
        "title": row.title,
        "cluster": row.cluster.name,
        "kind": row.kind,
        "starts_at": time_text(row.starts_at),
        "ends_at": time_text(row.ends_at),
        "time_zone": row.time_zone,
        "rrule": row.rrule or None,
        "nodes": row.nodes,
        "crossing": row.crossing,
        "running_jobs": row.running_jobs,
        "latest_at": time_text(row.latest_at),
        "notice_minutes": row.notice_minutes,
        "admits": seen.of(row.admits or {}),
        "exceptions": [
            {"occurrence": key, **row.exceptions[key]} for key in sorted(row.exceptions or {})
        ],
        "by": row.created_by,
        "created_at": time_text(row.created_at),
        "changed_by": row.changed_by,
        "changed_at": time_text(row.changed_at),
        "cancelled_by": row.cancelled_by or None,
        "cancelled_at": time_text(row.cancelled_at),
    }


def occurrence_answer(each: Occurrence, by_rule: datetime) -> Json:
    """One occurrence and how far it is. by_rule: its start by the rule, by which it is known."""
    return {
        "occurrence": time_text(by_rule),
        "moved": by_rule != each.starts_at,
        "starts_at": time_text(each.starts_at),
        "ends_at": time_text(each.ends_at),
        "state": each.state,
        "latest_at": time_text(each.latest_at),
        "expected_empty_at": time_text(each.expected_empty_at),
        **{step: time_text(getattr(each, step)) for step in _STEPS},
        "nodes": list(each.nodes),
        "checks": dict(each.checks),
    }


def _stored_occurrences(rows: Iterable[MaintenanceWindow]) -> dict[int, list[Occurrence]]:
    found: dict[int, list[Occurrence]] = defaultdict(list)
    for each in Occurrence.objects.filter(window__in=[row.pk for row in rows]).order_by(
        "starts_at"
    ):
        found[each.window_id].append(each)
    return found


def _occurrences(
    row: MaintenanceWindow, stored: Sequence[Occurrence], now: datetime, most: int
) -> list[Json]:
    """What goes on, what comes, and the last one that is over."""
    known = {each.starts_at: each for each in stored}
    spans = [] if row.cancelled_at else spans_of(row, now, now + HORIZON)
    ahead = [
        known.get(span.starts_at)
        or Occurrence(
            window=row,
            starts_at=span.starts_at,
            ends_at=span.ends_at,
            latest_at=latest_of(row, span),
        )
        for span in spans[:most]
    ]
    shown = {each.starts_at: each for each in ahead}
    going = [each for each in stored if each.state not in {*ENDED, OccurrenceState.PLANNED}]
    shown |= {each.starts_at: each for each in going}
    over = [each for each in stored if each.state in ENDED]
    shown |= {each.starts_at: each for each in over[-1:]}
    moved = moved_from(row)
    return [occurrence_answer(shown[at], moved.get(at, at)) for at in sorted(shown)]


def moved_from(row: MaintenanceWindow) -> dict[datetime, datetime]:
    """Starts of occurrences that were moved → their starts by the rule."""
    return {span.starts_at: at for at, span in exceptions_of(row).items() if span is not None}


@dataclass(frozen=True, slots=True)
class _Seen:
    """Which of those that reservations admit the reader may know."""

    tenants: frozenset[str]
    queues: frozenset[str]
    jobs: frozenset[str]

    def of(self, admits: Mapping[str, Sequence[str]]) -> Json:
        """The part that may be seen, and how many are hidden."""
        shown = {
            "tenants": [name for name in admits.get("tenants", ()) if name in self.tenants],
            "queues": [name for name in admits.get("queues", ()) if name in self.queues],
            "jobs": [name for name in admits.get("jobs", ()) if name in self.jobs],
        }
        all_of_them = sum(len(names) for names in admits.values())
        return {**shown, "hidden": all_of_them - sum(map(len, shown.values()))}


def _admits_seen(actor: Actor, rows: Iterable[MaintenanceWindow]) -> _Seen:
    named: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for key, names in (row.admits or {}).items():
            named[key] |= set(names)
    return _Seen(
        tenants=_values(tenants_visible_to(actor).filter(slug__in=named["tenants"]), "slug"),
        queues=frozenset(
            f"{tenant}.{name}"
            for tenant, name in queues_visible_to(actor)
            .filter(tenant__slug__in={key.partition(".")[0] for key in named["queues"]})
            .values_list("tenant__slug", "name")
        ),
        jobs=_values(jobs_visible_to(actor).filter(pk__in=named["jobs"]), "pk"),
    )


def _values(rows: "QuerySet[Any]", name: str) -> frozenset[str]:
    return frozenset(rows.values_list(name, flat=True))


# --- the calendar feed ---

FEED_PAST = timedelta(days=30)


def calendar_of(actor: Actor, cluster: str, address: str, now: datetime) -> str:
    """All occurrences of the last 30 days and the next year as an iCalendar file; of one cluster where named."""
    rows = windows_visible_to(actor).order_by("pk")
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    found = list(rows)
    stored = _stored_occurrences(found)
    events = [
        event for row in found for event in _calendar_events(row, stored[row.pk], address, now)
    ]
    return calendar_text("Muster", sorted(events, key=lambda event: (event.starts_at, event.uid)))


def _calendar_events(
    row: MaintenanceWindow, stored: Sequence[Occurrence], address: str, now: datetime
) -> list[CalendarEvent]:
    """One for each start by the rule, which stays its name wherever it is moved; what is off is said to be."""
    told = _told_spans(row, stored, now)
    off_from = row.cancelled_at
    return [
        CalendarEvent(
            uid=f"window-{row.pk}-{at:%Y%m%dT%H%M%SZ}@muster",
            starts_at=span.starts_at,
            ends_at=span.ends_at,
            summary=row.title,
            description=_description(row),
            location=row.cluster.name,
            changed_at=row.cancelled_at or row.changed_at,
            sequence=row.version - 1,
            cancelled=off or (off_from is not None and span.starts_at >= off_from),
            url=f"{address}{row.pk}/",
        )
        for at, (span, off) in sorted(told.items())
    ]


def _told_spans(
    row: MaintenanceWindow, stored: Sequence[Occurrence], now: datetime
) -> dict[datetime, tuple[Span, bool]]:
    """By start by the rule: when it is, and whether it is off. Rows know better what has happened."""
    since, until = now - FEED_PAST, now + HORIZON
    found = {span.by_rule: (span, False) for span in spans_of(row, since, until)}
    recurrence = recurrence_of(row)
    for at, moved in recurrence.exceptions.items():
        skipped = recurrence.by_rule(at) if moved is None else None
        if skipped is not None and since < skipped.ends_at and at < until:
            found[at] = (skipped, True)
    moved_here = moved_from(row)
    for each in stored:
        at = moved_here.get(each.starts_at, each.starts_at)
        stands = found[at][0].starts_at == each.starts_at if at in found else each.ends_at > since
        skips = at in found and found[at][1]
        if stands and not skips:
            span = Span(each.starts_at, each.ends_at, moved_here.get(each.starts_at))
            found[at] = (span, each.state == OccurrenceState.CANCELLED)
    return found


def _description(row: MaintenanceWindow) -> str:
    """What is meant, without whom a reservation admits."""
    nodes = row.nodes
    named = [f"{domain['level']} {domain['name']}" for domain in nodes.get("domains") or ()]
    named += list(nodes.get("names") or ())[:20]
    named += [f"{key}={value}" for key, value in sorted((nodes.get("labels") or {}).items())]
    named += [nodes["flavor"]] if nodes.get("flavor") else []
    return f"{row.get_kind_display()}: {', '.join(named)}"
