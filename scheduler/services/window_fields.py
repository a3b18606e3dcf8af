"""What a person may say of a maintenance window, read and checked; every error names its field."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common.errors import ErrorCollector
from queues.contract.reading import Reader
from queues.models import Cluster, Flavor, Job, Level, Queue
from scheduler.maintenance.recurrence import RecurrenceError, Span, check_rule, zone_of
from scheduler.maintenance.selection import NodeLooks, NodeSelector, selector_of
from scheduler.models import Crossing, MaintenanceWindow, RunningJobs, WindowKind
from scheduler.selectors.windows import node_looks
from tenants.models import Tenant

SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=366)
FURTHEST = timedelta(days=2 * 366)
MOST_NOTICE_MINUTES = 14 * 24 * 60
# How long before the start jobs may be made to leave.
EARLIEST_LATEST = timedelta(days=7)
MOST_NAMES = 5_000
SENT = (
    *("title", "kind", "starts_at", "ends_at", "time_zone", "rrule", "nodes", "crossing"),
    *("running_jobs", "latest_at", "notice_minutes", "admits"),
)


@dataclass(frozen=True, slots=True)
class WindowFields:
    """A window as asked; fields as in `MaintenanceWindow`."""

    title: str
    kind: str
    starts_at: datetime
    ends_at: datetime
    time_zone: str
    rrule: str
    nodes: dict[str, Any]
    crossing: str
    running_jobs: str
    latest_at: datetime | None
    notice_minutes: int
    admits: dict[str, list[str]]


def read_window(
    sent: Mapping[str, Any], cluster: Cluster, now: datetime, before: WindowFields | None = None
) -> WindowFields:
    """A whole window; with `before`, what was not sent stays as it was. Raises InvalidError with pointers."""
    errors = ErrorCollector()
    whole = {**as_sent(before), **sent} if before else sent
    reader = Reader(whole, "", errors)
    reader.take("cluster")
    fields = _read(reader, cluster, now)
    reader.finish()
    if not errors.found:
        _check_times(reader, fields, now, before)
        _check_latest(reader, fields)
        fields = _with_rule(reader, fields)
    errors.raise_if_any()
    return fields


def fields_of(row: MaintenanceWindow) -> WindowFields:
    """A stored window's."""
    return WindowFields(**{name: getattr(row, name) for name in SENT})


