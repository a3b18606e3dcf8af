"""Make a row unless it exists. Each function writes at most one thing and tells the log; all are idempotent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.common import log
from queues.models import (
    Cluster,
    ClusterMode,
    Flavor,
    Level,
    Queue,
    QueueFlavor,
    Quota,
)
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class FlavorSpec:
    """A kind of GPU to offer. model: the value of `model_label` on its nodes."""

    name: str
    model: str
    resource_name: str = "nvidia.com/gpu"
    model_label: str = "nvidia.com/gpu.product"
    gpus_per_nvlink_domain: int = 8


def ensure_cluster(
    name: str, mode: ClusterMode, levels: Mapping[str, str], now: datetime
) -> Cluster:
    """A cluster with its levels, widest first: {"spine": node label, "leaf": node label}."""
    with log.writing():
        cluster, made = Cluster.objects.get_or_create(
            name=name, defaults={"mode": mode, "created_at": now}
        )
        if made:
            for position, (level, label) in enumerate(levels.items()):
                Level.objects.create(
                    cluster=cluster, name=level, node_label=label, position=position
                )
            log.record(log.NewEvent(kind="cluster.created", at=now, cluster=name))
    return cluster


def ensure_flavor(cluster: Cluster, spec: FlavorSpec, now: datetime) -> Flavor:
    """A flavor of the cluster."""
    with log.writing():
        flavor, made = Flavor.objects.get_or_create(
            cluster=cluster,
            name=spec.name,
            defaults={
                "resource_name": spec.resource_name,
                "model_label": spec.model_label,
                "model": spec.model,
                "gpus_per_nvlink_domain": spec.gpus_per_nvlink_domain,
            },
        )
        if made:
            event = log.NewEvent(
                kind="flavor.created", at=now, cluster=cluster.name, numbers={"flavor": spec.name}
            )
            log.record(event)
    return flavor


def ensure_quota(tenant: Tenant, flavor: Flavor, nominal: int, now: datetime) -> Quota:
    """A tenant's first quota of a flavor, free to lend and borrow. Later edits go through the quota service."""
    with log.writing():
        quota, made = Quota.objects.get_or_create(
            tenant=tenant, flavor=flavor, defaults={"nominal": nominal}
        )
        if made:
            log.record(log.NewEvent(kind="quota.changed", at=now, tenant=tenant.slug))
    return quota


def ensure_queue(
    tenant: Tenant, name: str, cluster: Cluster, flavors: Iterable[Flavor], now: datetime
) -> Queue:
    """An open queue that offers the flavors in this order."""
    with log.writing():
        queue, made = Queue.objects.get_or_create(
            tenant=tenant, name=name, defaults={"cluster": cluster, "created_at": now}
        )
        if made:
            for position, flavor in enumerate(flavors):
                QueueFlavor.objects.create(queue=queue, flavor=flavor, position=position)
            event = log.NewEvent(
                kind="queue.created", at=now, tenant=tenant.slug, cluster=cluster.name
            )
            log.record(event)
    return queue
