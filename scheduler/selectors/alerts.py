"""Alerts as people may see them, and in words. Called by the doors, the pages and what is sent by mail."""

from collections import defaultdict
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from queues.selectors.answers import time_text
from scheduler.alert_kinds import KINDS
from scheduler.models import Alert, AlertState
from tenants.access import Actor
from tenants.selectors import visible_tenants

UNRESOLVED = [state for state in AlertState if state is not AlertState.RESOLVED]


def alerts_visible_to(actor: Actor) -> QuerySet[Alert]:
    """A tenant's alerts for those who see the tenant; all, those of nobody's too, for platform roles."""
    everything = actor.sees_all_tenants and actor.token_tenant_id is None
    seen = Q(pk__isnull=False) if everything else visible_tenants(actor)
    return Alert.objects.filter(seen).select_related("cluster", "tenant")


def open_alerts(actor: Actor) -> int:
    """How many wait for somebody: the number beside the rail's item."""
    return alerts_visible_to(actor).filter(state=AlertState.OPEN).order_by().count()


def title(alert: Alert) -> str:
    """A few words, in the reader's language."""
    kind = KINDS.get(alert.kind)
    return str(kind.title) if kind else alert.kind


def sentence(alert: Alert) -> str:
    """What was found, in the reader's language."""
    kind = KINDS.get(alert.kind)
    if kind is None:  # of a newer version that was rolled back
        return alert.detail
    cluster = alert.cluster.name if alert.cluster else ""
    known = {
        "cluster": cluster,
        "node": alert.node,
        "gpu": _gpu(alert),
        "job": alert.job,
        "cause": _("cause unknown"),
    }
    told = {name: _number(value) for name, value in alert.numbers.items() if value != ""}
    filled = {name: value for name, value in known.items() if value != ""} | told
    text = kind.one if kind.one and filled.get("count") == 1 else kind.sentence
    return str(text).format_map(defaultdict(lambda: "?", filled))


def _gpu(alert: Alert) -> str:
    """Which GPU, to stand after the word: its index on the node, else its UUID without the word."""
    index = alert.numbers.get("index")
    return alert.gpu.removeprefix("GPU-") if index is None else str(index)


def _number(value: Any) -> Any:
    """Counts are whole, though exporters write them as 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def runbook(alert: Alert) -> str:
    """Slug of the runbook that helps; empty for a kind that has none."""
    kind = KINDS.get(alert.kind)
    return kind.runbook if kind else ""


def alert_answer(alert: Alert) -> dict[str, Any]:
    """An alert over REST and in a webhook."""
    slug = runbook(alert)
    return {
        "id": alert.pk,
        "kind": alert.kind,
        "severity": alert.severity,
        "state": alert.state,
        "title": title(alert),
        "message": sentence(alert),
        "detail": alert.detail,
        "numbers": alert.numbers,
        "cluster": alert.cluster.name if alert.cluster else None,
        "tenant": alert.tenant.slug if alert.tenant else None,
        "node": alert.node or None,
        "gpu": alert.gpu or None,
        "job": alert.job or None,
        "count": alert.count,
        "first_seen": time_text(alert.first_seen),
        "last_seen": time_text(alert.last_seen),
        "acknowledged_by": alert.acknowledged_by or None,
        "acknowledged_at": time_text(alert.acknowledged_at),
        "note": alert.note,
        "silenced_by": alert.silenced_by or None,
        "silenced_until": time_text(alert.silenced_until),
        "resolved_by": alert.resolved_by or None,
        "resolved_at": time_text(alert.resolved_at),
        "runbook": f"/runbooks/{slug}/" if slug else None,
    }
