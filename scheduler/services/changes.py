"""What would change if …: any change of a cluster as people send it, previewed by the planner, applied as previewed.

One list of changes, in order: {"kind": "submit", "job"}, {"kind": "quotas", "tenant", "quotas"},
{"kind": "drain", "nodes", "running_jobs", "reason"}, {"kind": "lose", "nodes"}, {"kind": "add", "like", "count"},
{"kind": "window", "window"}. Each is checked by the service that would make it, with the rights that it asks for.
Called by the API and pages.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector, FieldError, InvalidError
from queues.contract.reading import Reader
from queues.models import Cluster
from queues.services.jobs import submit_job
from queues.services.quotas import draft_quotas, set_quotas
from queues.services.validation import validate_job
from scheduler.maintenance.selection import selector_of
from scheduler.models import MaintenanceWindow, RunningJobs, WindowKind
from scheduler.selectors.asks import waiting_to_json
from scheduler.selectors.windows import HORIZON, node_looks, spans_of
from scheduler.services.drains import drain_nodes, read_drain
from scheduler.services.nodes import cluster_of
from scheduler.services.whatif import ask_change, quotas_body, simulated_job
from scheduler.services.window_fields import read_nodes, read_window
from scheduler.services.windows import create_window
from tenants.access import Actor, Right, require
from tenants.selectors import tenant_of

Json = dict[str, Any]
KINDS = ("submit", "quotas", "drain", "lose", "add", "window")
MOST_CHANGES = 20
MOST_ADDED = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change, valid. wire: what the planner is told. make: makes it so; None for what only fate can do."""

    kind: str
    wire: Json
    make: Callable[[datetime], object] | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes of one request, on one cluster."""

    cluster: Cluster
    listed: tuple[Change, ...] = field(default_factory=tuple)


def read_changes(actor: Actor, sent: Mapping[str, Any], now: datetime) -> Changes:
    """Read and check {"cluster", "changes"}. Raises InvalidError with pointers, ForbiddenError, NotVisibleError."""
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("cluster", "changes")
    name = reader.text("cluster", longest=40)
    parts = reader.objects("changes", most=MOST_CHANGES)
    reader.finish()
    kinds = []
    for part in parts:
        part.required("kind")
        kinds.append(part.choice("kind", KINDS[0], KINDS))
    errors.raise_if_any()
    cluster = cluster_of(name)
    raw = sent["changes"]
    listed = [
        _READ_BY[kind](_Reading(actor, cluster, now, number), raw[number])
        for number, kind in enumerate(kinds)
    ]
    if not listed:
        raise _invalid("/changes", "required", _("must name at least one change"))
    return Changes(cluster, tuple(listed))


def preview_changes(changes: Changes) -> Json:
    """What the planner says of them, all jobs named: hide them by `scheduler.services.whatif.shown_jobs`."""
    return ask_change(changes.cluster, [change.wire for change in changes.listed])


def apply_changes(
    actor: Actor,
    changes: Changes,
    plan_id: str,
    now: datetime,
    shown: Callable[[Json], Json] = lambda found: found,
) -> Json:
    """Make them so, all or none, if they still lead to the plan of that id; returns that plan.

    Raises ConflictError `plan_changed` with the new difference (as `shown` shows it) otherwise, and InvalidError for
    a change that can only be tried.
    """
    for number, change in enumerate(changes.listed):
        if change.make is None:
            raise _invalid(
                f"/changes/{number}/kind", "only_tried", _("can be tried, but not be made so")
            )
    found = preview_changes(changes)
    if found["plan_id"] != plan_id:
        raise ConflictError(
            _("The plan has changed since the preview."),
            code="plan_changed",
            hint=_("Look at the new difference, and apply its plan_id."),
            extra=shown(found),
        )
    with log.writing():
        for change in changes.listed:
            assert change.make is not None
            change.make(now)
    return found


# --- one kind each ---


@dataclass(frozen=True, slots=True)
class _Reading:
    """Who asks, where and when; the change's number in the list."""

    actor: Actor
    cluster: Cluster
    now: datetime
    number: int

    def inside(self, name: str, read: Callable[[], Any]) -> Any:
        """What `read` reads of the change's member `name`; pointers of errors lead there."""
        try:
            return read()
        except InvalidError as error:
            prefix = f"/changes/{self.number}" + (f"/{name}" if name else "")
            moved = tuple(
                FieldError(f"{prefix}{fault.pointer}", fault.code, fault.message)
                for fault in error.errors
            )
            raise InvalidError(error.detail, errors=moved) from error

    def reader(self, sent: Mapping[str, Any], errors: ErrorCollector) -> Reader:
        found = Reader(sent, "", errors)
        found.take("kind")
        return found