def as_sent(fields: WindowFields) -> dict[str, Any]:
    """The fields as JSON, as they would be sent."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value or None
        for name, value in asdict(fields).items()
    } | {"notice_minutes": fields.notice_minutes}


def _read(reader: Reader, cluster: Cluster, now: datetime) -> WindowFields:
    """All fields; where one is wrong something stands in for it, and the collector has the error."""
    reader.required("title", "starts_at", "ends_at", "nodes")
    kind = reader.choice("kind", WindowKind.MAINTENANCE, WindowKind.values)
    return WindowFields(
        title=" ".join(reader.text("title", longest=200).split()),
        kind=kind,
        starts_at=_whole_second(reader, "starts_at") or now,
        ends_at=_whole_second(reader, "ends_at") or now,
        time_zone=_read_zone(reader),
        rrule=reader.text("rrule", longest=300),
        nodes=read_nodes(reader, cluster),
        crossing=reader.choice("crossing", Crossing.CHECKPOINTABLE, Crossing.values),
        running_jobs=reader.choice("running_jobs", RunningJobs.CHECKPOINT, RunningJobs.values),
        latest_at=_whole_second(reader, "latest_at"),
        notice_minutes=reader.whole("notice_minutes", 60, most=MOST_NOTICE_MINUTES),
        admits=_read_admits(reader, kind, cluster),
    )


def _whole_second(reader: Reader, key: str) -> datetime | None:
    """A moment without its fraction of a second, which recurrence rules cannot say."""
    at = reader.moment(key)
    return None if at is None else at.replace(microsecond=0)


def _read_zone(reader: Reader) -> str:
    name = reader.text("time_zone", "UTC", longest=64)
    try:
        zone_of(name)
    except RecurrenceError as error:
        reader.fault("time_zone", error.code, str(error))
        return "UTC"
    return name


def read_nodes(reader: Reader, cluster: Cluster) -> dict[str, Any]:
    """The selector at key `nodes`: every name in it must exist, and it must mean at least one node today."""
    part = reader.object("nodes")
    if part is None:
        return {}
    looks = node_looks(cluster)
    found = {
        "names": _read_names(part, looks),
        "domains": _read_domains(part, cluster, looks),
        "labels": part.pairs("labels", most=20, key_rule=lambda _name: None),
        "flavor": _read_flavor(part, cluster),
    }
    part.finish()
    if part.errors.found:
        return found
    selector = selector_of(found)
    if selector.is_empty:
        reader.fault(
            "nodes",
            "required",
            _("must name nodes, domains, labels or a flavor; not the whole cluster"),
        )
    elif not selector.of(looks):
        reader.fault("nodes", "no_nodes", _("means no node of {name}").format(name=cluster.name))
    return found


def _read_names(part: Reader, looks: list[NodeLooks]) -> list[str]:
    names = part.texts("names", most=MOST_NAMES, longest=253)
    known = {node.name for node in looks}
    for index, name in enumerate(names):
        if name not in known:
            part.errors.add(f"{part.at('names')}/{index}", "unknown_node", _("is no node here"))
    return list(dict.fromkeys(names))


def _read_domains(part: Reader, cluster: Cluster, looks: list[NodeLooks]) -> list[dict[str, str]]:
    levels = tuple(Level.objects.filter(cluster=cluster).values_list("name", flat=True))
    found = []
    for each in part.objects("domains", most=500):
        each.required("level", "name")
        level = each.choice("level", "", levels)
        name = each.text("name", longest=63)
        each.finish()
        if level and name and not any(node.domains.get(level) == name for node in looks):
            each.fault("name", "unknown_domain", _("is no {level} here").format(level=level))
        found.append({"level": level, "name": name})
    return found


def _read_flavor(part: Reader, cluster: Cluster) -> str | None:
    name = part.text("flavor", longest=40)
    if name and not Flavor.objects.filter(cluster=cluster, name=name).exists():
        part.fault("flavor", "unknown_flavor", _("is no flavor of this cluster"))
    return name or None


def _read_admits(reader: Reader, kind: str, cluster: Cluster) -> dict[str, list[str]]:
    part = reader.object("admits")
    if part is None:
        return {}
    found = {
        key: list(part.texts(key, most=500, longest=200)) for key in ("tenants", "queues", "jobs")
    }
    part.take("hidden")  # an answer's own count, sent back
    part.finish()
    if kind != WindowKind.RESERVED and any(found.values()):
        reader.fault("admits", "not_reserved", _("only a reservation admits anybody"))
    _check_known(part, "tenants", found["tenants"], _tenants(found["tenants"]))
    _check_known(part, "queues", found["queues"], _queues(found["queues"], cluster))
    _check_known(part, "jobs", found["jobs"], _jobs(found["jobs"]))
    return found if any(found.values()) else {}


def _check_known(part: Reader, key: str, named: list[str], known: set[str]) -> None:
    for index, name in enumerate(named):
        if name not in known:
            part.errors.add(f"{part.at(key)}/{index}", "unknown", _("is not known here"))


def _tenants(slugs: list[str]) -> set[str]:
    return set(Tenant.objects.filter(slug__in=slugs).values_list("slug", flat=True))


def _queues(keys: list[str], cluster: Cluster) -> set[str]:
    slugs = {key.partition(".")[0] for key in keys}
    rows = Queue.objects.filter(cluster=cluster, tenant__slug__in=slugs)
    return {f"{slug}.{name}" for slug, name in rows.values_list("tenant__slug", "name")}


def _jobs(ids: list[str]) -> set[str]:
    return set(Job.objects.filter(pk__in=ids).values_list("pk", flat=True))


def _check_times(
    reader: Reader, fields: WindowFields, now: datetime, before: WindowFields | None
) -> None:
    length = fields.ends_at - fields.starts_at
    if length < SHORTEST:
        reader.fault("ends_at", "too_early", _("must be after starts_at"))
    elif length > LONGEST:
        reader.fault("ends_at", "too_late", _("must be within a year of starts_at"))
    if fields.starts_at > now + FURTHEST:
        reader.fault("starts_at", "too_late", _("must be within two years"))
    moved = before is None or fields.ends_at != before.ends_at
    if moved and not fields.rrule and fields.ends_at <= now:
        reader.fault("ends_at", "in_the_past", _("must not be in the past"))


def _check_latest(reader: Reader, fields: WindowFields) -> None:
    if fields.latest_at is None:
        return
    if not fields.starts_at - EARLIEST_LATEST <= fields.latest_at < fields.ends_at:
        message = _("must be before ends_at, and at most a week before starts_at")
        reader.fault("latest_at", "out_of_range", message)


def _with_rule(reader: Reader, fields: WindowFields) -> WindowFields:
    """The rule checked, and written in one way."""
    if not fields.rrule or reader.errors.found:
        return fields
    span = Span(fields.starts_at, fields.ends_at)
    try:
        rule = check_rule(fields.rrule, span, zone_of(fields.time_zone))
    except RecurrenceError as error:
        reader.fault("rrule", error.code, str(error))
        return fields
    return WindowFields(**{**asdict(fields), "rrule": rule})


def names_of(selector: NodeSelector, cluster: Cluster) -> frozenset[str]:
    """The nodes that a selector means today."""
    return selector.of(node_looks(cluster))
