"""A role as numbers on one grid: what a replica takes, how many, and what must stay together.

Made from an `Ask`'s roles once per grid (memoised by the caller).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scheduler.core.inputs.cluster import NVLINK_LEVEL
from scheduler.core.inputs.jobs import Role
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints


@dataclass(frozen=True, slots=True)
class Layer:
    """Replicas come in groups of `size`, each group inside one domain of tier `tier`."""

    tier: int
    size: int


@dataclass(frozen=True, slots=True)
class Demand:
    """One role on one grid.

    `limit_tier` is the widest tier that the role may cross-fill: 0 is the root (no requirement).
    `layers` are ordered from narrow to wide. `groups_of` is the number of GPUs that must share
    an NVLink domain inside a node (1: no matter).
    """

    role: str
    request: tuple[int, int, int, int]
    count: int
    least: int
    limit_tier: int
    layers: tuple[Layer, ...] = ()
    groups_of: int = 1
    domain_gpus: int = 0

    @property
    def granule(self) -> int:
        """The number of replicas by which the role grows or shrinks."""
        return max((layer.size for layer in self.layers), default=1)


class UnknownLevelError(ValueError):
    """An ask names a level that the cluster does not have."""


def demand_of(role: Role, grid: Grid) -> Demand:
    """The role's demand on this grid.

    Raises UnknownLevelError for a level that the grid lacks (a hard constraint is never dropped).
    """
    topology = role.topology
    layers = list(_tensor_parallel_layers(role, grid))
    if topology.slice is not None:
        # A slice holds whole tensor-parallel groups.
        size = math.lcm(topology.slice.replicas, *(layer.size for layer in layers))
        layers.append(Layer(_tier(grid, topology.slice.level), size))
    limit = 0 if topology.required is None else _tier(grid, topology.required)
    if topology.preferred is not None:
        _tier(grid, topology.preferred)
    return Demand(
        role=role.name,
        request=role.per_replica.as_tuple(),
        count=role.replicas,
        least=role.least_replicas,
        limit_tier=limit,
        layers=tuple(sorted(layers, key=lambda layer: -layer.tier)),
        groups_of=min(role.tensor_parallel, max(1, role.per_replica.gpus)),
        domain_gpus=grid.flavor.gpus_per_nvlink_domain,
    )


def _tier(grid: Grid, level: str) -> int:
    tier = grid.tier_index(level)
    if tier is None:
        raise UnknownLevelError(level)
    return tier


def _tensor_parallel_layers(role: Role, grid: Grid) -> tuple[Layer, ...]:
    """Replicas that together make one tensor-parallel group share an NVLink domain: a node, or
    the `nvlink` level where its domains are wider than a node."""
    gpus = role.per_replica.gpus
    if gpus < 1 or role.tensor_parallel <= gpus:
        return ()
    size = -(-role.tensor_parallel // gpus)
    wide = grid.tier_index(NVLINK_LEVEL)
    return (Layer(grid.node_tier if wide is None else wide, size),)


def replica_capacity(demand: Demand, free: Ints, usable: Bools | None) -> Ints:
    """How many replicas each node holds: min over GPUs, CPU, memory and pods, never negative.

    `free` is (4, nodes); nodes outside `usable` hold none. Inside a node whose NVLink domains are
    narrower than the node, GPUs are taken to be handed out domain by domain, as the device
    plugin's preferred allocation does.
    """
    cap: Ints | None = None
    for resource, request in enumerate(demand.request):
        if request <= 0:
            continue
        row = free[resource]
        if resource == GPUS and demand.groups_of > 1:
            fits = _grouped(demand, row)
        else:
            fits = row if request == 1 else row // request
        cap = fits if cap is None else np.minimum(cap, fits)
    if cap is None:
        cap = np.full(free.shape[1], demand.count, dtype=np.int64)
    cap = np.maximum(cap, 0)
    if usable is not None:
        cap = np.where(usable, cap, 0)
    return cap


def _grouped(demand: Demand, free_gpus: Ints) -> Ints:
    size, domain = demand.groups_of, max(demand.domain_gpus, 1)
    if size > domain:
        return np.zeros_like(free_gpus)
    groups = (free_gpus // domain) * (domain // size) + (free_gpus % domain) // size
    return groups // -(-demand.request[GPUS] // size)


def limiting_resource(demand: Demand, free: Ints, usable: Bools) -> str:
    """The resource that bounds the replicas most over the usable nodes."""
    totals = []
    for name, resource in (("gpus", 0), ("cpu", 1), ("memory", 2), ("pods", 3)):
        request = demand.request[resource]
        if request > 0:
            fits = np.where(usable, np.maximum(free[resource], 0) // request, 0)
            totals.append((int(fits.sum()), resource, name))
    return min(totals)[2] if totals else "gpus"
