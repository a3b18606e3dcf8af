"""Topology labels in the wild, as presets for the levels of a cluster; and what levels would make of its nodes.

Sources: Topograph docs/engines/k8s.md (1.0 and 0.5), GKE, EKS, OKE and CoreWeave documentation, GPU Feature Discovery.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.lint.sheet import LintNode

ZONE = ("zone", "topology.kubernetes.io/zone")
CLIQUE = ("nvlink", "nvidia.com/gpu.clique")
Levels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Convention:
    """One way to label. levels: (level, node label), widest first."""

    key: str
    name: str
    levels: Levels


CONVENTIONS: tuple[Convention, ...] = (
    Convention(
        "topograph",
        "Topograph 1.0",
        (
            ZONE,
            ("spine", "fabric.topograph.run/tier-1"),
            ("leaf", "fabric.topograph.run/tier-0"),
            ("nvlink", "accelerator.topograph.run/domain"),
        ),
    ),
    Convention(
        "topograph-old",
        "Topograph 0.5",
        (
            ZONE,
            ("spine", "network.topology.nvidia.com/spine"),
            ("leaf", "network.topology.nvidia.com/leaf"),
            ("nvlink", "network.topology.nvidia.com/accelerator"),
        ),
    ),
    Convention(
        "gke",
        "Google GKE",
        (
            ZONE,
            ("spine", "cloud.google.com/gce-topology-block"),
            ("leaf", "cloud.google.com/gce-topology-subblock"),
            CLIQUE,
        ),
    ),
    # Layer 3 is the nearest to the machine, layer 1 the top.
    Convention(
        "aws",
        "AWS",
        (
            ZONE,
            ("spine", "topology.k8s.aws/network-node-layer-2"),
            ("leaf", "topology.k8s.aws/network-node-layer-3"),
            ("nvlink", "topology.k8s.aws/ultraserver-id"),
        ),
    ),
    Convention(
        "oci",
        "Oracle OKE",
        (
            ("zone", "oci.oraclecloud.com/rdma.hpc_island_id"),
            ("spine", "oci.oraclecloud.com/rdma.network_block_id"),
            ("leaf", "oci.oraclecloud.com/rdma.local_block_id"),
            CLIQUE,
        ),
    ),
    Convention(
        "coreweave",
        "CoreWeave",
        (
            ("zone", "ib.coreweave.cloud/superpod"),
            ("spine", "ib.coreweave.cloud/fabric"),
            ("leaf", "ib.coreweave.cloud/leafgroup"),
            CLIQUE,
        ),
    ),
    Convention("kubernetes", "Kubernetes", (ZONE, CLIQUE)),
)


@dataclass(frozen=True, slots=True)
class LevelPreview:
    """What a level would be: how many domains, of which sizes, how many GPU nodes would have none."""

    level: str
    label: str
    domains: int
    smallest: int
    largest: int
    without: int


def preview(nodes: Sequence[LintNode], levels: Sequence[tuple[str, str]]) -> list[LevelPreview]:
    """For each level, widest first; only nodes with GPUs are counted."""
    gpu_nodes = [node for node in nodes if node.has_gpu]
    return [_level(gpu_nodes, name, label) for name, label in levels]


def _level(nodes: Sequence[LintNode], level: str, label: str) -> LevelPreview:
    sizes = Counter(node.labels[label] for node in nodes if node.labels.get(label))
    counts = sizes.values()
    return LevelPreview(
        level=level,
        label=label,
        domains=len(sizes),
        smallest=min(counts, default=0),
        largest=max(counts, default=0),
        without=len(nodes) - sum(counts),
    )


def fitting(nodes: Sequence[LintNode], convention: Convention) -> Levels:
    """The levels of a convention that any GPU node bears a label of."""
    borne: Mapping[str, int] = Counter(
        label for node in nodes if node.has_gpu for label in node.labels
    )
    return tuple((name, label) for name, label in convention.levels if borne.get(label))


def likeliest(nodes: Sequence[LintNode]) -> Convention | None:
    """The convention with the most of its labels on the most GPU nodes; None where none is known."""
    scores = {c.key: _score(nodes, c) for c in CONVENTIONS if c.key != "kubernetes"}
    best = max(CONVENTIONS, key=lambda c: scores.get(c.key, 0))
    return best if scores.get(best.key) else None


def _score(nodes: Sequence[LintNode], convention: Convention) -> int:
    own = [label for _name, label in convention.levels if label not in (ZONE[1], CLIQUE[1])]
    return sum(label in node.labels for node in nodes for label in own)
