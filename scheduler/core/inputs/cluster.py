"""The cluster as the planner sees it: mode, levels, flavors, nodes, windows.

Built by `scheduler.snapshot` from rows and by `scheduler.replay` from a trace; read by
every room of the planner. All times are float seconds since the epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.core.resources import NOTHING, Amount

NODE_LEVEL = "node"
"""The lowest level; implicit, never listed in `Cluster.levels`."""

NVLINK_LEVEL = "nvlink"
"""The level whose domains are NVLink domains, where they are wider than a node."""


class ClusterMode(StrEnum):
    """Whether the planner's decisions may be enacted."""

    SCHEDULE = "schedule"
    OBSERVE = "observe"
    PAUSED = "paused"


class OutCause(StrEnum):
    """Why a node takes no new job. A node may be out for several causes at once."""

    CORDONED = "cordoned"
    DRAINING = "draining"
    NOT_READY = "not_ready"
    UNHEALTHY = "unhealthy"
    TAINT = "taint"
    WINDOW = "window"
    NO_DEVICE_PLUGIN = "no_device_plugin"
    DRIVER = "driver"
    UNMANAGED = "unmanaged"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: `levels` are names from widest to narrowest, without `node`."""

    name: str
    mode: ClusterMode = ClusterMode.SCHEDULE
    levels: tuple[str, ...] = ()
    reachable: bool = True


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of accelerator capacity; `gpus_per_nvlink_domain` may exceed a node's GPUs."""

    name: str
    gpus_per_nvlink_domain: int = 8


@dataclass(frozen=True, slots=True)
class Node:
    """A node and what it offers.

    `capacity` is what Kubernetes can allocate now (GPUs that are out are already taken off);
    `inventory_gpus` counts every GPU the node has, healthy or not, and defaults to
    `capacity.gpus`. `domains` holds (level, domain name) pairs for the levels that the node's
    labels name. `foreign` is used by pods that match no placement: strangers, leftovers and
    terminating pods. `outs` empty means that the node takes jobs. `labels` are those that node
    selectors may name. `cuda` is the highest CUDA version (major, minor) of its driver.
    """

    name: str
    flavor: str | None
    capacity: Amount
    domains: tuple[tuple[str, str], ...] = ()
    outs: tuple[OutCause, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    cuda: tuple[int, int] | None = None
    foreign: Amount = NOTHING
    inventory_gpus: int | None = None
    version: int = 0


class WindowKind(StrEnum):
    """Kept free for work on the nodes, or kept for somebody."""

    MAINTENANCE = "maintenance"
    RESERVED = "reserved"


class Crossing(StrEnum):
    """Which jobs may be placed across a window's start."""

    CHECKPOINTABLE = "checkpointable"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes × [starts_at, ends_at), one occurrence of a maintenance window or reservation.

    Recurring windows arrive expanded, one `Window` per occurrence. `admits_*` name who may use
    a reservation; an empty reservation keeps its nodes as spares for swaps (`spare`).
    """

    id: str
    starts_at: float
    ends_at: float
    nodes: frozenset[str]
    kind: WindowKind = WindowKind.MAINTENANCE
    crossing: Crossing = Crossing.CHECKPOINTABLE
    admits_tenants: frozenset[str] = field(default_factory=frozenset)
    admits_queues: frozenset[str] = field(default_factory=frozenset)
    admits_jobs: frozenset[str] = field(default_factory=frozenset)
    spare: bool = False
    version: int = 0
