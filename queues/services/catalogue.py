"""Clusters, flavors and presets: edited by platform admins, and what the cluster process knows of node sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.common import log
from queues.models import Cluster, Flavor, Quota


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """The most that any one node of a flavor has, healthy or not: whole GPUs, thousandths of a core, MiB."""

    gpus: int
    cpu_millis: int
    memory_mib: int


def record_node_sizes(
    cluster: Cluster, sizes: Mapping[int, NodeSizes], now: datetime
) -> list[Flavor]:
    """Keep the largest node of each flavor (by id); returns the flavors that changed.

    Called by the cluster process after it has observed nodes. Writes and tells only what differs, so that it
    may be called at every tick.
    """
    with log.writing():
        changed = [
            flavor
            for flavor in Flavor.objects.filter(cluster=cluster, pk__in=sizes.keys())
            if _resize(flavor, sizes[flavor.pk])
        ]
        if changed:
            Flavor.objects.bulk_update(
                changed, ["gpus_per_node", "cpu_millis_per_node", "memory_mib_per_node"]
            )
        for flavor in changed:
            log.record(_resized(cluster, flavor, now))
    return changed


def _resize(flavor: Flavor, sizes: NodeSizes) -> bool:
    before = (flavor.gpus_per_node, flavor.cpu_millis_per_node, flavor.memory_mib_per_node)
    after = (sizes.gpus, sizes.cpu_millis, sizes.memory_mib)
    flavor.gpus_per_node, flavor.cpu_millis_per_node, flavor.memory_mib_per_node = after
    return before != after


def _resized(cluster: Cluster, flavor: Flavor, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="flavor.node_sizes",
        at=now,
        cluster=cluster.name,
        actor="cluster",
        numbers={"flavor": flavor.name, "gpus_per_node": flavor.gpus_per_node},
    )


def record_outside_use(cluster: Cluster, used: Mapping[tuple[int, int], int], now: datetime) -> int:
    """Keep the GPUs that foreign pods use, by (tenant id, flavor id); returns how many quotas changed.

    Called by the cluster process after it has observed foreign pods; pairs that are not in `used` become 0.
    Writes and tells only what differs.
    """
    with log.writing():
        changed = []
        for quota in Quota.objects.filter(flavor__cluster=cluster).select_related(
            "tenant", "flavor"
        ):
            outside = used.get((quota.tenant_id, quota.flavor_id), 0)
            if quota.outside != outside:
                quota.outside = outside
                changed.append(quota)
        if changed:
            Quota.objects.bulk_update(changed, ["outside"])
        for quota in changed:
            log.record(_outside(cluster, quota, now))
    return len(changed)


def _outside(cluster: Cluster, quota: Quota, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="quota.outside",
        at=now,
        tenant=quota.tenant.slug,
        cluster=cluster.name,
        actor="cluster",
        numbers={"flavor": quota.flavor.name, "outside": quota.outside},
    )
