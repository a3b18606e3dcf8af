"""An operator's word about a GPU, with a reason and an end: rules do not overrule it until then."""

from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ErrorCollector
from scheduler.health.states import State
from scheduler.models import Gpu
from scheduler.services.health.scene import lock_node, read_scene
from scheduler.services.health.timeline import Line, write_lines
from scheduler.services.health.verdicts import set_gpu, settle_node
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

OFFERED = (State.HEALTHY, State.SUSPECT, State.UNHEALTHY)
LONGEST = timedelta(days=30)
LONGEST_REASON = 1000


def override_gpu(
    actor: Actor, gpu: Gpu, state: str, reason: str, until: datetime | None, now: datetime
) -> Gpu:
    """Say how a GPU stands, until then: 7 days when nothing is said, at most 30.

    Raises ForbiddenError, and InvalidError that names the field.
    """
    require(actor, Right.OPERATE_NODES)
    errors = ErrorCollector()
    until = until or now + timedelta(days=7)
    if state not in OFFERED:
        errors.add("/state", "unknown", _("must be healthy, suspect or unhealthy"))
    if not reason.strip() or len(reason) > LONGEST_REASON:
        errors.add("/reason", "required", _("is required: people will ask why"))
    if not now < until <= now + LONGEST:
        errors.add("/until", "out_of_range", _("must be in the future, at most 30 days away"))
    errors.raise_if_any()
    scene = read_scene(gpu.cluster, [gpu.node.name])
    node = scene.nodes.get(gpu.node.name)
    with log.writing():
        if node is not None:
            lock_node(scene, node)
        row = node.gpus.get(gpu.uuid, gpu) if node else gpu
        before = row.state
        row.override_state, row.override_reason = state, reason.strip()
        row.override_by, row.override_until = actor.name, until
        row.save(
            update_fields=["override_state", "override_reason", "override_by", "override_until"]
        )
        set_gpu(row, State(state), f"{actor.name}: {reason.strip()}", "", now)
        change = Change(
            "gpu.overridden", "gpu", f"{gpu.cluster.name}/{gpu.uuid}", {"state": before},
            {"state": state, "until": until.isoformat()},
        )  # fmt: skip
        write_audit(actor, change, now=now, reason=reason)
        line = Line("override", gpu=gpu.uuid, before=before, after=state, cause=reason.strip(),
                    actor=actor.name, next_step=f"holds until {until.isoformat(timespec='minutes')}")  # fmt: skip
        write_lines(gpu.cluster, gpu.node.name, [line], now)
        if node is not None:
            settle_node(scene, node, now)
    return row
