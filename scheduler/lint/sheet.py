"""What the checks read of a cluster: its nodes, levels and flavors as frozen values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

PCI_NVIDIA = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
PCI_AMD = (
    "feature.node.kubernetes.io/pci-1002.present",
    "feature.node.kubernetes.io/pci-0380_1002.present",
)
# Only a machine with a working driver is given this, by GPU Feature Discovery.
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
PRODUCT_LABEL = "nvidia.com/gpu.product"
CLIQUE_LABEL = "nvidia.com/gpu.clique"


@dataclass(frozen=True, slots=True)
class LintNode:
    """A node as the checks read it. flavor: empty where its model is of none; capacity, allocatable: units of it.

    unseen: Kubernetes has no GPU resource for it, though it should. domains: level name → domain.
    """

    name: str
    labels: Mapping[str, str]
    flavor: str = ""
    capacity: int = 0
    allocatable: int = 0
    domains: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    cuda: str = ""
    unseen: bool = False
    ready: bool = True
    taints: tuple[str, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Whether anything says that there is a GPU in it."""
        if self.flavor or self.unseen or self.labels.get("nvidia.com/gpu.present") == "true":
            return True
        signs = (*PCI_NVIDIA, *PCI_AMD)
        return PRODUCT_LABEL in self.labels or any(self.labels.get(s) == "true" for s in signs)

    @property
    def is_mig(self) -> bool:
        """Whether its GPUs are cut into MIG devices."""
        wanted = self.labels.get("nvidia.com/mig.config", "all-disabled")
        return wanted != "all-disabled" or "-MIG-" in self.labels.get(PRODUCT_LABEL, "")

    @property
    def sharing(self) -> str:
        """`time-slicing` or `mps` where several pods share a GPU, else empty."""
        strategy = self.labels.get("nvidia.com/gpu.sharing-strategy", "none")
        if strategy in ("time-slicing", "mps"):
            return strategy
        return "time-slicing" if self.labels.get(PRODUCT_LABEL, "").endswith("-SHARED") else ""


@dataclass(frozen=True)
class Sheet:
    """A cluster as the checks read it. levels: (name, node label), widest first; flavors: their models by name.

    silent, heard: nodes whose telemetry is known not to answer, and to answer; None where nobody has looked.
    """

    cluster: str
    nodes: Sequence[LintNode]
    levels: Sequence[tuple[str, str]] = ()
    flavors: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[str] | None = None
    heard: frozenset[str] | None = None

    @cached_property
    def gpu_nodes(self) -> tuple[LintNode, ...]:
        """Those with GPUs, seen or not."""
        return tuple(node for node in self.nodes if node.has_gpu)


def by_domain(nodes: Iterable[LintNode], level: str) -> dict[str, list[LintNode]]:
    """The nodes under each domain of a level; those without a label are left out."""
    found: dict[str, list[LintNode]] = {}
    for node in nodes:
        if name := node.domains.get(level, ""):
            found.setdefault(name, []).append(node)
    return found
