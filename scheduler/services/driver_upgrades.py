"""Driver upgrades by NVIDIA's GPU operator: held off outside a maintenance window, let go node by node inside one.

The operator leaves a node alone while it bears `nvidia.com/gpu-driver-upgrade.skip=true`, and tells how far it is in
`nvidia.com/gpu-driver-upgrade-state`. Only nodes that some window covers are held: elsewhere the operator does as it
did without Muster. The labels are wishes in rows; the `cluster` process makes Kubernetes agree.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from controlplane.common import log
from queues.models import Cluster, ClusterMode
from scheduler.maintenance.selection import selector_of
from scheduler.models import Node, Occurrence, OccurrenceState, WantedLabel, WindowKind
from scheduler.selectors.windows import HORIZON, node_looks, spans_of, windows_in_force

STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
REQUIRED = "upgrade-required"
# The operator is not at work on a node in these states (absent: it never was).
AT_REST = frozenset({None, "", "upgrade-done", "upgrade-failed", REQUIRED})
BY = "maintenance windows"


def upgrade_state(labels: Mapping[str, str]) -> str:
    """What the operator does on a node; empty when it does nothing."""
    state = labels.get(STATE_LABEL, "")
    return "" if state == "upgrade-done" else state


def hold_upgrades(cluster: Cluster, now: datetime, hold: Callable[[], None]) -> None:
    """Want upgrades held off on every covered node whose window is not open; let go of nodes no window covers."""
    if cluster.mode != ClusterMode.SCHEDULE:
        return
    wanted = {row.node_id: row for row in _wanted(cluster)}
    covered = _covered(cluster, now)
    if not covered and not wanted:
        return
    operated, opened = _operated(cluster), _opened(cluster)
    held = [
        node
        for node in operated
        if node.name in covered - opened and node.labels.get(STATE_LABEL) in AT_REST
    ]
    _want(held, "true", now, hold)
    free = [row.node for row in wanted.values() if row.node.name not in covered]
    _want(free, None, now, hold)
    done = [n.pk for n in free if SKIP_LABEL not in n.labels]
    if done:
        WantedLabel.objects.filter(key=SKIP_LABEL, node__in=done, value__isnull=True).delete()


def release_upgrades(nodes: Iterable[Node], now: datetime, hold: Callable[[], None]) -> None:
    """Inside a window: let the operator at the next node that wants it, once the one before is done or has failed."""
    operated = sorted((n for n in nodes if n.labels.get(STATE_LABEL)), key=lambda node: node.name)
    if not operated:
        return
    freed = set(
        WantedLabel.objects.filter(
            node__in=operated, key=SKIP_LABEL, value__isnull=True
        ).values_list("node_id", flat=True)
    )
    if any(_is_under_way(node, freed) for node in operated):
        return
    waiting = [node for node in operated if node.labels[STATE_LABEL] == REQUIRED]
    _want(waiting[:1], None, now, hold)


def _is_under_way(node: Node, freed: set[int]) -> bool:
    state = node.labels[STATE_LABEL]
    return state not in AT_REST or (state == REQUIRED and node.pk in freed)


def _operated(cluster: Cluster) -> list[Node]:
    """Nodes whose drivers the operator manages."""
    rows = Node.objects.filter(
        cluster=cluster, gone_at__isnull=True, managed=True, labels__has_key=STATE_LABEL
    )
    return list(rows.select_related("cluster"))


def _wanted(cluster: Cluster) -> list[WantedLabel]:
    rows = WantedLabel.objects.filter(node__cluster=cluster, key=SKIP_LABEL)
    return list(rows.select_related("node__cluster"))


def _covered(cluster: Cluster, now: datetime) -> frozenset[str]:
    """Nodes of maintenance windows that are on or will come."""
    rows = windows_in_force(cluster).filter(kind=WindowKind.MAINTENANCE)
    ahead = [row for row in rows if spans_of(row, now, now + HORIZON)]
    if not ahead:
        return frozenset()
    looks = node_looks(cluster)
    return frozenset().union(*(selector_of(row.nodes).of(looks) for row in ahead))


def _opened(cluster: Cluster) -> frozenset[str]:
    rows = Occurrence.objects.filter(
        window__cluster=cluster,
        window__kind=WindowKind.MAINTENANCE,
        state=OccurrenceState.OPEN,
    )
    return frozenset(name for names in rows.values_list("nodes", flat=True) for name in names)


def _want(
    nodes: Iterable[Node], value: str | None, now: datetime, hold: Callable[[], None]
) -> None:
    known = {
        row.node_id: row.value
        for row in WantedLabel.objects.filter(node__in=list(nodes), key=SKIP_LABEL)
    }
    changed = [n for n in nodes if n.pk not in known or known[n.pk] != value]
    if not changed:
        return
    with log.writing():
        hold()
        WantedLabel.objects.bulk_create(
            [
                WantedLabel(node=node, key=SKIP_LABEL, value=value, by=BY, since=now)
                for node in changed
            ],
            batch_size=500,
            update_conflicts=True,
            unique_fields=["node", "key"],
            update_fields=["value", "by", "since"],
        )
        log.record(*(_event(node, value, now) for node in changed))


def _event(node: Node, value: str | None, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="node.label_wanted",
        at=now,
        cluster=node.cluster.name,
        node=node.name,
        actor="scheduler",
        numbers={"key": SKIP_LABEL, "value": value},
    )
