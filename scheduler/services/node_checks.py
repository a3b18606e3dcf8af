"""Whether nodes are fit to come back after a window: ready, all GPUs offered, health no worse than before, no upgrade
half done. Called by `services.occurrences`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from queues.models import Cluster
from scheduler.models import ClusterState, Node, Occurrence
from scheduler.models.nodes import HealthState
from scheduler.services.driver_upgrades import REQUIRED, upgrade_state

# How bad each state of health is: a node that was suspect before may come back suspect.
_GRAVITY = {
    HealthState.HEALTHY: 0,
    HealthState.SUSPECT: 1,
    HealthState.BURN_IN: 2,
    HealthState.JOINING: 2,
    HealthState.REPAIRING: 3,
    HealthState.DRAINING: 3,
    HealthState.UNHEALTHY: 3,
}


def looks_before(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """How the nodes are before anybody works on them."""
    rows = Node.objects.filter(cluster=cluster, name__in=list(names))
    return {
        name: {"gpus": gpus, "health": health}
        for name, gpus, health in rows.values_list("name", "gpus_allocatable", "health")
    }


def failing_checks(each: Occurrence, now: datetime) -> dict[str, dict[str, Any]]:
    """Nodes that may not come back yet, and why: {node: {"code", …numbers}}. Those that are gone hold up nothing."""
    cluster = each.window.cluster
    rows = Node.objects.filter(cluster=cluster, name__in=each.nodes, gone_at__isnull=True)
    if not _is_heard(cluster, each.checking_at or now):
        return {row.name: {"code": "unheard"} for row in rows}
    found = {row.name: _failing(row, each.held.get(row.name) or {}) for row in rows}
    return {name: why for name, why in sorted(found.items()) if why is not None}


def _is_heard(cluster: Cluster, since: datetime) -> bool:
    """Whether the cluster process has looked since: what the rows say may be older than the work."""
    heard_at = (
        ClusterState.objects.filter(cluster=cluster).values_list("heard_at", flat=True).first()
    )
    return heard_at is not None and heard_at >= since


def _failing(row: Node, before: Mapping[str, Any]) -> dict[str, Any] | None:
    if not row.ready:
        return {"code": "not_ready"}
    state = upgrade_state(row.labels)
    # An upgrade that is merely wanted waits for the next window: the node works.
    if state not in ("", REQUIRED):
        return {"code": "driver_upgrade", "state": state}
    wanted = max(int(before.get("gpus") or 0), row.gpus_capacity)
    if row.gpus_allocatable < wanted:
        return {"code": "gpus", "gpus": row.gpus_allocatable, "wanted": wanted}
    worst = _GRAVITY[HealthState(before.get("health") or HealthState.HEALTHY)]
    if _GRAVITY[HealthState(row.health)] > worst:
        return {"code": "health", "health": row.health}
    return None
