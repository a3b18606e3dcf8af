"""People bring nodes back: "repaired" sends an out node to burn-in (or home), and clears one that was only suspect.
And they ask for a burn-in of any node: it is taken out of service, tried when it is empty, and comes back by itself.
"""

from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.states import Happening, State
from scheduler.models import BurnIn, Node
from scheduler.services.health.acts import put_out
from scheduler.services.health.burning import request_burn_in
from scheduler.services.health.returns import come_back, is_empty, proceed
from scheduler.services.health.scene import NodeScene, Scene, lock_node, read_scene
from scheduler.services.health.timeline import Line, write_lines
from scheduler.services.health.verdicts import settle_node
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit


def return_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Say that the node has been repaired, or was never broken.

    Raises ForbiddenError, InvalidError without a reason, ConflictError when it is well already or not yet empty.
    """
    require(actor, Right.OPERATE_NODES)
    _check_reason(reason)
    scene = read_scene(node.cluster, [node.name])
    found = scene.nodes.get(node.name)
    with log.writing():
        if found is not None:
            lock_node(scene, found)
        if found is None or (found.row.health == State.HEALTHY and not found.row.health_closed):
            raise ConflictError(_("This node is well."), code="node_is_well")
        state = State(found.watch.state)
        if state is State.DRAINING:
            raise ConflictError(_("Jobs are still leaving this node."), code="node_drains")
        name = f"{node.cluster.name}/{node.name}"
        change = Change("node.returned", "node", name, {"health": found.row.health}, {})
        write_audit(actor, change, now=now, reason=reason)
        line = Line(
            "return", cause=reason.strip(), actor=actor.name, action="says that it is repaired"
        )
        write_lines(node.cluster, node.name, [line], now)
        if found.watch.out_since is not None:
            watch = found.watch
            watch.repaired_at, watch.repaired_by = now, actor.name
            watch.save(update_fields=["repaired_at", "repaired_by"])
            proceed(scene, found, None, now)
        elif state is not State.JOINING:
            come_back(scene, found, Happening.CLEARED, reason.strip(), now, actor.name)
        settle_node(scene, found, now)
    found.row.refresh_from_db()
    return found.row


def burn_in_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Ask for a burn-in. Running jobs leave after their next checkpoint, within half an hour; no budget is touched.

    Raises ForbiddenError, InvalidError without a reason, ConflictError where the cluster has no burn-in or one is
    under way, and while a node that joins has other steps before it.
    """
    require(actor, Right.OPERATE_NODES)
    _check_reason(reason)
    scene = read_scene(node.cluster, [node.name])
    found = scene.nodes.get(node.name)
    with log.writing():
        if found is None or not lock_node(scene, found):
            raise ConflictError(_("This node is not looked after yet."), code="node_unknown")
        _check_burn_in(scene, found)
        name = f"{node.cluster.name}/{node.name}"
        change = Change("node.burn_in", "node", name, {"health": found.row.health}, {})
        write_audit(actor, change, now=now, reason=reason)
        if found.watch.state == State.JOINING:
            request_burn_in(scene.policy, found.row, actor.name, now)
        else:
            _send_to_burn_in(scene, found, actor.name, reason.strip(), now)
        settle_node(scene, found, now)
    found.row.refresh_from_db()
    return found.row


def _check_reason(reason: str) -> None:
    errors = ErrorCollector()
    if not reason.strip():
        errors.add("/reason", "required", _("is required: people will ask why"))
    errors.raise_if_any()


def _check_burn_in(scene: Scene, node: NodeScene) -> None:
    if not scene.burns_in:
        raise ConflictError(
            _("This cluster has no burn-in: set an image in its health policy."), code="no_burn_in"
        )
    if BurnIn.objects.filter(node=node.row).exclude(phase__in=BurnIn.OVER).exists():
        raise ConflictError(_("A burn-in is under way."), code="burn_in_open")
    if node.watch.state == State.JOINING and not is_empty(node):
        raise ConflictError(_("Something still runs on this node."), code="node_in_use")


def _send_to_burn_in(scene: Scene, node: NodeScene, by: str, reason: str, now: datetime) -> None:
    """Out of service, unless it is already; then it needs no repair, says who asked."""
    if node.watch.out_since is None:
        finding = Finding(
            rule="burn_in", grade=Grade.UNHEALTHY, cause=f"burn-in asked for by {by}", evidence=reason,
            source=Source.OPERATOR, at=now,
        )  # fmt: skip
        put_out(scene, node, finding, (), now, by)
    watch = node.watch
    watch.repaired_at, watch.repaired_by = now, by
    watch.save(update_fields=["repaired_at", "repaired_by"])
    proceed(scene, node, None, now)
