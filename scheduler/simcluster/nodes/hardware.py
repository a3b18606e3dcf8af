"""GPU models and machines: what a simulated node is made of.

Names and numbers follow the facts of NVIDIA's plugin and exporter for real boards; the ids are
drawn from the cluster's seed.
"""

import uuid
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A kind of GPU, as drivers, labels and metrics name it."""

    name: str
    product: str
    memory_mib: int
    family: str
    compute: str
    idle_watts: float
    busy_watts: float
    sm_clock_mhz: int
    memory_clock_mhz: int
    mig_memory_mib: dict[str, int] = field(default_factory=dict)
    arch: str = "amd64"
    mig_capable: bool = True


_A100_80_MIG = {"1g.10gb": 9856, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192,
                "4g.40gb": 40192, "7g.80gb": 80384}  # fmt: skip
_A100_40_MIG = {"1g.5gb": 4864, "1g.10gb": 9856, "2g.10gb": 9856, "3g.20gb": 19968,
                "4g.20gb": 19968, "7g.40gb": 40192}  # fmt: skip
_H200_MIG = {"1g.18gb": 16384, "1g.35gb": 33280, "2g.35gb": 33280, "3g.71gb": 71424,
             "4g.71gb": 71424, "7g.141gb": 144128}  # fmt: skip

MODELS: dict[str, GpuModel] = {
    "H100": GpuModel("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0",
                     72.0, 661.0, 1980, 2619, _A100_80_MIG),
    "H200": GpuModel("NVIDIA H200", "NVIDIA-H200", 143771, "hopper", "9.0", 76.0, 668.0, 1980,
                     3201, _H200_MIG),
    "A100-80": GpuModel("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0",
                        58.0, 372.0, 1410, 1593, _A100_80_MIG),
    "A100-40": GpuModel("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", 40960, "ampere", "8.0",
                        52.0, 355.0, 1410, 1215, _A100_40_MIG),
    "B200": GpuModel("NVIDIA B200", "NVIDIA-B200", 183359, "blackwell", "10.0", 140.0, 940.0,
                     1965, 3996),
    "GB200": GpuModel("NVIDIA GB200", "NVIDIA-GB200", 189471, "blackwell", "10.0", 165.0, 1120.0,
                      2062, 3996, arch="arm64"),
    "L40S": GpuModel("NVIDIA L40S", "NVIDIA-L40S", 46068, "ada-lovelace", "8.9", 34.0, 318.0,
                     2520, 9001, mig_capable=False),
    "T4": GpuModel("Tesla T4", "Tesla-T4", 15360, "turing", "7.5", 10.0, 66.0, 1590, 5001,
                   mig_capable=False),
}  # fmt: skip

_BUS = (
    "1B",
    "43",
    "52",
    "61",
    "9D",
    "C3",
    "D1",
    "DF",
    "0F",
    "15",
    "4B",
    "51",
    "8A",
    "90",
    "C7",
    "CB",
)


@dataclass(slots=True)
class MigDevice:
    """One MIG instance on a GPU."""

    uuid: str
    profile: str
    instance: int
    memory_mib: int
    healthy: bool = True


@dataclass(slots=True)
class Gpu:
    """One GPU of a node and its health."""

    index: int
    uuid: str
    bus_id: str
    model: GpuModel
    healthy: bool = True
    """What the device plugin thinks of it; true again only when the plugin restarts."""
    lost: bool = False
    """Fallen off the bus: metrics stop."""
    xid: int = 0
    """The last XID, 0 when there was none."""
    xid_times: list[tuple[float, int]] = field(default_factory=list)
    ecc_single: int = 0
    ecc_double: int = 0
    remapped_rows: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    hot: bool = False
    nvlink_errors: int = 0
    replicas_lost: int = 0
    mig: list[MigDevice] = field(default_factory=list)

    def reset(self) -> None:
        """What a reboot or GPU reset heals: everything but counts that the board keeps."""
        self.healthy, self.lost, self.hot = True, False, False
        self.xid, self.xid_times = 0, []
        self.ecc_single = self.ecc_double = 0
        self.remap_pending, self.nvlink_errors, self.replicas_lost = False, 0, 0
        for device in self.mig:
            device.healthy = True


def make_gpus(model: GpuModel, count: int, mig_layout: tuple[str, ...], draw: Random) -> list[Gpu]:
    """The GPUs of a node. `mig_layout` are the profiles on every GPU."""
    gpus: list[Gpu] = []
    for index in range(count):
        gpu = Gpu(index, f"GPU-{_uuid(draw)}", f"00000000:{_BUS[index % len(_BUS)]}:00.0", model)
        for place, profile in enumerate(mig_layout):
            memory = model.mig_memory_mib.get(profile, model.memory_mib // 8)
            gpu.mig.append(MigDevice(f"MIG-{_uuid(draw)}", profile, place + 1, memory))
        gpus.append(gpu)
    return gpus


def _uuid(draw: Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))
