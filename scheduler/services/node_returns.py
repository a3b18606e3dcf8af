"""People bring nodes back: "repaired" sends an out node to burn-in (or home), and clears one that was only suspect."""

from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from scheduler.health.states import Happening, State
from scheduler.models import Node
from scheduler.services.health.returns import come_back, proceed
from scheduler.services.health.scene import lock_node, read_scene
from scheduler.services.health.timeline import Line, write_lines
from scheduler.services.health.verdicts import settle_node
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit


def return_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Say that the node has been repaired, or was never broken.

    Raises ForbiddenError, InvalidError without a reason, ConflictError when it is well already or not yet empty.
    """
    require(actor, Right.OPERATE_NODES)
    errors = ErrorCollector()
    if not reason.strip():
        errors.add("/reason", "required", _("is required: people will ask why"))
    errors.raise_if_any()
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
