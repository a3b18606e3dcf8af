"""The names under which dcgm-exporter's three generations say the same thing.

A: label `Hostname`; B: `hostname`, same metrics; C (4.9.0): new names and units. The map of C is partly taken from
DCGM's header and partly from third-party notes: a real scrape of 4.9 has not been seen yet (docs/health.md).
Classic units rule here: MHz, MiB, percent, degrees Celsius, watts.
"""

from collections.abc import Mapping

MIB = 1024 * 1024

# Metric → (our key, factor to our unit). What is not here is skipped by the reader.
GPU_METRICS: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1),
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": ("temperature_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": ("memory_temperature_c", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1),
    "DCGM_FI_DEV_BOARD_POWER_WATTS": ("power_w", 1),
    "DCGM_FI_DEV_GPU_UTIL": ("utilisation", 1),
    "DCGM_FI_DEV_GPU_UTIL_RATIO": ("utilisation", 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_copy", 1),
    "DCGM_FI_DEV_MEMORY_UTIL_RATIO": ("memory_copy", 100),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1),
    "DCGM_FI_DEV_FB_USED_BYTES": ("memory_used_mib", 1 / MIB),
    "DCGM_FI_DEV_FB_FREE": ("memory_free_mib", 1),
    "DCGM_FI_DEV_FB_FREE_BYTES": ("memory_free_mib", 1 / MIB),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("engine_active", 100),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": ("engine_active", 100),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("rows_uncorrectable", 1),
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": ("rows_uncorrectable", 1),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("rows_correctable", 1),
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": ("rows_correctable", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILED": ("remap_failed", 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("remap_pending", 1),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_sbe_vol", 1),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_dbe_vol", 1),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": ("ecc_sbe_agg", 1),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("ecc_dbe_agg", 1),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("clock_reasons", 1),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_reasons", 1),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink_flit", 1),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink_data", 1),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink_replay", 1),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink_recovery", 1),
}
XID_LAST = frozenset({"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"})
XID_WINDOW = "DCGM_EXP_XID_ERRORS_COUNT"
XID_TOTAL = "DCGM_EXP_XID_ERRORS_TOTAL"
HEALTH_STATUS = "DCGM_EXP_GPU_HEALTH_STATUS"
WANTED = frozenset({*GPU_METRICS, *XID_LAST, XID_WINDOW, XID_TOTAL, HEALTH_STATUS})

# Names that only generation C has.
ONLY_C = frozenset(
    name for name in WANTED if name.endswith(("_RATIO", "_BYTES", "_CELSIUS", "_WATTS"))
) | {"DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_ROW_REMAP_FAILED"}
ECC_KEYS = ("ecc_sbe_vol", "ecc_dbe_vol", "ecc_sbe_agg", "ecc_dbe_agg")

# DCGM marks a blank value with these or more; the exporter leaves such series out, a reader drops them still.
BLANK_INT32 = 0x7FFFFFF0
BLANK_INT64 = 0x7FFFFFFFFFFFFFF0
BLANK_DOUBLE = 140737488355328.0


def is_blank(value: float) -> bool:
    """Whether DCGM means "no value" (dcgm_structs.h): never a measurement, and never zero."""
    in_int32 = BLANK_INT32 <= value <= BLANK_INT32 + 0xF
    return in_int32 or BLANK_DOUBLE <= value < BLANK_DOUBLE + 16 or value >= BLANK_INT64
