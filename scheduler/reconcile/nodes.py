"""Node rows and rows of foreign pods, kept in step with the view: only what changed is written.

Called by `tick`, inside its transaction. `NodeBook` and `ForeignBook` remember what the rows say,
so that an unchanged cluster costs no statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.common import log
from queues.models import Cluster
from queues.services.catalogue import NodeSizes, record_node_sizes, record_outside_use
from scheduler.kube.seen import NodeSeen, PodSeen
from scheduler.models import ForeignPod, HealthState, Node, NodeWatch
from scheduler.reconcile.node_rows import Policy, columns_of, gpus_of

NAMESPACE_PREFIX = "muster-"
# SQLite takes 32,766 variables in a statement; a node has some twenty columns.
ROWS_PER_STATEMENT = 500
OBSERVED_COLUMNS = (
    *("uid", "boot_id", "flavor_id", "managed", "gpus_capacity", "gpus_allocatable"),
    *("cpu_millis", "memory_mib", "pods", "domains", "labels", "taints", "conditions"),
    *("driver", "cuda", "ready", "ready_changed_at", "unschedulable", "out_causes", "gone_at"),
)


@dataclass(slots=True)
class NodeBook:
    """The node rows of one cluster."""

    cluster: Cluster
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def load(self) -> None:
        """Read all rows again."""
        self._known = {
            row.name: _columns_of_row(row) for row in Node.objects.filter(cluster=self.cluster)
        }

    def names(self) -> set[str]:
        """Nodes that the rows say exist."""
        return {name for name in self._known if self._exists(name)}

    def write(
        self,
        names: Iterable[str],
        seen: Mapping[str, NodeSeen],
        policy: Policy,
        now: datetime,
    ) -> tuple[set[str], set[str]]:
        """Write those of `names` that differ; (nodes changed, nodes that have rebooted)."""
        rebooted: set[str] = set()
        changed: dict[str, dict[str, Any]] = {}
        gone: list[str] = []
        for name in sorted(names):
            node = seen.get(name)
            if node is None:
                gone += [name] if self._exists(name) else []
                continue
            columns = columns_of(node, policy)
            known = self._known.get(name)
            if known == columns:
                continue
            if known is not None and _has_rebooted(known, columns):
                rebooted.add(name)
            changed[name] = columns
        self._store(changed, now)
        self._store_gone(gone, now)
        if changed or gone:
            self._write_sizes(now)
        return {*changed, *gone}, rebooted

    def _exists(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known["gone_at"] is None

    def _store(self, changed: Mapping[str, dict[str, Any]], now: datetime) -> None:
        """One statement for all of them; what people want of a node is left as it is."""
        if not changed:
            return
        joining = self._joining(changed.keys() - self._known.keys(), now)
        Node.objects.bulk_create(
            [
                Node(
                    cluster=self.cluster,
                    name=name,
                    observed_at=now,
                    **columns,
                    **joining.get(name, {}),
                )
                for name, columns in changed.items()
            ],
            batch_size=ROWS_PER_STATEMENT,
            update_conflicts=True,
            unique_fields=["cluster", "name"],
            update_fields=[
                "flavor",
                *(n for n in OBSERVED_COLUMNS if n != "flavor_id"),
                "observed_at",
            ],
        )
        for name, columns in changed.items():
            self._known[name] = columns
            log.record(self._event("node.changed", name, now, _told(columns)))

    def _joining(self, new: Collection[str], now: datetime) -> dict[str, dict[str, Any]]:
        """A machine that comes to a cluster whose health is looked after takes no job before it is judged."""
        if not new or not NodeWatch.objects.filter(node__cluster=self.cluster).exists():
            return {}
        return {name: {"health": HealthState.JOINING, "health_since": now} for name in new}

    def _store_gone(self, names: list[str], now: datetime) -> None:
        if not names:
            return
        Node.objects.filter(cluster=self.cluster, name__in=names).update(
            gone_at=now, observed_at=now
        )
        for name in names:
            self._known[name]["gone_at"] = now
            log.record(self._event("node.gone", name, now, {}))

    def _write_sizes(self, now: datetime) -> None:
        sizes: dict[int, NodeSizes] = {}
        for columns in self._known.values():
            flavor = columns["flavor_id"]
            if flavor is not None and columns["gone_at"] is None:
                sizes[flavor] = _larger(sizes.get(flavor), columns)
        record_node_sizes(self.cluster, sizes, now)

    def flavor_of(self, name: str) -> int | None:
        """The flavor's id of a node; None when it has none, or is not known."""
        known = self._known.get(name)
        return None if known is None else known["flavor_id"]

    def _event(self, kind: str, name: str, now: datetime, numbers: dict[str, Any]) -> log.NewEvent:
        return log.NewEvent(
            kind=kind,
            at=now,
            cluster=self.cluster.name,
            node=name,
            actor="cluster",
            numbers=numbers,
        )


