"""What a profile says: groups of alike nodes, and how the cluster behaves.

A profile is a YAML or JSON file; docs/simcluster.md lists the fields. `load_profile` finds the
shipped ones by name.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
HERE = Path(__file__).parent
CONVENTIONS = ("topograph", "topograph-old", "gke", "aws", "oci", "coreweave", "none")
GENERATIONS = ("A", "B", "C")


class ProfileError(ValueError):
    """A profile that cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are alike."""

    name: str
    count: int
    prefix: str = "gpu-"
    first_index: int = 0
    gpu_model: str = ""
    gpus: int = 8
    cpu: int = 192
    memory_gib: int = 2048
    pods: int = 110
    nodes_per_leaf: int = 16
    leaves_per_spine: int = 8
    first_leaf: int = 0
    first_spine: int = 0
    conventions: tuple[str, ...] = ("topograph", "topograph-old")
    nvlink_domain_nodes: int = 0
    driver: str = "570.158.01"
    cuda: str = "12.8"
    driver_exceptions: dict[str, str] = field(default_factory=dict)
    device_plugin: bool = True
    without_device_plugin: tuple[int, ...] = ()
    cordoned: tuple[int, ...] = ()
    time_slices: int = 0
    rename_shared: bool = False
    fail_requests_above_one: bool = False
    mig: tuple[str, ...] = ()
    mig_strategy: str = "single"
    dcgm_generation: str = "B"
    dcgm_optional_metrics: bool = True
    taint: bool = False
    instance_type: str = ""
    zone: str = "dc1-a"
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster: its nodes and the pace of its kubelets."""

    name: str
    groups: tuple[NodeGroup, ...] = ()
    description: str = ""
    region: str = "dc1"
    pull_seconds: tuple[float, float] = (0.2, 0.6)
    start_seconds: tuple[float, float] = (0.1, 0.4)
    default_run_seconds: float = 60.0
    lease_seconds: float = 10.0
    node_grace_seconds: float = 40.0
    """How long a node may be silent before it is Unknown."""
    node_controller: bool = True

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return sum(group.count for group in self.groups)


def _build(kind: type, values: Json, where: str) -> Any:
    known = {item.name for item in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ProfileError(f"{where}: unknown field {unknown[0]!r}")
    shaped = {
        name: tuple(value) if isinstance(value, list) and name != "groups" else value
        for name, value in values.items()
    }
    try:
        return kind(**shaped)
    except TypeError as error:
        raise ProfileError(f"{where}: {error}") from None


def profile_of(values: Json) -> Profile:
    """A profile from its parsed file. Raises ProfileError."""
    groups = []
    for place, entry in enumerate(values.get("groups") or ()):
        group: NodeGroup = _build(NodeGroup, entry, f"groups[{place}]")
        _check(group, f"groups[{place}]")
        groups.append(group)
    built: Profile = _build(Profile, {**values, "groups": ()}, "profile")
    return Profile(
        **{
            **{item.name: getattr(built, item.name) for item in fields(Profile)},
            "groups": tuple(groups),
        }
    )


def _check(group: NodeGroup, where: str) -> None:
    for convention in group.conventions:
        if convention not in CONVENTIONS:
            raise ProfileError(f"{where}: unknown label convention {convention!r}")
    if group.dcgm_generation not in GENERATIONS:
        raise ProfileError(f"{where}: dcgm_generation must be one of {', '.join(GENERATIONS)}")
    if group.count < 0 or group.gpus < 0:
        raise ProfileError(f"{where}: counts must not be negative")


def shipped_profiles() -> list[str]:
    """The names of the profiles in this folder."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or one from a YAML or JSON file. Raises ProfileError."""
    path = HERE / f"{name_or_path}.yaml"
    if not path.exists():
        path = Path(name_or_path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(shipped_profiles())
        raise ProfileError(f"{name_or_path}: {error.strerror} (shipped: {known})") from None
    except yaml.YAMLError as error:
        raise ProfileError(f"{name_or_path}: {error}") from None
    if not isinstance(values, dict):
        raise ProfileError(f"{name_or_path}: not a mapping")
    return profile_of({"name": path.stem, **values})


def uniform_profile(
    nodes: int, *, gpus_per_node: int = 8, nodes_per_leaf: int = 16, leaves_per_spine: int = 8
) -> Profile:
    """A cluster of alike H100 nodes."""
    group = NodeGroup(
        "h100", nodes, gpu_model="H100", gpus=gpus_per_node, nodes_per_leaf=nodes_per_leaf,
        leaves_per_spine=leaves_per_spine,
    )  # fmt: skip
    return Profile("uniform", (group,) if nodes else ())