def _submit(at: _Reading, sent: Mapping[str, Any]) -> Change:
    job = _member(at, sent, "job")
    spec = at.inside("job", lambda: validate_job(at.actor, job, at.now))
    if spec.cluster != at.cluster.name:
        raise _invalid(
            f"/changes/{at.number}/job/queue", "other_cluster", _("is on another cluster")
        )
    wire = simulated_job(spec, at.actor.name, at.number, at.now)
    return Change(
        "submit",
        {"kind": "submit", "job": waiting_to_json(wire)},
        lambda now: submit_job(at.actor, spec, now),
    )


def _quotas(at: _Reading, sent: Mapping[str, Any]) -> Change:
    errors = ErrorCollector()
    reader = at.reader(sent, errors)
    reader.required("tenant", "quotas")
    name = reader.text("tenant", longest=40)
    reader.take("quotas")
    reader.finish()
    at.inside("", errors.raise_if_any)
    quotas = _member(at, sent, "quotas")
    tenant = tenant_of(at.actor, name)
    draft = at.inside("quotas", lambda: draft_quotas(at.actor, tenant, quotas))
    return Change(
        "quotas",
        {"kind": "quotas", **quotas_body(tenant, at.cluster, draft.after)},
        lambda now: set_quotas(at.actor, tenant, quotas, None, now),
    )


def _drain(at: _Reading, sent: Mapping[str, Any]) -> Change:
    require(at.actor, Right.OPERATE_NODES)
    asked = {name: value for name, value in sent.items() if name != "kind"}
    ask, names = at.inside("", lambda: read_drain(asked, at.cluster, at.now, with_nodes=True))
    return Change(
        "drain",
        {
            "kind": "drain",
            "nodes": sorted(names),
            "leave": ask.running_jobs != RunningJobs.FINISH,
        },
        lambda now: drain_nodes(at.actor, at.cluster, names, ask, now),
    )


def _lose(at: _Reading, sent: Mapping[str, Any]) -> Change:
    require(at.actor, Right.OPERATE_NODES)
    errors = ErrorCollector()
    reader = at.reader(sent, errors)
    reader.required("nodes")
    stored = read_nodes(reader, at.cluster)
    reader.finish()
    at.inside("", errors.raise_if_any)
    names = selector_of(stored).of(node_looks(at.cluster))
    return Change("lose", {"kind": "lose", "nodes": sorted(names)})


def _add(at: _Reading, sent: Mapping[str, Any]) -> Change:
    require(at.actor, Right.OPERATE_NODES)
    errors = ErrorCollector()
    reader = at.reader(sent, errors)
    reader.required("like")
    like = reader.text("like", longest=253)
    count = reader.whole("count", 1, least=1, most=MOST_ADDED)
    known = {node.name for node in node_looks(at.cluster)}
    if like and like not in known:
        reader.fault("like", "unknown_node", _("there is no node of this name"))
    reader.finish()
    at.inside("", errors.raise_if_any)
    return Change("add", {"kind": "add", "like": like, "count": count})


def _window(at: _Reading, sent: Mapping[str, Any]) -> Change:
    require(at.actor, Right.OPERATE_WINDOWS)
    window = {"cluster": at.cluster.name, **_member(at, sent, "window")}
    fields = at.inside("window", lambda: read_window(window, at.cluster, at.now))
    row = MaintenanceWindow(cluster=at.cluster, **asdict(fields))
    return Change(
        "window",
        {"kind": "window", "windows": _occurrences(row, at)},
        lambda now: create_window(at.actor, window, now),
    )


def _occurrences(row: MaintenanceWindow, at: _Reading) -> list[Json]:
    """Every occurrence that the planner looks ahead to."""
    nodes = sorted(selector_of(row.nodes).of(node_looks(at.cluster)))
    admits: Mapping[str, Collection[str]] = row.admits or {}
    lists = {key: sorted(admits.get(key, ())) for key in ("tenants", "queues", "jobs")}
    reserved = row.kind == WindowKind.RESERVED
    return [
        {
            "id": f"~{at.number}@{span.starts_at:%Y%m%dT%H%M%SZ}",
            "starts_at": span.starts_at.timestamp(),
            "ends_at": span.ends_at.timestamp(),
            "nodes": nodes,
            "kind": str(row.kind),
            "crossing": str(row.crossing),
            "spare": reserved and not any(lists.values()),
            **lists,
        }
        for span in spans_of(row, at.now, at.now + HORIZON)
    ]


def _member(at: _Reading, sent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = sent.get(name)
    if not isinstance(found, Mapping):
        raise _invalid(f"/changes/{at.number}/{name}", "not_an_object", _("must be an object"))
    return found


def _invalid(pointer: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"{pointer}: {message}", errors=(FieldError(pointer, code, message),))


_READ_BY: Mapping[str, Callable[[_Reading, Mapping[str, Any]], Change]] = {
    "submit": _submit,
    "quotas": _quotas,
    "drain": _drain,
    "lose": _lose,
    "add": _add,
    "window": _window,
}