def _columns_of_row(row: Node) -> dict[str, Any]:
    return {name: getattr(row, name) for name in OBSERVED_COLUMNS}


def _told(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ready": columns["ready"],
        "gpus": columns["gpus_allocatable"],
        "out": [cause["code"] for cause in columns["out_causes"]],
    }


def _has_rebooted(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return bool(before["boot_id"]) and before["boot_id"] != after["boot_id"]


def _larger(known: NodeSizes | None, columns: Mapping[str, Any]) -> NodeSizes:
    found = NodeSizes(columns["gpus_capacity"], columns["cpu_millis"], columns["memory_mib"])
    if known is None:
        return found
    return NodeSizes(
        max(known.gpus, found.gpus),
        max(known.cpu_millis, found.cpu_millis),
        max(known.memory_mib, found.memory_mib),
    )


@dataclass(slots=True)
class ForeignBook:
    """Rows of pods that match no placement, by uid. `tenants`: namespace → tenant's id.
    `counted`: whether the tenants' quotas say what these pods use."""

    cluster: Cluster
    tenants: dict[str, int] = field(default_factory=dict)
    counted: bool = False
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def load(self) -> None:
        """Read all rows again."""
        self._known = {
            row.uid: _foreign_columns_of_row(row)
            for row in ForeignPod.objects.filter(cluster=self.cluster)
        }
        self.counted = False

    def count_use(self, nodes: NodeBook, now: datetime) -> None:
        """Tell the quotas what pods in tenants' namespaces use beside Muster, if that changed."""
        if self.counted:
            return
        used: dict[tuple[int, int], int] = defaultdict(int)
        for columns in self._known.values():
            flavor = nodes.flavor_of(columns["node"])
            if columns["tenant_id"] is not None and flavor is not None:
                used[columns["tenant_id"], flavor] += columns["gpus"]
        record_outside_use(self.cluster, used, now)
        self.counted = True

    def uids(self) -> set[str]:
        """Pods that have a row."""
        return set(self._known)

    def columns(
        self, pod: PodSeen, node: NodeSeen | None, policy: Policy, *, unclaimed: bool
    ) -> dict[str, Any]:
        """The row of a foreign pod."""
        return {
            "namespace": pod.namespace,
            "name": pod.name,
            "node": pod.node or "",
            "tenant_id": self.tenants.get(pod.namespace),
            "unclaimed": unclaimed,
            "gpus": gpus_of(pod, node, policy),
            "cpu_millis": pod.requests.cpu_millis,
            "memory_mib": pod.requests.memory_mib,
            "labels": dict(pod.labels),
            "terminating": pod.terminating,
        }

    def write(self, wanted: Mapping[str, dict[str, Any] | None], now: datetime) -> set[str]:
        """Store rows by uid (None: none any more); the nodes whose usage changed."""
        nodes: set[str] = set()
        stored: list[ForeignPod] = []
        removed: list[str] = []
        for uid, columns in wanted.items():
            before = self._known.get(uid)
            if columns == before:
                continue
            nodes |= {c["node"] for c in (before, columns) if c is not None}
            self.counted = self.counted and not any(map(_takes_quota, (before, columns)))
            if columns is None:
                removed.append(uid)
                del self._known[uid]
            else:
                stored.append(ForeignPod(cluster=self.cluster, uid=uid, seen_at=now, **columns))
                self._known[uid] = columns
        self._store(stored, removed)
        log.record(*(self._event(node, now) for node in sorted(nodes)))
        return nodes

    def _store(self, stored: list[ForeignPod], removed: list[str]) -> None:
        if stored:
            ForeignPod.objects.bulk_create(
                stored,
                batch_size=ROWS_PER_STATEMENT,
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=[
                    *("namespace", "name", "node", "tenant", "unclaimed", "gpus"),
                    *("cpu_millis", "memory_mib", "labels", "terminating", "seen_at"),
                ],
            )
        for start in range(0, len(removed), ROWS_PER_STATEMENT):
            part = removed[start : start + ROWS_PER_STATEMENT]
            ForeignPod.objects.filter(cluster=self.cluster, uid__in=part).delete()

    def _event(self, node: str, now: datetime) -> log.NewEvent:
        return log.NewEvent(
            kind="node.usage", at=now, cluster=self.cluster.name, node=node, actor="cluster"
        )


def _foreign_columns_of_row(row: ForeignPod) -> dict[str, Any]:
    names = (
        *("namespace", "name", "node", "tenant_id", "unclaimed", "gpus", "cpu_millis"),
        *("memory_mib", "labels", "terminating"),
    )
    return {name: getattr(row, name) for name in names}


def _takes_quota(columns: Mapping[str, Any] | None) -> bool:
    return columns is not None and columns["tenant_id"] is not None and columns["gpus"] > 0


def namespace_tenants(slugs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Namespace → tenant's id, from (slug, id) pairs."""
    return {f"{NAMESPACE_PREFIX}{slug}": pk for slug, pk in slugs}
