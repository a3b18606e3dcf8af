"""Drains: an operator wants nodes empty. Cordoned at once; their jobs finish, leave after a checkpoint, or leave now.

`tick_drains` is called by `services.occurrences`. A drain ends when somebody uncordons the node (`end_drains`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from queues.contract.reading import Reader
from queues.models import Cluster, ClusterMode
from queues.selectors.answers import time_text
from scheduler.maintenance.life import Departure, Runner, departure_now, expected_empty_at
from scheduler.maintenance.selection import selector_of
from scheduler.models import CordonSource, Drain, Eviction, EvictionRule, Node, RunningJobs
from scheduler.selectors.windows import node_looks
from scheduler.services.alerts import AlertFacts, settle_alerts
from scheduler.services.cordons import DRAIN_KEY, LONGEST_REASON, lift_cordons, set_cordons
from scheduler.services.departures import Leaver, Outlook, leavers, outlook, plan_changed
from scheduler.services.evictions import order_eviction, withdraw_eviction
from scheduler.services.window_fields import read_nodes
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

Json = dict[str, Any]
FURTHEST_LATEST = timedelta(days=31)
MOVED = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class DrainAsk:
    """What an operator asks. latest_at None: jobs that wait are never made to leave (`finish`), or leave after the
    next checkpoint that they promise."""

    reason: str
    running_jobs: str
    latest_at: datetime | None
    plan_id: str


def read_drain(
    sent: Mapping[str, Any], cluster: Cluster, now: datetime, *, with_nodes: bool
) -> tuple[DrainAsk, frozenset[str]]:
    """A drain as sent, and the nodes that it names (`nodes`, a selector). Raises InvalidError with pointers."""
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("reason", *(("nodes",) if with_nodes else ()))
    ask = DrainAsk(
        reason=reader.text("reason", longest=LONGEST_REASON).strip(),
        running_jobs=reader.choice("running_jobs", RunningJobs.CHECKPOINT, RunningJobs.values),
        latest_at=reader.moment("latest_at"),
        plan_id=reader.text("plan_id", longest=40),
    )
    if reader.has("reason") and not ask.reason and not errors.found:
        reader.fault("reason", "required", _("is required: people will ask why"))
    if ask.latest_at is not None and not now <= ask.latest_at <= now + FURTHEST_LATEST:
        reader.fault("latest_at", "out_of_range", _("must be ahead, within a month"))
    nodes = read_nodes(reader, cluster) if with_nodes else {}
    reader.finish()
    errors.raise_if_any()
    names = selector_of(nodes).of(node_looks(cluster)) if with_nodes else frozenset()
    return ask, names


def preview_drain(
    actor: Actor, cluster: Cluster, names: Collection[str], ask: DrainAsk, now: datetime
) -> Outlook:
    """Which jobs would leave, when, and at what cost. Nothing is stored."""
    require(actor, Right.OPERATE_NODES)
    return _outlook(cluster, names, ask, now)


def drain_nodes(
    actor: Actor, cluster: Cluster, names: Collection[str], ask: DrainAsk, now: datetime
) -> list[Drain]:
    """Cordon the nodes and let their jobs leave, gang by gang. Again with other words tightens or loosens it.

    Raises ConflictError `plan_changed` when the preview of `plan_id` no longer holds.
    """
    require(actor, Right.OPERATE_NODES)
    with log.writing():
        found = _outlook(cluster, names, ask, now)
        if ask.plan_id and ask.plan_id != found.plan_id:
            raise plan_changed(found)
        nodes = list(
            Node.objects.filter(cluster=cluster, name__in=names, gone_at__isnull=True).order_by(
                "name"
            )
        )
        set_cordons(
            nodes,
            source=CordonSource.OPERATOR,
            key=DRAIN_KEY,
            reason=ask.reason,
            by=actor.name,
            now=now,
        )
        drains = [_stored(actor, node, ask, now) for node in nodes]
        _note(actor, cluster, nodes, ask, found, now)
    return drains


def end_drains(nodes: Iterable[Node], by: str, now: datetime) -> None:
    """The nodes are wanted back: who was not told to leave yet stays. Joins the caller's `log.writing()`."""
    for drain in _open().filter(node__in=list(nodes)):
        Drain.objects.filter(pk=drain.pk, ended_at__isnull=True).update(ended_at=now, ended_by=by)
        rows = Eviction.objects.filter(
            Eviction.OPEN,
            rule=EvictionRule.DRAIN,
            ordered_by=_ordered_by(drain),
            signalled_at__isnull=True,
        )
        for eviction in rows:
            try:
                withdraw_eviction(eviction, message="the drain was ended", now=now)
            except ConflictError:
                continue  # told in this very moment: it completes


def open_drains(nodes: Iterable[Node]) -> dict[int, Drain]:
    """Drains that are going on, by node."""
    return {drain.node_id: drain for drain in _open().filter(node__in=[n.pk for n in nodes])}


