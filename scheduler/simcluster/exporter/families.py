"""The metric families of dcgm-exporter, in its three generations of names and units.

Generation A has the label `Hostname`, B `hostname` with the same metrics, C (4.9.0) other names and
units for most. HELP texts are ours: readers must not match on them.
"""

from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024 * 1024
Convert = Callable[[float], float]


def same(value: float) -> float:
    """No change of unit."""
    return value


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its key here, classic name, type, help, and what generation C makes of it."""

    key: str
    name: str
    type: str
    help: str
    decimals: bool = False
    optional: bool = False
    """Off by default in the exporter; a profile switches these on."""
    c_name: str = ""
    c_convert: Convert = same
    c_decimals: bool = False
    in_c: bool = True


def _million(value: float) -> float:
    return value * 1e6


def _share(value: float) -> float:
    return value / 100


def _bytes(value: float) -> float:
    return value * MIB


def _joules(value: float) -> float:
    return value / 1000


FAMILIES = (
    Family("sm_clock", "DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock, MHz",
           c_name="DCGM_FI_DEV_SM_CLOCK_HERTZ", c_convert=_million),
    Family("memory_clock", "DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock, MHz",
           c_name="DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", c_convert=_million),
    Family("memory_temp", "DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature, degrees C",
           c_name="DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
    Family("gpu_temp", "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature, degrees C",
           c_name="DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    Family("power", "DCGM_FI_DEV_POWER_USAGE", "gauge", "Board power, W", decimals=True,
           c_name="DCGM_FI_DEV_BOARD_POWER_WATTS", c_decimals=True),
    Family("energy", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since boot, mJ",
           c_name="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", c_convert=_joules, c_decimals=True),
    Family("pcie_replay", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe replays",
           c_name="DCGM_FI_DEV_PCIE_REPLAY_TOTAL"),
    Family("gpu_util", "DCGM_FI_DEV_GPU_UTIL", "gauge", "Busy time share, percent",
           c_name="DCGM_FI_DEV_GPU_UTIL_RATIO", c_convert=_share, c_decimals=True),
    Family("memory_util", "DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory busy share, percent",
           c_name="DCGM_FI_DEV_MEMORY_UTIL_RATIO", c_convert=_share, c_decimals=True),
    Family("enc_util", "DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder busy share, percent",
           c_name="DCGM_FI_DEV_ENC_UTIL_RATIO", c_convert=_share, c_decimals=True),
    Family("dec_util", "DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder busy share, percent",
           c_name="DCGM_FI_DEV_DEC_UTIL_RATIO", c_convert=_share, c_decimals=True),
    Family("xid", "DCGM_FI_DEV_XID_ERRORS", "gauge", "Last XID, 0 when none",
           c_name="DCGM_FI_DEV_XID_ERROR"),
    Family("fb_free", "DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer free, MiB",
           c_name="DCGM_FI_DEV_FB_FREE_BYTES", c_convert=_bytes),
    Family("fb_used", "DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer used, MiB",
           c_name="DCGM_FI_DEV_FB_USED_BYTES", c_convert=_bytes),
    Family("fb_reserved", "DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer reserved, MiB",
           c_name="DCGM_FI_DEV_FB_RESERVED_BYTES", c_convert=_bytes),
    Family("fb_total", "", "gauge", "Framebuffer capacity", c_name="DCGM_FI_DEV_FB_CAPACITY_BYTES",
           c_convert=_bytes),
    Family("nvlink_rate", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter",
           "NVLink throughput over all links", in_c=False),
    Family("licence", "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", "vGPU licence state", in_c=False),
    Family("rows_uncorrectable", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter",
           "Rows remapped, uncorrectable", c_name="DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"),
    Family("rows_correctable", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter",
           "Rows remapped, correctable", c_name="DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"),
    Family("remap_failed", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1 when a row remap failed",
           c_name="DCGM_FI_DEV_ROW_REMAP_FAILED"),
    Family("gr_active", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Engine active ratio",
           decimals=True, c_name="DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", c_decimals=True),
    Family("tensor_active", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Tensor pipe active ratio",
           decimals=True, c_name="DCGM_FI_PROF_TENSOR_UTIL_RATIO", c_decimals=True),
    Family("dram_active", "DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Memory active ratio",
           decimals=True, c_name="DCGM_FI_PROF_DRAM_UTIL_RATIO", c_decimals=True),
    Family("pcie_tx", "DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "PCIe sent, bytes/s", in_c=False),
    Family("pcie_rx", "DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "PCIe received, bytes/s", in_c=False),
    Family("ecc_sbe_vol", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter",
           "Corrected ECC errors since driver load", optional=True),
    Family("ecc_dbe_vol", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter",
           "Uncorrected ECC errors since driver load", optional=True),
    Family("ecc_sbe_agg", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter",
           "Corrected ECC errors, lifetime", optional=True),
    Family("ecc_dbe_agg", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter",
           "Uncorrected ECC errors, lifetime", optional=True),
    Family("remap_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge",
           "1 when a row remap waits for a reset", optional=True),
    Family("power_violation", "DCGM_FI_DEV_POWER_VIOLATION", "counter",
           "Time throttled by power, ns", optional=True),
    Family("thermal_violation", "DCGM_FI_DEV_THERMAL_VIOLATION", "counter",
           "Time throttled by heat, ns", optional=True),
    Family("clock_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge",
           "Bitmask of clock event reasons", optional=True),
    Family("power_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit, W",
           decimals=True, optional=True),
    Family("nvlink_flit", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter",
           "NVLink flit CRC errors", optional=True),
    Family("nvlink_data", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter",
           "NVLink data CRC errors", optional=True),
    Family("nvlink_replay", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter",
           "NVLink replays", optional=True),
    Family("nvlink_recovery", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter",
           "NVLink recoveries", optional=True),
    Family("sm_active", "DCGM_FI_PROF_SM_ACTIVE", "gauge", "SM active ratio", decimals=True,
           optional=True),
    Family("sm_occupancy", "DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "SM occupancy", decimals=True,
           optional=True),
)  # fmt: skip

MIG_KEYS = frozenset({
    "fb_free", "fb_used", "fb_reserved", "gr_active", "tensor_active", "dram_active", "gpu_temp",
    "power", "xid",
})  # fmt: skip
"""Families that are shown per MIG instance."""


def shown_name(family: Family, generation: str) -> str:
    """The metric's name in a generation; empty when it does not have it."""
    if generation != "C":
        return family.name
    if not family.in_c:
        return ""
    return family.c_name or family.name


def shown_value(family: Family, generation: str, value: float) -> str:
    """The value as text, in the generation's unit: whole, or with six decimals."""
    renamed = generation == "C" and bool(family.c_name)
    decimals = family.c_decimals if renamed else family.decimals
    shown = family.c_convert(value) if renamed else value
    return f"{shown:.6f}" if decimals else str(round(shown))
