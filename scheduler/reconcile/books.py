"""Everything that a tick works on: the view, the rows in memory, the policy, what is due when.

Owned by the thread that talks to the database; `tick`, `outcomes`, `steps` and `strangers` share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.common import log
from queues.models import Cluster, Flavor, Level, Placement
from scheduler.kube.namespaces import NamespaceWanted
from scheduler.logstore import LogStore
from scheduler.reconcile.burn_ins import BurnIns
from scheduler.reconcile.drift import DriftBook
from scheduler.reconcile.ends import WELL, NodeStanding, Stop
from scheduler.reconcile.ledger import AttemptLife, Ledger
from scheduler.reconcile.node_rows import FlavorRule, Policy
from scheduler.reconcile.nodes import ForeignBook, NodeBook, namespace_tenants
from scheduler.reconcile.placements import RowChanges
from scheduler.reconcile.tenants import namespaces_wanted
from scheduler.reconcile.view import AttemptKey, ClusterView
from scheduler.reconcile.wanted import log_key
from scheduler.reconcile.wishes import WishBook
from scheduler.reconcile.writing import write_rows
from tenants.models import Tenant

ACTOR = "cluster"


@dataclass(slots=True)
class StartWatch:
    """What was asked about attempts whose start takes too long."""

    pulling_until: dict[AttemptKey, datetime] = field(default_factory=dict)
    not_pulling: set[AttemptKey] = field(default_factory=set)

    def forget(self, key: AttemptKey) -> None:
        """The attempt is over, or began anew."""
        self.pulling_until.pop(key, None)
        self.not_pulling.discard(key)


@dataclass(slots=True)
class Books:
    """See the module. `dues`: when to look at an attempt again though nothing is told.
    `stops`: what only the outcome of a call told, to be decided with the rest."""

    cluster: Cluster
    store: LogStore
    view: ClusterView
    ledger: Ledger
    nodes: NodeBook
    foreign: ForeignBook
    wishes: WishBook
    drift: DriftBook
    burn_ins: BurnIns
    policy: Policy = field(default_factory=lambda: Policy("observe"))
    namespaces: dict[str, NamespaceWanted] = field(default_factory=dict)
    dues: dict[AttemptKey, datetime] = field(default_factory=dict)
    stops: dict[AttemptKey, Stop] = field(default_factory=dict)
    starts: StartWatch = field(default_factory=StartWatch)
    kept_logs: set[int] = field(default_factory=set)
    changes: RowChanges = field(default_factory=RowChanges)
    nodes_live: bool = False
    _standings: tuple[int, dict[str, NodeStanding]] = field(default=(-1, {}))

    @classmethod
    def of(cls, cluster: Cluster, store: LogStore) -> Books:
        """Empty books of a cluster."""
        return cls(
            cluster,
            store,
            ClusterView(),
            Ledger(cluster.pk),
            NodeBook(cluster),
            ForeignBook(cluster),
            WishBook(cluster),
            DriftBook(cluster),
            BurnIns(cluster),
        )

    def load(self) -> None:
        """Read all rows again, and count all that was seen as changed."""
        self.changes = RowChanges()
        self.ledger.load()
        self.nodes.load()
        self.wishes.load()
        self.drift.forget()
        self.burn_ins.doubtful = True
        self.load_policy()
        self.foreign.load()
        self.kept_logs = {
            placement.id
            for attempt in self.ledger
            for placement in attempt.placements
            if placement.ended_at and self.store.exists(log_key(attempt, placement))
        }
        self.dues = {}
        self.view.doubt_everything()

    def load_policy(self) -> None:
        """Read again what people decide: mode, levels, flavors, tenants, quotas."""
        self.cluster.refresh_from_db()
        self.policy = Policy(
            mode=str(self.cluster.mode),
            selector=self.cluster.node_selector,
            levels=dict(
                Level.objects.filter(cluster=self.cluster).values_list("name", "node_label")
            ),
            flavors=tuple(
                FlavorRule(*row)
                for row in Flavor.objects.filter(cluster=self.cluster)
                .order_by("pk")
                .values_list("pk", "resource_name", "model_label", "model")
            ),
        )
        self.foreign.tenants = namespace_tenants(Tenant.objects.values_list("slug", "pk"))
        self.namespaces = namespaces_wanted(self.cluster)

    def standings(self) -> Mapping[str, NodeStanding]:
        """How every node stands. While the nodes are not watched none is thought to be worse
        than it was: unknown is not lost."""
        if not self.nodes_live or not self.view.nodes_synced:
            return {name: NodeStanding() for name in self._all_nodes()}
        version, found = self._standings
        if version != self.view.node_version:
            found = {
                name: WELL if node.ready else NodeStanding(not_ready_since=node.ready_since)
                for name, node in self.view.nodes.items()
            }
            self._standings = self.view.node_version, found
        return found

    def _all_nodes(self) -> Iterable[str]:
        placed = {p.node for attempt in self.ledger for p in attempt.placements}
        return placed | set(self.view.nodes)

    def flush(self) -> None:
        """Write the placements that have changed."""
        write_rows(Placement, self.changes.columns)
        self.changes.columns.clear()

    def reload(self, job_ids: Iterable[str]) -> set[AttemptKey]:
        """Read jobs again, after what is known of them was written."""
        self.flush()
        return self.ledger.reload(set(job_ids))

    def record(self, kind: str, attempt: AttemptLife, now: datetime, **numbers: object) -> None:
        """An event about an attempt."""
        log.record(
            log.NewEvent(
                kind=kind,
                at=now,
                tenant=attempt.tenant,
                job=attempt.job_id,
                cluster=self.cluster.name,
                actor=ACTOR,
                numbers={"attempt": attempt.number, **numbers},
            )
        )