def drain_answer(drain: Drain) -> Json:
    """A drain and how far it is."""
    return {
        "reason": drain.reason,
        "running_jobs": drain.running_jobs,
        "latest_at": time_text(drain.latest_at),
        "by": drain.by,
        "since": time_text(drain.since),
        "expected_empty_at": time_text(drain.expected_empty_at),
        "empty_at": time_text(drain.empty_at),
    }


def tick_drains(cluster: Cluster, now: datetime, hold: Callable[[], None]) -> bool:
    """Order who has to leave, tell what is empty. True while a node is not. One query when nothing drains."""
    drains = list(_open().filter(node__cluster=cluster, empty_at__isnull=True).order_by("pk"))
    late = []
    for drain in drains:
        found = leavers(cluster, [drain.node.name])
        parts = [(leaver, _leaves(drain, leaver.runner, now)) for leaver in found]
        if cluster.mode == ClusterMode.SCHEDULE:
            for leaver, part in parts:
                _order(drain, leaver, part, now, hold)
        _tell_empty(drain, [part for _leaver, part in parts], now, hold)
        if found and drain.latest_at is not None and now > drain.latest_at:
            numbers = {"latest_at": time_text(drain.latest_at)}
            late.append(
                AlertFacts("drain_late", cluster=cluster, node=drain.node.name, numbers=numbers)
            )
    settle_alerts("drain_late", cluster, late, now)
    return bool(drains)


def _open() -> Any:
    return Drain.objects.filter(ended_at__isnull=True).select_related("node__cluster")


def _stored(actor: Actor, node: Node, ask: DrainAsk, now: datetime) -> Drain:
    words = {"reason": ask.reason, "running_jobs": ask.running_jobs, "latest_at": ask.latest_at}
    drain, made = Drain.objects.get_or_create(
        node=node, ended_at=None, defaults={**words, "by": actor.name, "since": now}
    )
    if not made:
        Drain.objects.filter(pk=drain.pk).update(**words, by=actor.name, empty_at=None)
        drain.refresh_from_db()
    return drain


def _outlook(cluster: Cluster, names: Collection[str], ask: DrainAsk, now: datetime) -> Outlook:
    def leaves(runner: Runner) -> Departure:
        return departure_now(runner, ask.running_jobs, ask.latest_at, now)

    return outlook(names, leavers(cluster, names), leaves, now)


def _leaves(drain: Drain, runner: Runner, now: datetime) -> Departure:
    return departure_now(runner, drain.running_jobs, drain.latest_at, now)


def _ordered_by(drain: Drain) -> str:
    return f"drain {drain.pk} by {drain.by}"[:150]


def _order(
    drain: Drain, leaver: Leaver, part: Departure, now: datetime, hold: Callable[[], None]
) -> None:
    if part.order_at is None or now < part.order_at:
        return
    try:
        with log.writing():
            hold()
            order_eviction(
                leaver.attempt,
                rule=EvictionRule.DRAIN,
                message=f"node {drain.node.name} is drained: {drain.reason}",
                ordered_by=_ordered_by(drain),
                now=now,
                numbers={"node": drain.node.name},
                wait_for_checkpoint=part.wait,
                latest_at=part.latest_at,
            )
    except ConflictError:
        return  # it leaves already


def _tell_empty(
    drain: Drain, parts: Sequence[Departure], now: datetime, hold: Callable[[], None]
) -> None:
    if parts:
        expected = expected_empty_at(parts, now)
        known = drain.expected_empty_at
        same = known is None if expected is None else known and abs(expected - known) <= MOVED
        if not same:
            Drain.objects.filter(pk=drain.pk).update(expected_empty_at=expected)
        return
    node = drain.node
    with log.writing():
        hold()
        mine = Drain.objects.filter(pk=drain.pk, empty_at__isnull=True, ended_at__isnull=True)
        if not mine.update(empty_at=now, expected_empty_at=now):
            return
        # It stays cordoned, but there is nothing left to drain.
        source, reason, by = CordonSource.OPERATOR, drain.reason, drain.by
        set_cordons([node], source=source, reason=reason, by=by, now=now)
        lift_cordons([node], source=source, key=DRAIN_KEY, reason=reason, by=by, now=now)
        log.record(
            log.NewEvent(
                kind="node.empty",
                at=now,
                cluster=node.cluster.name,
                node=node.name,
                actor="scheduler",
                message=drain.reason,
            )
        )


def _note(
    actor: Actor,
    cluster: Cluster,
    nodes: Sequence[Node],
    ask: DrainAsk,
    found: Outlook,
    now: datetime,
) -> None:
    after = {
        "nodes": [node.name for node in nodes],
        "running_jobs": ask.running_jobs,
        "latest_at": time_text(ask.latest_at),
        "lost_gpu_seconds": found.lost_gpu_seconds,
    }
    name = nodes[0].name if len(nodes) == 1 else _("{n} nodes").format(n=len(nodes))
    change = Change("node.drained", "node", f"{cluster.name}/{name}", None, after)
    write_audit(actor, change, now=now, reason=ask.reason)
    log.record(
        *(
            log.NewEvent(
                kind="node.draining",
                at=now,
                cluster=cluster.name,
                node=node.name,
                actor=actor.name,
                message=ask.reason,
            )
            for node in nodes
        )
    )
