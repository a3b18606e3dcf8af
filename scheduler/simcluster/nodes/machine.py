"""One simulated machine: its GPUs, its device plugin, its state, and the devices that pods hold."""

from dataclasses import dataclass, field
from random import Random

from scheduler.simcluster.naming import Identities
from scheduler.simcluster.nodes.hardware import MODELS, Gpu, make_gpus
from scheduler.simcluster.profiles.model import NodeGroup

GPU = "nvidia.com/gpu"
PLUGIN_GRACE_SECONDS = 300.0
"""How long the kubelet keeps the capacity of a plugin that has gone."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a device plugin hands out: a GPU, a replica of one, or a MIG instance."""

    id: str
    resource: str
    gpu: int
    mig: int = -1
    replica: int = -1


@dataclass(slots=True, eq=False)
class Machine:
    """A node's hardware and the programs on it that are not pods."""

    name: str
    group: NodeGroup
    number: int
    """Place in the group, from 0."""
    ordinal: int
    """Place in the whole cluster, from 0."""
    gpus: list[Gpu]
    boot_id: str
    machine_id: str
    system_uuid: str
    driver: str
    plugin: str = "running"
    """`running`, `stopped` (registered once, now gone) or `missing` (never registered)."""
    plugin_stopped_at: float = 0.0
    capacity_dropped: bool = False
    powered: bool = True
    kubelet_up: bool = True
    ready_problem: str = ""
    """Why the kubelet itself says that the node is not ready."""
    exporter_up: bool = True
    clock_skew_seconds: float = 0.0
    pull_problem: str = ""
    """What every image pull on this node fails with."""
    pull_factor: float = 1.0
    held: dict[str, list[Device]] = field(default_factory=dict)
    """Devices by the uid of the pod that holds them."""
    busy_since: dict[str, float] = field(default_factory=dict)
    busy_seconds: dict[int, float] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The node's internal IP."""
        return (
            f"10.{20 + self.ordinal // 62500}.{self.ordinal // 250 % 250}.{self.ordinal % 250 + 1}"
        )

    @property
    def reachable(self) -> bool:
        """Whether the kubelet talks to the API server."""
        return self.powered and self.kubelet_up

    def devices(self) -> list[Device]:
        """Everything that the plugin has registered, healthy or not."""
        group, found = self.group, []
        for gpu in self.gpus:
            if gpu.mig:
                found += _mig_devices(gpu, mixed=group.mig_strategy == "mixed")
            elif group.time_slices > 1:
                resource = f"{GPU}.shared" if group.rename_shared else GPU
                found += [
                    Device(f"{gpu.uuid}::{slot}", resource, gpu.index, replica=slot)
                    for slot in range(group.time_slices)
                ]
            else:
                found.append(Device(gpu.uuid, GPU, gpu.index))
        return found

    def is_healthy(self, device: Device) -> bool:
        """What the plugin says of a device. On a time-sliced GPU only one replica turns bad."""
        gpu = self.gpus[device.gpu]
        if device.mig >= 0:
            return gpu.mig[device.mig].healthy
        if device.replica >= 0:
            return device.replica >= gpu.replicas_lost
        return gpu.healthy

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable of the plugin's resources, by name."""
        if self.plugin == "missing" or not self.gpus:
            return {}, {}
        devices = self.devices()
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        if self.group.mig and self.group.mig_strategy == "mixed":
            capacity[GPU] = allocatable[GPU] = 0
        running = self.plugin == "running"
        for device in devices:
            capacity[device.resource] = capacity.get(device.resource, 0) + (
                not self.capacity_dropped
            )
            healthy = running and self.is_healthy(device)
            allocatable[device.resource] = allocatable.get(device.resource, 0) + healthy
        return capacity, allocatable

    def free_devices(self, resource: str) -> list[Device]:
        """Healthy devices of a resource that no pod holds."""
        if self.plugin != "running":
            return []
        taken = {device.id for devices in self.held.values() for device in devices}
        return [
            device
            for device in self.devices()
            if device.resource == resource and device.id not in taken and self.is_healthy(device)
        ]

    def restart_plugin(self) -> None:
        """A plugin that starts takes every GPU that answers for healthy again."""
        self.plugin, self.capacity_dropped = "running", False
        for gpu in self.gpus:
            gpu.healthy = not gpu.lost
            gpu.replicas_lost = 0
            for device in gpu.mig:
                device.healthy = not gpu.lost


def _mig_devices(gpu: Gpu, *, mixed: bool) -> list[Device]:
    found = []
    for place, instance in enumerate(gpu.mig):
        resource = f"nvidia.com/mig-{instance.profile.replace('+', '.')}" if mixed else GPU
        found.append(Device(instance.uuid, resource, gpu.index, mig=place))
    return found


def make_machine(group: NodeGroup, number: int, ordinal: int, identities: Identities) -> Machine:
    """A machine of a group, with ids that depend on the seed and its name only."""
    index = group.first_index + number
    name = f"{group.prefix}{index:05d}"
    draw: Random = identities.stable("machine", name)
    gpus: list[Gpu] = []
    if group.gpu_model:
        gpus = make_gpus(MODELS[group.gpu_model], group.gpus, group.mig, draw)
    machine = Machine(
        name, group, number, ordinal, gpus, boot_id=new_boot_id(draw),
        machine_id=f"{draw.getrandbits(128):032x}", system_uuid=new_boot_id(draw),
        driver=group.driver_exceptions.get(str(number), group.driver),
    )  # fmt: skip
    if not group.device_plugin or number in group.without_device_plugin:
        machine.plugin = "missing"
    return machine


def new_boot_id(draw: Random) -> str:
    """A fresh boot id."""
    text = f"{draw.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
