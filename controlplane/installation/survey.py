"""What a real cluster offers: GPU models, how many, and which topology labels its nodes bear. Pure.

`bootstrap` turns the answer into the first flavors, levels and quota.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.installation.rows import FlavorSpec
from scheduler.kube.seen import NodeSeen

# Who labels nodes how, spine and leaf; the first of which any node bears both is taken.
CONVENTIONS: tuple[Mapping[str, str], ...] = (
    {"spine": "fabric.topograph.run/tier-1", "leaf": "fabric.topograph.run/tier-0"},
    {"spine": "network.topology.nvidia.com/spine", "leaf": "network.topology.nvidia.com/leaf"},
    {"spine": "cloud.google.com/gce-topology-block", "leaf": "cloud.google.com/gce-topology-subblock"},
    {"spine": "topology.k8s.aws/network-node-layer-2", "leaf": "topology.k8s.aws/network-node-layer-3"},
    {"spine": "oci.oraclecloud.com/rdma.network_block_id", "leaf": "oci.oraclecloud.com/rdma.local_block_id"},
    {"spine": "backend.coreweave.cloud/fabric", "leaf": "backend.coreweave.cloud/leafgroup"},
)  # fmt: skip
ZONE = "topology.kubernetes.io/zone"
# Resource name and the label that names the model.
VENDORS = (
    ("nvidia.com/gpu", "nvidia.com/gpu.product"),
    ("amd.com/gpu", "amd.com/gpu.product-name"),
)
NVLINK_SIZES = (8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class Offer:
    """levels: node label by level, widest first. flavors: how many GPUs there are of each."""

    levels: Mapping[str, str]
    flavors: Mapping[FlavorSpec, int]


def survey(nodes: Iterable[NodeSeen]) -> Offer:
    """Look at all nodes, healthy or not: what is out today is back tomorrow."""
    seen = list(nodes)
    return Offer(_levels(seen), _flavors(seen))


def _levels(nodes: list[NodeSeen]) -> dict[str, str]:
    found: dict[str, str] = {}
    if len({n.labels[ZONE] for n in nodes if ZONE in n.labels}) > 1:
        found["zone"] = ZONE
    for convention in CONVENTIONS:
        if any(all(label in node.labels for label in convention.values()) for node in nodes):
            return {**found, **convention}
    return found


def _flavors(nodes: list[NodeSeen]) -> dict[FlavorSpec, int]:
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for node in nodes:
        for resource, label in VENDORS:
            gpus = node.capacity_devices.get(resource, 0)
            if gpus and label in node.labels:
                counts[resource, label, node.labels[label]].append(gpus)
    return {
        FlavorSpec(
            name=slug(model),
            model=model,
            resource_name=resource,
            model_label=label,
            gpus_per_nvlink_domain=_nvlink_domain(max(gpus)),
        ): sum(gpus)
        for (resource, label, model), gpus in sorted(counts.items())
    }


def slug(model: str) -> str:
    """A name for a flavor: `nvidia-h100-80gb-hbm3` of `NVIDIA-H100-80GB-HBM3`, at most 40 characters."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40].rstrip("-")
    return plain if plain[:1].isalpha() else f"gpu-{plain}"[:40].rstrip("-")


def _nvlink_domain(gpus: int) -> int:
    """The largest domain that a node's GPUs can be: a platform admin corrects it where NVLink spans nodes."""
    return next(size for size in NVLINK_SIZES if gpus >= size)
