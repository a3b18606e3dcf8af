"""Make a row unless it exists. All functions may be called again: what is there stays as people have changed it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.common import log
from queues.models import (
    Cluster,
    ClusterMode,
    Flavor,
    Level,
    Queue,
    QueueState,
    Quota,
)
from queues.services.queues import create_queue
from queues.services.quotas import set_quotas
from tenants.access import Actor
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


def ensure_quotas(
    actor: Actor, tenant: Tenant, nominal: Mapping[Flavor, int], now: datetime
) -> None:
    """A tenant's first quota, in GPUs by flavor, free to lend and borrow."""
    if Quota.objects.filter(tenant=tenant).exists() or not nominal:
        return
    flavors = [
        {"flavor": f"{flavor.cluster.name}/{flavor.name}", "nominal": gpus}
        for flavor, gpus in nominal.items()
    ]
    set_quotas(actor, tenant, {"flavors": flavors}, None, now)


def ensure_queue(
    actor: Actor,
    tenant: Tenant,
    name: str,
    flavors: Iterable[Flavor],
    now: datetime,
    **settings: Any,
) -> None:
    """An open queue that offers the flavors, all of one cluster, in this order. settings: what it says besides."""
    offered = list(flavors)
    if Queue.objects.filter(tenant=tenant, name=name).exists() or not offered:
        return
    wanted = {
        "name": name,
        "cluster": offered[0].cluster.name,
        "state": QueueState.OPEN.value,
        "flavors": [flavor.name for flavor in offered],
        **settings,
    }
    create_queue(actor, tenant, wanted, now)
