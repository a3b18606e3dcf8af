"""What operators want of nodes: cordoned or not. A wish is a row; the cluster process makes Kubernetes agree.

Called by the API and the node page. The planner obeys a cordon from the next cycle, before Kubernetes knows.
"""

from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from queues.models import Cluster
from scheduler.models import Node
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

LONGEST_REASON = 1000


def cordon_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Let no new job land on the node; what runs there goes on. Again with another reason replaces the reason.

    Raises ForbiddenError, and InvalidError for an empty reason.
    """
    return _wish(actor, node, wanted=True, reason=reason, now=now)


def uncordon_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Let jobs land on the node again, whoever cordoned it. Raises as `cordon_node`."""
    return _wish(actor, node, wanted=False, reason=reason, now=now)


def node_of(cluster: str, name: str) -> Node:
    """The node of that name; everyone who is signed in may know it. Raises NotVisibleError."""
    found = (
        Node.objects.select_related("cluster", "flavor")
        .filter(cluster__name=cluster, name=name, gone_at__isnull=True)
        .first()
    )
    if found is None:
        raise NotVisibleError(_("There is no such node."))
    return found


def cluster_of(name: str) -> Cluster:
    """The cluster of that name. Raises NotVisibleError."""
    found = Cluster.objects.filter(name=name).first()
    if found is None:
        raise NotVisibleError(_("There is no cluster of that name."))
    return found


def _wish(actor: Actor, node: Node, *, wanted: bool, reason: str, now: datetime) -> Node:
    require(actor, Right.OPERATE_NODES)
    reason = _checked(reason)
    with log.writing():
        row = Node.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=node.pk)
        before = row.cordon_wanted
        row.cordon_wanted, row.cordon_reason = wanted, reason
        row.cordon_by, row.cordon_since = actor.name, now
        row.save(update_fields=["cordon_wanted", "cordon_reason", "cordon_by", "cordon_since"])
        action = "node.cordoned" if wanted else "node.uncordoned"
        change = Change(
            action, "node", f"{row.cluster.name}/{row.name}", {"wanted": before}, {"wanted": wanted}
        )
        write_audit(actor, change, now=now, reason=reason)
        log.record(
            log.NewEvent(
                kind=action,
                at=now,
                cluster=row.cluster.name,
                node=row.name,
                actor=actor.name,
                message=reason,
            )
        )
    return row


def _checked(reason: str) -> str:
    stripped = reason.strip()
    if not stripped or len(stripped) > LONGEST_REASON:
        code = "too_long" if stripped else "required"
        message = (
            _("must have at most {most} characters").format(most=LONGEST_REASON)
            if stripped
            else _("is required: people will ask why")
        )
        raise InvalidError(f"/reason: {message}", errors=(FieldError("/reason", code, message),))
    return stripped
