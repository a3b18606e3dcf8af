"""What a GPU would measure now: values that follow the pods that run on it, and its faults."""

import math
import zlib
from dataclasses import dataclass

from scheduler.simcluster.kubelet.node import Kubelet
from scheduler.simcluster.kubelet.run import PodRun
from scheduler.simcluster.nodes.hardware import Gpu
from scheduler.simcluster.nodes.machine import Device

IDLE_CLOCK_SHARE = 0.17
RESERVED_MIB = 551
HEALTHY_HEAT_C, SLOWDOWN_HEAT_C = 62, 91
BITS_IDLE, BITS_POWER_CAP, BITS_HEAT = 0x1, 0x4, 0x8 | 0x40


@dataclass(frozen=True, slots=True)
class Holder:
    """The pod that a GPU or MIG instance belongs to now."""

    namespace: str
    pod: str
    container: str
    busy: float
    """Share of the time that it keeps the GPU busy, 0 to 1."""
    since: float


def holder_of(run: PodRun | None) -> Holder | None:
    """What a run's pod does with its GPUs; None when its containers have ended."""
    if run is None or run.done:
        return None
    container = run.containers[0]
    works = container.running and not run.hung
    busy = run.behaviour.utilisation / 100 if works else 0.0
    return Holder(run.key[0], run.key[1], container.name, busy, container.started_at)


def holders(kubelet: Kubelet) -> dict[tuple[int, int], Holder]:
    """Holders by GPU index and MIG place (-1 for a whole GPU). On a time-sliced GPU the last pod
    seen is named, as the exporter does without virtual GPUs."""
    found: dict[tuple[int, int], Holder] = {}
    for uid, devices in kubelet.machine.held.items():
        holder = holder_of(kubelet.runs.get(uid))
        if holder is None:
            continue
        for device in devices:
            found[_place(device)] = holder
    return found


def _place(device: Device) -> tuple[int, int]:
    return device.gpu, device.mig


def readings(gpu: Gpu, holder: Holder | None, now: float, boot: float) -> dict[str, float]:
    """All values of a GPU by family key. Deterministic in GPU, time and holder."""
    model = gpu.model
    busy = 0.0 if holder is None else holder.busy
    wave = _wave(gpu.uuid, now)
    load = max(0.0, min(1.0, busy + 0.01 * wave)) if busy else 0.0
    heat = _heat(gpu, load, wave)
    used = (
        round(model.memory_mib * 0.9 * min(1.0, busy + 0.05))
        if busy
        else (0 if holder is None else 620)
    )
    watts = model.idle_watts + (model.busy_watts - model.idle_watts) * load + 2 * wave
    clock = (
        model.sm_clock_mhz * (0.55 if gpu.hot else 1.0)
        if load
        else model.sm_clock_mhz * IDLE_CLOCK_SHARE
    )
    reasons = BITS_HEAT if gpu.hot else (BITS_POWER_CAP if load else BITS_IDLE)
    up = max(0.0, now - boot)
    return {
        "sm_clock": round(clock), "memory_clock": model.memory_clock_mhz,
        "memory_temp": heat + 12, "gpu_temp": heat, "power": watts,
        "energy": model.idle_watts * up * 1000, "pcie_replay": 0,
        "gpu_util": round(load * 100), "memory_util": round(load * 47), "enc_util": 0,
        "dec_util": 0, "xid": gpu.xid, "fb_free": max(0, model.memory_mib - RESERVED_MIB - used),
        "fb_used": used, "fb_reserved": RESERVED_MIB, "fb_total": model.memory_mib,
        "nvlink_rate": round(212_000 * load), "licence": 0,
        "rows_uncorrectable": gpu.remapped_rows, "rows_correctable": 0,
        "remap_failed": int(gpu.remap_failed), "gr_active": load, "tensor_active": load * 0.53,
        "dram_active": load * 0.42, "pcie_tx": round(2.9e9 * load), "pcie_rx": round(2.4e9 * load),
        "ecc_sbe_vol": gpu.ecc_single, "ecc_dbe_vol": gpu.ecc_double,
        "ecc_sbe_agg": gpu.ecc_single, "ecc_dbe_agg": gpu.ecc_double,
        "remap_pending": int(gpu.remap_pending),
        "power_violation": round(8.4e7 * up * load), "thermal_violation": round(5e8 * up) if gpu.hot else 0,
        "clock_reasons": reasons, "power_limit": math.ceil(model.busy_watts / 50) * 50,
        "nvlink_flit": gpu.nvlink_errors, "nvlink_data": gpu.nvlink_errors // 3,
        "nvlink_replay": gpu.nvlink_errors // 2, "nvlink_recovery": gpu.nvlink_errors // 10,
        "sm_active": load * 0.96, "sm_occupancy": load * 0.42,
    }  # fmt: skip


def _heat(gpu: Gpu, load: float, wave: float) -> int:
    if gpu.hot:
        return SLOWDOWN_HEAT_C
    return round(31 + (HEALTHY_HEAT_C - 31) * load + wave)


def _wave(uuid: str, now: float) -> float:
    """A slow movement between -1 and 1 that differs from GPU to GPU."""
    phase = zlib.crc32(uuid.encode()) % 628 / 100
    return math.sin(now / 47 + phase)
