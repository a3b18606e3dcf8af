"""The rules of a cluster, read whole: mode, levels, flavors, quotas, queues, limits. A few small queries.

Called by `scheduler.snapshot.warm`. Equal parts of a new policy are replaced by the objects of the old one,
so that the planner's memo recognises them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from queues.models import Cluster, Flavor, Level, Queue, QueueLimit, Quota, UserLimit
from queues.models.quotas import QueueFlavor
from scheduler.core.inputs import cluster as core_cluster
from scheduler.core.inputs import quotas as core_quotas
from scheduler.models import ClusterState
from scheduler.selectors.asks import queue_name
from tenants.models import Cohort, Tenant

REACHABLE_WATCHES = frozenset({"live", "catching_up"})


@dataclass(frozen=True, slots=True)
class AllowedFlavor:
    """A flavor that a queue allows, with what a job's `gpu_model` and `sharing` are matched against."""

    name: str
    model: str
    sharing: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What the planner needs to know besides nodes and jobs.

    `tenants` are without outside usage, which `warm` adds. `allowed` is by queue row: the queue's name in the
    snapshot ("research/train") and its flavors in order of preference. `flavor_names` is by flavor row.
    """

    cluster: core_cluster.Cluster
    flavors: tuple[core_cluster.Flavor, ...]
    tenants: tuple[core_quotas.Tenant, ...]
    cohorts: tuple[core_quotas.Cohort, ...]
    queues: tuple[core_quotas.Queue, ...]
    user_limits: tuple[core_quotas.UserLimit, ...]
    allowed: Mapping[int, tuple[str, tuple[AllowedFlavor, ...]]]
    flavor_names: Mapping[int, str]

    def flavors_of(self, queue_id: int, gpu_model: list[str], sharing: str) -> tuple[str, ...]:
        """The flavors a job may run on, in order: those of its models, or all that the queue allows."""
        allowed = [f for f in self.allowed[queue_id][1] if f.sharing == sharing]
        if not gpu_model:
            return tuple(f.name for f in allowed)
        return tuple(f.name for model in gpu_model for f in allowed if f.model == model)

    def models_of(self, queue: str) -> list[tuple[str, str]]:
        """(flavor, model) of each flavor that a queue, by its name in snapshots, allows, in order."""
        for name, allowed in self.allowed.values():
            if name == queue:
                return [(flavor.name, flavor.model) for flavor in allowed]
        return []


def read_policy(cluster_id: int, before: Policy | None = None) -> Policy:
    """Read the policy; parts that equal those of `before` are the same objects. Raises Cluster.DoesNotExist."""
    flavor_rows = list(Flavor.objects.filter(cluster_id=cluster_id).order_by("name"))
    queue_rows = list(Queue.objects.filter(cluster_id=cluster_id).select_related("tenant"))
    policy = Policy(
        cluster=_cluster(cluster_id),
        flavors=tuple(
            core_cluster.Flavor(f.name, gpus_per_nvlink_domain=f.gpus_per_nvlink_domain)
            for f in flavor_rows
        ),
        tenants=_tenants(cluster_id, queue_rows),
        cohorts=_cohorts(),
        queues=_queues(cluster_id, queue_rows),
        user_limits=_user_limits(cluster_id),
        allowed=_allowed(cluster_id, queue_rows),
        flavor_names={f.pk: f.name for f in flavor_rows},
    )
    return policy if before is None else _sharing_parts(policy, before)


def _sharing_parts(policy: Policy, before: Policy) -> Policy:
    same: dict[str, Any] = {}
    for part in fields(Policy):
        old = getattr(before, part.name)
        if old == getattr(policy, part.name):
            same[part.name] = old
    return before if len(same) == len(fields(Policy)) else replace(policy, **same)


def _cluster(cluster_id: int) -> core_cluster.Cluster:
    row = Cluster.objects.get(pk=cluster_id)
    levels = Level.objects.filter(cluster_id=cluster_id).order_by("position")
    watch = (
        ClusterState.objects.filter(cluster_id=cluster_id).values_list("watch", flat=True).first()
    )
    return core_cluster.Cluster(
        name=row.name,
        mode=core_cluster.ClusterMode(row.mode),
        levels=tuple(level.name for level in levels),
        reachable=watch in REACHABLE_WATCHES,
    )


def _cohorts() -> tuple[core_quotas.Cohort, ...]:
    rows = Cohort.objects.order_by("name").values_list("name", "parent__name", "order")
    return tuple(
        core_quotas.Cohort(name=name, parent=parent, order=core_quotas.OrderPolicy(order))
        for name, parent, order in rows
    )


def _tenants(cluster_id: int, queues: list[Queue]) -> tuple[core_quotas.Tenant, ...]:
    quotas: dict[int, list[core_quotas.FlavorQuota]] = defaultdict(list)
    rows = Quota.objects.filter(flavor__cluster_id=cluster_id).select_related("flavor")
    for row in rows.order_by("flavor__name"):
        quotas[row.tenant_id].append(_quota(row))
    concerned = {*quotas, *(queue.tenant_id for queue in queues)}
    tenants = Tenant.objects.filter(pk__in=concerned).select_related("cohort").order_by("slug")
    return tuple(
        core_quotas.Tenant(
            name=tenant.slug,
            cohort=tenant.cohort.name if tenant.cohort else None,
            quotas=tuple(quotas[tenant.pk]),
            version=tenant.quota_version,
        )
        for tenant in tenants
    )


def _quota(row: Quota) -> core_quotas.FlavorQuota:
    return core_quotas.FlavorQuota(
        flavor=row.flavor.name,
        nominal=row.nominal,
        borrowing_limit=row.borrowing_limit,
        lending_limit=row.lending_limit,
        weight=float(row.weight),
        headroom=row.headroom,
    )


def _queues(cluster_id: int, rows: list[Queue]) -> tuple[core_quotas.Queue, ...]:
    limits: dict[int, list[tuple[str, int]]] = defaultdict(list)
    found = QueueLimit.objects.filter(queue__cluster_id=cluster_id, flavor__cluster_id=cluster_id)
    for queue_id, flavor, limit in found.order_by("flavor__name").values_list(
        "queue_id", "flavor__name", "limit"
    ):
        limits[queue_id].append((flavor, limit))
    allowed: dict[int, list[str]] = defaultdict(list)
    ways = QueueFlavor.objects.filter(queue__cluster_id=cluster_id).order_by("position", "id")
    for queue_id, flavor in ways.values_list("queue_id", "flavor__name"):
        allowed[queue_id].append(flavor)
    named = sorted(rows, key=_name)
    return tuple(_queue(row, tuple(limits[row.pk]), tuple(allowed[row.pk])) for row in named)


def _name(row: Queue) -> str:
    return queue_name(row.tenant.slug, row.name)


def _queue(
    row: Queue, limits: tuple[tuple[str, int], ...], flavors: tuple[str, ...]
) -> core_quotas.Queue:
    shortest = row.backfill_order == "shortest_limit"
    return core_quotas.Queue(
        name=_name(row),
        tenant=row.tenant.slug,
        state=core_quotas.QueueState(row.state),
        limits=limits,
        booking_depth=row.bookings,
        booking_after_seconds=float(row.booking_after_seconds),
        backfill_order=core_quotas.BackfillOrder.SHORTEST
        if shortest
        else core_quotas.BackfillOrder.ORDER,
        backfill=row.backfill_order != "none",
        user_fairness=row.user_fair_share,
        min_runtime_seconds=float(row.min_runtime_seconds),
        flavors=flavors,
    )


def _user_limits(cluster_id: int) -> tuple[core_quotas.UserLimit, ...]:
    rows = UserLimit.objects.filter(flavor__cluster_id=cluster_id).order_by(
        "tenant__slug", "user__username", "flavor__name"
    )
    return tuple(
        core_quotas.UserLimit(tenant=tenant, user=user, flavor=flavor, limit=limit)
        for tenant, user, flavor, limit in rows.values_list(
            "tenant__slug", "user__username", "flavor__name", "limit"
        )
    )


def _allowed(
    cluster_id: int, queues: list[Queue]
) -> dict[int, tuple[str, tuple[AllowedFlavor, ...]]]:
    flavors: dict[int, list[AllowedFlavor]] = defaultdict(list)
    rows = QueueFlavor.objects.filter(queue__cluster_id=cluster_id).order_by("position", "id")
    for queue_id, name, model, sharing in rows.values_list(
        "queue_id", "flavor__name", "flavor__model", "flavor__sharing"
    ):
        flavors[queue_id].append(AllowedFlavor(name, model, sharing))
    return {queue.pk: (_name(queue), tuple(flavors[queue.pk])) for queue in queues}
