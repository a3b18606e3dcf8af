"""What operators want of nodes: cordoned or not. A wish is a row; the cluster process makes Kubernetes agree.

Called by the API and the node page. The planner obeys a cordon from the next cycle, before Kubernetes knows.
"""

from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from queues.models import Cluster
from scheduler.models import CordonSource, Node
from scheduler.services.cordons import LONGEST_REASON, free_by_operator, set_cordon
from scheduler.services.drains import end_drains
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit


def cordon_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Let no new job land on the node; what runs there goes on. Again with another reason replaces the reason.

    Raises ForbiddenError, and InvalidError for an empty reason.
    """
    require(actor, Right.OPERATE_NODES)
    reason = checked_reason(reason)
    with log.writing():
        set_cordon(node, source=CordonSource.OPERATOR, reason=reason, by=actor.name, now=now)
        return _audited(actor, node, "node.cordoned", reason, now)


def uncordon_node(actor: Actor, node: Node, reason: str, now: datetime) -> Node:
    """Lift the operator's cordon, whoever of them set it, and one that was set outside Muster. Ends a drain.

    What maintenance windows and health rules want stays: `cordons_of` names it. Raises as `cordon_node`.
    """
    require(actor, Right.OPERATE_NODES)
    reason = checked_reason(reason)
    with log.writing():
        end_drains([node], actor.name, now)
        free_by_operator(node, reason=reason, by=actor.name, now=now)
        return _audited(actor, node, "node.uncordoned", reason, now)


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


def _audited(actor: Actor, node: Node, action: str, reason: str, now: datetime) -> Node:
    """The node as it is now, after an entry that says what became of the wish for it."""
    row = Node.objects.select_related("cluster", "flavor").get(pk=node.pk)
    before, after = {"wanted": node.cordon_wanted}, {"wanted": row.cordon_wanted}
    change = Change(action, "node", f"{row.cluster.name}/{row.name}", before, after)
    write_audit(actor, change, now=now, reason=reason)
    return row


def checked_reason(reason: str) -> str:
    """The reason without spaces around it. Raises InvalidError when it is empty or too long."""
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
