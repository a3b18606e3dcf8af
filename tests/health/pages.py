"""Exporter pages in few words: what dcgm-exporter would say of a node's GPUs."""

from collections.abc import Mapping
from typing import Any

GENERATION_A = {
    "xid": "DCGM_FI_DEV_XID_ERRORS",
    "utilisation": "DCGM_FI_DEV_GPU_UTIL",
    "memory_copy": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "temperature_c": "DCGM_FI_DEV_GPU_TEMP",
    "memory_used_mib": "DCGM_FI_DEV_FB_USED",
    "ecc_sbe_vol": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "ecc_dbe_vol": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "ecc_dbe_agg": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "remap_failed": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "remap_pending": "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "clock_reasons": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "nvlink_flit": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
WELL = {
    "xid": 0,
    "utilisation": 90,
    "memory_copy": 40,
    "temperature_c": 60,
    "memory_used_mib": 70000,
}


def uuid_of(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def line(name: str, labels: Mapping[str, str], value: Any) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value}"


def gpu_lines(node: str, index: int, pod: str = "", **values: Any) -> list[str]:
    """The lines of one GPU; a value of None leaves its series out."""
    labels = {"gpu": str(index), "UUID": uuid_of(node, index), "Hostname": node,
              "modelName": "NVIDIA H100 80GB HBM3", "DCGM_FI_DRIVER_VERSION": "570.158.01"}  # fmt: skip
    if pod:
        labels |= {"container": "main", "namespace": "muster-research", "pod": pod}
    return [
        line(GENERATION_A[key], labels, value)
        for key, value in (WELL | values).items()
        if value is not None
    ]


def page(
    node: str,
    changes: Mapping[int, Mapping[str, Any] | None] | None = None,
    *,
    gpus: int = 8,
    pod: str = "",
) -> str:
    """A node's page: all GPUs well and held by `pod`, but for `changes` by index (None: the GPU is gone)."""
    lines: list[str] = ["# HELP x y", "# TYPE x gauge"]
    for index in range(gpus):
        changed = (changes or {}).get(index, {})
        if changed is not None:
            lines += gpu_lines(node, index, **({"pod": pod} | dict(changed)))
    return "\n".join(lines) + "\n"
