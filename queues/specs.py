"""What a valid job asks for, as plain values: the result of validation, and what every door builds on. Pure.

Made by `contract` (never by hand outside tests); stored by `services.submission`; `scheduler` turns it into the
planner's ask for simulations. Units are in the names; empty text means "not asked".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

PRIORITY_CLASSES: Mapping[str, int] = {"low": 100, "normal": 500, "high": 900}
HIGHEST_PRIORITY = 1000
MAIN_ROLE = "main"
NODE_LEVEL = "node"


@dataclass(frozen=True, slots=True)
class FlavorOffer:
    """A flavor that a queue allows. Sizes are those of its largest node, 0 while no node was seen."""

    id: int
    name: str
    model: str
    gpus_per_nvlink_domain: int = 8
    gpus_per_node: int = 0
    cpu_millis_per_node: int = 0
    memory_mib_per_node: int = 0
    default_cpu_millis_per_gpu: int = 8_000
    default_memory_mib_per_gpu: int = 65_536


@dataclass(frozen=True, slots=True)
class QueueOffer:
    """What a queue offers to one submitter: everything that validation must know and cannot read from the job.

    flavors: in order of preference. levels: widest first, `node` not among them. presets: name → (id, flavor
    id or None for any). Priorities are what this submitter may ask for.
    """

    tenant_id: int
    tenant: str
    queue_id: int
    queue: str
    cluster: str
    state: str = "open"
    flavors: tuple[FlavorOffer, ...] = ()
    levels: tuple[str, ...] = ()
    presets: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    pull_secrets: frozenset[str] = frozenset()
    lowest_priority: int = 0
    highest_priority: int = 500
    default_max_runtime_seconds: int | None = None
    longest_max_runtime_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """Every `replicas` replicas must sit in one domain of `level`."""

    replicas: int
    level: str


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """`level` is required or preferred as `mode` says; `preferred_level` is hoped for below a required one."""

    level: str = ""
    mode: str = "preferred"
    preferred_level: str = ""
    slice: SliceSpec | None = None


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A set of identical pods. `min_replicas` of them must run together. `env` adds to the job's own."""

    name: str
    replicas: int
    min_replicas: int
    gpus_per_replica: int
    cpu_millis_per_replica: int
    memory_mib_per_replica: int
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    topology: TopologySpec = field(default_factory=TopologySpec)
    tensor_parallel: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the whole role at full size."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A claim in the tenant's namespace, and where it is mounted."""

    claim: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """How often the job saves, how long a save takes at most, how it wants to be told to save."""

    interval_seconds: int
    grace_seconds: int = 120
    notice: str = "signal"


@dataclass(frozen=True, slots=True)
class DependencySpec:
    """A job that must have succeeded, or finished, first: by id, or by `external_id` within the tenant."""

    job: str = ""
    external_id: str = ""
    on: str = "succeeded"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as the contract has it, with every default filled in.

    flavors: names of the candidates in order of preference. defaults: JSON Pointer → where the value that
    nobody sent came from ("contract", "queue", "flavor", "cluster", "role").
    """

    name: str
    tenant: str
    tenant_id: int
    queue: str
    queue_id: int
    cluster: str
    flavors: tuple[str, ...]
    roles: tuple[RoleSpec, ...]
    decides: str = MAIN_ROLE
    gpu_model: tuple[str, ...] = ()
    sharing: str = "exclusive"
    min_cuda: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    exclude_nodes: tuple[str, ...] = ()
    preset: str = ""
    preset_id: int | None = None
    image_pull_secret: str = ""
    shared_memory_mib: int | None = None
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[VolumeSpec, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 500
    preemptible: bool = True
    on_preemption: str = "requeue"
    max_runtime_seconds: int | None = None
    grace_seconds: int = 30
    checkpoint: CheckpointSpec | None = None
    max_restarts: int = 0
    stall_timeout_seconds: int | None = None
    on_stall: str = "alert"
    begin_at: datetime | None = None
    depends_on: tuple[DependencySpec, ...] = ()
    external_id: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs of the whole job at full size."""
        return sum(role.gpus for role in self.roles)
