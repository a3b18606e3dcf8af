"""What is asked and what runs: asks, waiting jobs, running jobs.

Built by `scheduler.snapshot` (rows) and `scheduler.replay` (traces). Equal `Ask` objects should
be the same object where that is cheap: the planner recognises them faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scheduler.core.resources import Amount


@dataclass(frozen=True, slots=True)
class SliceAsk:
    """Every `replicas` replicas of the role must sit in one domain of `level`."""

    replicas: int
    level: str


@dataclass(frozen=True, slots=True)
class TopologyAsk:
    """Levels by name (`node` allowed). `required` is never left; `preferred` is what the user
    hopes for and what the achieved level is compared with."""

    required: str | None = None
    preferred: str | None = None
    slice: SliceAsk | None = None


NO_TOPOLOGY = TopologyAsk()


@dataclass(frozen=True, slots=True)
class Role:
    """A set of identical pods. `per_replica.pods` is 1.

    `tensor_parallel` is the size, in GPUs, of a group that must stay inside one NVLink domain;
    it divides or is a multiple of `per_replica.gpus`.
    """

    name: str
    replicas: int
    per_replica: Amount
    min_replicas: int | None = None
    topology: TopologyAsk = NO_TOPOLOGY
    tensor_parallel: int = 1

    @property
    def least_replicas(self) -> int:
        """The fewest replicas that may run together."""
        return self.replicas if self.min_replicas is None else self.min_replicas


class OnPreemption(StrEnum):
    """What becomes of a preempted job."""

    REQUEUE = "requeue"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`interval_seconds` between a job's own checkpoints, `grace_seconds` to write one."""

    interval_seconds: float
    grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ask:
    """All that a job asks for, except its identity and times. Hashable.

    `flavors` are tried in order of preference; `max_runtime_seconds` None never ends;
    `node_selector` are (label, value) pairs that must all match.
    """

    tenant: str
    queue: str
    user: str
    flavors: tuple[str, ...]
    roles: tuple[Role, ...]
    priority: int = 500
    preemptible: bool = True
    max_runtime_seconds: float | None = None
    grace_seconds: float = 30.0
    checkpoint: Checkpoint | None = None
    on_preemption: OnPreemption = OnPreemption.REQUEUE
    node_selector: tuple[tuple[str, str], ...] = ()
    exclude_nodes: frozenset[str] = frozenset()
    min_cuda: tuple[int, int] | None = None

    @property
    def limit(self) -> float:
        """The run-time limit in seconds; infinity without one."""
        return math.inf if self.max_runtime_seconds is None else self.max_runtime_seconds

    @property
    def gpus(self) -> int:
        """GPUs of the whole job at full size."""
        return sum(role.replicas * role.per_replica.gpus for role in self.roles)

    @property
    def least_gpus(self) -> int:
        """GPUs of the smallest gang that may start."""
        return sum(role.least_replicas * role.per_replica.gpus for role in self.roles)

    @property
    def is_elastic(self) -> bool:
        """Whether any role may run with fewer replicas than asked."""
        return any(role.least_replicas < role.replicas for role in self.roles)


@dataclass(frozen=True, slots=True)
class Seat:
    """One replica on one node. `gpus` is also the number of seats that it takes there."""

    role: str
    replica: int
    rank: int
    node: str
    gpus: int
    cpu_millis: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A pending job.

    `depends_on` lists dependencies that are not yet met; `backoff_until` an infrastructure
    back-off; `refused_until` with `refused_message` a refusal by Kubernetes. `survivors` are the
    seats of the last attempt whose nodes are still good: they keep node and rank (a swap).
    `started_before` tells a job that comes back from one that is new.
    """

    id: str
    ask: Ask
    submitted_at: float
    begin_at: float | None = None
    depends_on: tuple[str, ...] = ()
    backoff_until: float | None = None
    refused_until: float | None = None
    refused_message: str = ""
    survivors: tuple[Seat, ...] = ()
    preemptions: int = 0
    version: int = 0


class EvictionRule(StrEnum):
    """The rule under which a running job is stopped for another."""

    PRIORITY = "priority"
    RECLAIM = "reclaim"
    FAIR_SHARE = "fair_share"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds seats: placed, starting, running or stopping.

    `seats` are those not yet released (pod not seen gone or finished). `started_at` None until it
    runs; then its end is started_at + limit + grace, before placed_at + `start_allowance_seconds`
    + limit + grace. A stopping job ends by `stops_by`. `evicted_for` names the job that the
    capacity is being freed for (the planner holds it for that job); `eviction_signalled` says
    whether the eviction can still be withdrawn. `last_checkpoint_at` is what
    the job reported; None: the planner goes by the checkpoint interval, if there is one.
    `replicas_ended`: some have exited, so that fewer seats are left than the attempt was given; such a
    job is on its way out and is not made larger.
    """

    id: str
    attempt: int
    ask: Ask
    flavor: str
    seats: tuple[Seat, ...]
    placed_at: float
    started_at: float | None = None
    start_allowance_seconds: float = 60.0
    stopping: bool = False
    stops_by: float | None = None
    last_checkpoint_at: float | None = None
    preemptions: int = 0
    evicted_for: str | None = None
    eviction_signalled: bool = False
    version: int = 0
    replicas_ended: bool = False

    @property
    def gpus(self) -> int:
        """GPUs that the job holds now."""
        return sum(seat.gpus for seat in self.seats)


@dataclass(frozen=True, slots=True)
class Hold:
    """Capacity that is being freed for a preemptor and kept for it until `expires_at`.

    `nodes` are (node, GPUs, CPU millis, memory MiB, pods) of the place that was found for it.
    """

    job: str
    flavor: str
    nodes: tuple[tuple[str, int, int, int, int], ...]
    expires_at: float
