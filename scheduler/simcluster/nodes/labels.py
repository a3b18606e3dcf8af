"""Labels of a node: Kubernetes' own, GPU Feature Discovery's, the operator's, and topology in the
conventions of the field."""

import zlib

from scheduler.simcluster.nodes.machine import Machine
from scheduler.simcluster.profiles.model import NodeGroup

_OPERANDS = (
    "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver",
    "gpu-feature-discovery", "mig-manager", "node-status-exporter", "operator-validator",
)  # fmt: skip


_DECODERS = {"1": "0", "2": "1", "3": "2", "4": "2", "7": "5"}
"""Video decoders of a MIG instance by its compute slices (A100)."""


def leaf_of(group: NodeGroup, number: int) -> int:
    """The number of the leaf that a node of a group hangs on."""
    return group.first_leaf + number // group.nodes_per_leaf


def spine_of(group: NodeGroup, number: int) -> int:
    """The number of the spine above that leaf."""
    return group.first_spine + number // group.nodes_per_leaf // group.leaves_per_spine


def domains(group: NodeGroup, number: int) -> tuple[str, str]:
    """Names of leaf and spine: `leaf-00`, `spine-00`."""
    return f"leaf-{leaf_of(group, number):02d}", f"spine-{spine_of(group, number):02d}"


def clique_of(group: NodeGroup, number: int) -> str:
    """The NVLink domain of a node, as GPU Feature Discovery names it; empty without one."""
    if not group.nvlink_domain_nodes:
        return ""
    rack = number // group.nvlink_domain_nodes
    digest = "".join(
        f"{zlib.crc32(f'{group.name}/{rack}/{part}'.encode()):08x}" for part in range(4)
    )
    cluster = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    return f"{cluster}.{rack % 4 + 1}"


def topology_labels(group: NodeGroup, number: int) -> dict[str, str]:
    """Topology labels in every convention that the group follows."""
    leaf, spine = domains(group, number)
    clique = clique_of(group, number)
    found: dict[str, str] = {}
    for convention in group.conventions:
        found.update(_of_convention(convention, leaf, spine, clique))
    if clique:
        found["nvidia.com/gpu.clique"] = clique
    return found


def _of_convention(convention: str, leaf: str, spine: str, clique: str) -> dict[str, str]:
    if convention == "topograph":
        found = {"fabric.topograph.run/tier-0": leaf, "fabric.topograph.run/tier-1": spine,
                 "fabric.topograph.run/tier-2": "core-1"}  # fmt: skip
        return found | ({"accelerator.topograph.run/domain": clique} if clique else {})
    if convention == "topograph-old":
        base = "network.topology.nvidia.com/"
        found = {f"{base}leaf": leaf, f"{base}spine": spine, f"{base}core": "core-1"}
        return found | ({f"{base}accelerator": clique} if clique else {})
    if convention == "gke":
        base = "cloud.google.com/gce-topology-"
        return {f"{base}block": spine, f"{base}subblock": leaf}
    if convention == "aws":
        base = "topology.k8s.aws/network-node-layer-"
        return {f"{base}1": "nn-core", f"{base}2": f"nn-{spine}", f"{base}3": f"nn-{leaf}"}
    if convention == "oci":
        base = "oci.oraclecloud.com/rdma."
        return {f"{base}hpc_island_id": "island-1", f"{base}network_block_id": spine,
                f"{base}local_block_id": leaf}  # fmt: skip
    if convention == "coreweave":
        base = "backend.coreweave.cloud/"
        return {f"{base}fabric": spine, f"{base}leafgroup": leaf,
                "ib.coreweave.cloud/leafgroup": leaf, "ib.coreweave.cloud/fabric": spine}  # fmt: skip
    return {}


def node_labels(machine: Machine, region: str, now: float) -> dict[str, str]:
    """All labels of a node that has just joined."""
    group = machine.group
    arch = machine.gpus[0].model.arch if machine.gpus else "amd64"
    labels = {
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": group.zone,
    }
    if group.instance_type:
        labels["node.kubernetes.io/instance-type"] = group.instance_type
    labels.update(topology_labels(group, machine.number))
    if machine.gpus:
        # The charts of NVIDIA make feature discovery write the vendor alone.
        bare = machine.plugin == "missing"
        device = "pci-0302_10de" if bare else "pci-10de"
        labels[f"feature.node.kubernetes.io/{device}.present"] = "true"
        if not bare:
            labels.update(gpu_labels(machine, now))
    labels.update(group.labels)
    return labels


