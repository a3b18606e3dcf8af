"""What is kept of a Node and a Pod: only the fields that Muster reads.

Made by `parse`, delivered by `watching`, read by scheduler.reconcile and scheduler.health.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

OUR_PREFIX = "muster.dev/"


@dataclass(frozen=True, slots=True)
class TaintSeen:
    """One taint of a node. added_at: as Kubernetes notes it, where it does."""

    key: str
    value: str
    effect: str
    added_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ConditionSeen:
    """One condition of a node: `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node. Devices are extended resources by name (`nvidia.com/gpu`); an absent key is not 0.

    `memory_mib` and `cpu_millis` are allocatable amounts. `taints` leaves nothing out.
    """

    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    capacity_devices: Mapping[str, int]
    allocatable_devices: Mapping[str, int]
    cpu_millis: int
    memory_mib: int
    pods: int
    taints: tuple[TaintSeen, ...]
    unschedulable: bool
    conditions: tuple[ConditionSeen, ...]
    driver: str | None
    cuda: str | None
    boot_id: str
    kubelet_version: str
    address: str | None
    deleting: bool

    @property
    def ready(self) -> bool:
        """True when the kubelet reports Ready."""
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def ready_since(self) -> datetime | None:
        """Since when `ready` has its present value, if the node says so."""
        condition = self.condition("Ready")
        return condition.since if condition else None

    def condition(self, kind: str) -> ConditionSeen | None:
        """The condition of that type, if any."""
        return next((c for c in self.conditions if c.type == kind), None)


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """What somebody (the kubelet, node-problem-detector) said of a node."""

    node: str
    reason: str
    message: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Requests:
    """What a pod takes from its node: the scheduler's rule over its containers."""

    devices: Mapping[str, int]
    cpu_millis: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class ContainerSeen:
    """One container's state: `waiting`, `running` or `terminated`; `exit_code` when terminated."""

    name: str
    init: bool
    state: str
    reason: str
    message: str
    exit_code: int | None
    started_at: datetime | None
    finished_at: datetime | None
    restarts: int


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod. `labels` and `annotations` keep only those under `muster.dev/`.

    `phase` is Pending, Running, Succeeded, Failed or Unknown; `reason` and `message` are the
    pod's own (a kubelet that refuses it says why there); `disruption` is the reason of its
    DisruptionTarget condition.
    """

    namespace: str
    name: str
    uid: str
    version: str
    node: str | None
    phase: str
    reason: str
    message: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requests: Requests
    scheduler: str
    owner: str | None
    priority_class: str
    created_at: datetime | None
    started_at: datetime | None
    deleting_since: datetime | None
    deletion_grace_seconds: int | None
    disruption: str
    containers: tuple[ContainerSeen, ...]

    @property
    def finished(self) -> bool:
        """True when no container of it runs or will run again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        """True once its deletion has begun."""
        return self.deleting_since is not None

    @property
    def ours(self) -> bool:
        """True when it bears the labels of a pod that Muster creates."""
        return f"{OUR_PREFIX}job" in self.labels and f"{OUR_PREFIX}attempt" in self.labels

    @property
    def main(self) -> ContainerSeen | None:
        """The first container proper, once the kubelet speaks of it."""
        return next((c for c in self.containers if not c.init), None)