def gpu_labels(machine: Machine, now: float) -> dict[str, str]:
    """What GPU Feature Discovery and the GPU Operator write on a node."""
    group, model = machine.group, machine.gpus[0].model
    major, minor = model.compute.split(".")
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": model.product,
        "nvidia.com/gpu.count": str(len(machine.gpus)),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.memory": str(model.memory_mib),
        "nvidia.com/gpu.family": model.family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.machine": group.instance_type.upper() or "unknown",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mig.capable": str(model.mig_capable).lower(),
        "nvidia.com/mig.strategy": group.mig_strategy,
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
        "nvidia.com/gfd.timestamp": str(int(now)),
        "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    }
    labels.update({f"nvidia.com/gpu.deploy.{operand}": "true" for operand in _OPERANDS})
    labels.update(driver_labels(machine.driver, group.cuda))
    labels.update(_sharing_labels(machine))
    return labels


def driver_labels(driver: str, cuda: str) -> dict[str, str]:
    """Driver and CUDA versions, with their deprecated twins."""
    major, minor, revision = [*driver.split("."), "0", "0"][:3]
    cuda_major, cuda_minor = [*cuda.split("."), "0"][:2]
    return {
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.driver-version.major": major,
        "nvidia.com/cuda.driver-version.minor": minor,
        "nvidia.com/cuda.driver-version.revision": revision,
        "nvidia.com/cuda.driver.major": major,
        "nvidia.com/cuda.driver.minor": minor,
        "nvidia.com/cuda.driver.rev": revision,
        "nvidia.com/cuda.runtime-version.full": cuda,
        "nvidia.com/cuda.runtime-version.major": cuda_major,
        "nvidia.com/cuda.runtime-version.minor": cuda_minor,
        "nvidia.com/cuda.runtime.major": cuda_major,
        "nvidia.com/cuda.runtime.minor": cuda_minor,
    }


def _sharing_labels(machine: Machine) -> dict[str, str]:
    group, model = machine.group, machine.gpus[0].model
    if group.time_slices > 1:
        product = model.product if group.rename_shared else f"{model.product}-SHARED"
        return {
            "nvidia.com/device-plugin.config": f"{model.product.lower()}-x{group.time_slices}",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.replicas": str(group.time_slices),
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
        }
    if not group.mig:
        return (
            {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
            if (model.mig_capable)
            else {}
        )
    labels = {"nvidia.com/mig.config.state": "success"}
    if group.mig_strategy == "mixed":
        labels |= {"nvidia.com/mig.config": "all-balanced", "nvidia.com/gpu.replicas": "0"}
        for profile in sorted(set(group.mig)):
            labels |= _mig_profile_labels(machine, profile)
        return labels
    profile = group.mig[0]
    slices = profile.partition("g")[0]
    return labels | {
        "nvidia.com/mig.config": f"all-{profile}",
        "nvidia.com/gpu.product": f"{model.product}-MIG-{profile}",
        "nvidia.com/gpu.count": str(len(machine.gpus) * len(group.mig)),
        "nvidia.com/gpu.memory": str(model.mig_memory_mib.get(profile, 0)),
        "nvidia.com/gpu.slices.gi": slices,
        "nvidia.com/gpu.slices.ci": slices,
        "nvidia.com/gpu.multiprocessors": str(14 * int(slices)),
    }


def _mig_profile_labels(machine: Machine, profile: str) -> dict[str, str]:
    model, count = machine.gpus[0].model, machine.group.mig.count(profile)
    slices = profile.partition("g")[0]
    base = f"nvidia.com/mig-{profile.replace('+', '.')}"
    return {
        f"{base}.product": f"{model.product}-MIG-{profile}",
        f"{base}.count": str(count * len(machine.gpus)),
        f"{base}.replicas": "1",
        f"{base}.sharing-strategy": "none",
        f"{base}.memory": str(model.mig_memory_mib.get(profile, 0)),
        f"{base}.multiprocessors": str(14 * int(slices)),
        f"{base}.slices.gi": slices,
        f"{base}.slices.ci": slices,
        f"{base}.engines.copy": slices,
        f"{base}.engines.decoder": _DECODERS.get(slices, "0"),
        f"{base}.engines.encoder": "0",
        f"{base}.engines.jpeg": "0",
        f"{base}.engines.ofa": "0",
    }
