"""XID codes: what they mean, whose fault they are, whether the device plugin looks away, what follows.

After NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors; buckets as carried by leptonai/gpud) and the device
plugin's own list (k8s-device-plugin internal/rm/health.go). The column `effect` is ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class XidClass(StrEnum):
    """Whose fault it usually is."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    DRIVER = "driver"
    FIRMWARE = "firmware"
    SOFTWARE = "software"
    NOTICE = "notice"


class Effect(StrEnum):
    """What follows here, from nothing to taking the GPU out."""

    NOTE = "note"  # written down
    JOB = "job"  # the job's own: counts against it; the GPU stays
    WATCH = "watch"  # suspect: no new multi-node gang
    IDLE_RESET = "idle_reset"  # suspect, to be reset when idle; jobs may run on
    OUT = "out"  # unhealthy: drain, then reset, restart or repair


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. nvidia: NVIDIA's bucket of immediate action. ignored: the device plugin never acts on it."""

    code: int
    meaning: str
    kind: XidClass
    nvidia: str
    ignored: bool
    effect: Effect
    action: str

    @property
    def spares_job(self) -> bool:
        """Whether a job that died of it is innocent: its own budget is not touched."""
        return self.effect in (Effect.OUT, Effect.WATCH, Effect.IDLE_RESET)


IGNORED_BY_PLUGIN = frozenset({13, 31, 43, 45, 68, 109})

_APP, _HW, _DRV = XidClass.APPLICATION, XidClass.HARDWARE, XidClass.DRIVER
_FW, _SW, _NOTICE = XidClass.FIRMWARE, XidClass.SOFTWARE, XidClass.NOTICE
_NOTE, _JOB, _WATCH = Effect.NOTE, Effect.JOB, Effect.WATCH
_IDLE, _OUT = Effect.IDLE_RESET, Effect.OUT

_RESET = "drain, reset the GPU"
_RESTART_JOB = "restart the job"
_LOG = "none"

_ROWS: tuple[tuple[tuple[int, ...], str, XidClass, str, Effect, str], ...] = (
    ((8,), "GPU stopped processing", _APP, "RESTART_APP", _JOB, _RESTART_JOB),
    ((13,), "graphics engine exception", _APP, "RESTART_APP", _JOB,
     "tell the user; drain if it repeats on one GPU over different jobs"),
    ((31,), "MMU page fault", _APP, "RESTART_APP", _JOB,
     "tell the user; drain if it repeats on one GPU over different jobs"),
    ((32,), "PBDMA error, bad push buffer", _APP, "RESTART_APP", _JOB, _RESTART_JOB),
    ((37,), "driver notice", _NOTICE, "IGNORE", _NOTE, _LOG),
    ((38,), "driver firmware error", _DRV, "IGNORE", _NOTE, "open a ticket"),
    ((39, 40, 41, 70, 71, 72, 75, 76, 77, 80, 85), "copy engine or similar", _APP, "RESTART_APP",
     _JOB, _RESTART_JOB),
    ((43,), "GPU stopped processing (channel reset)", _APP, "IGNORE", _JOB, "the job died; the GPU is fine"),
    ((44,), "engine fault notice", _NOTICE, "IGNORE", _NOTE, _LOG),
    ((45,), "preemptive cleanup after another error or a kill", _NOTICE, "WORKFLOW_XID_45", _NOTE,
     "look for the XID before it"),
    ((46,), "GPU stopped processing", _DRV, "RESET_GPU", _OUT, _RESET),
    ((48,), "double-bit ECC error", _HW, "WORKFLOW_XID_48", _OUT,
     "drain, reset the GPU; when it repeats, check for RMA"),
    ((54,), "auxiliary power missing", _HW, "CHECK_MECHANICALS", _OUT, "drain, field service"),
    ((60,), "video or other engine", _APP, "RESTART_APP", _JOB, _RESTART_JOB),
    ((61,), "PMU breakpoint or warning", _FW, "CONTACT_SUPPORT", _OUT, "drain, reset the GPU; open a ticket"),
    ((62,), "PMU halt", _FW, "RESET_GPU", _OUT, _RESET),
    ((63,), "row remap or page retirement recorded", _HW, "IGNORE", _IDLE, "reset the GPU when idle"),
    ((64,), "row remap failed to record", _HW, "RESET_GPU", _OUT, "drain, reset the GPU; check for RMA"),
    ((66, 67), "notice", _NOTICE, "IGNORE", _NOTE, _LOG),
    ((68,), "NVDEC exception", _APP, "RESTART_APP", _JOB, _RESTART_JOB),
    ((69,), "graphics engine class error", _APP, "RESTART_APP", _JOB, _RESTART_JOB),
    ((74,), "NVLink error", _HW, "WORKFLOW_NVLINK_ERR", _OUT,
     "drain, reset all GPUs of the baseboard; when it repeats, field service"),
    ((78,), "vGPU start error", _SW, "UPDATE_SWFW", _WATCH, "update driver and firmware"),
    ((79,), "GPU fell off the bus", _HW, "RESTART_BM", _OUT, "drain, restart the node; when it repeats, RMA"),
    ((92,), "high rate of corrected ECC errors", _HW, "IGNORE", _WATCH, "watch; field diagnosis"),
    ((93,), "InfoROM notice", _NOTICE, "IGNORE", _NOTE, _LOG),
    ((94,), "contained memory error", _HW, "RESTART_APP", _IDLE,
     "restart the job that was hit; reset the GPU when idle"),
    ((95,), "uncontained memory error", _HW, "RESET_GPU", _OUT, "stop all on the GPU, reset it"),
    ((109,), "context switch timeout", _DRV, "RESET_GPU", _OUT, _RESET),
    ((110,), "security fault", _HW, "RESET_GPU", _OUT, _RESET),
    ((119,), "GSP RPC timeout", _FW, "RESET_GPU", _OUT, "drain, reset the GPU; restart the node if that fails"),
    ((120,), "GSP error", _FW, "RESET_GPU", _OUT, "drain, reset the GPU; restart the node if that fails"),
    ((121,), "C2C link error, corrected", _HW, "IGNORE", _WATCH, "watch"),
    ((123,), "power management unit failed to initialise", _FW, "RESET_GPU", _OUT, _RESET),
    ((136,), "link training failed", _HW, "RESET_GPU", _OUT, _RESET),
    ((137,), "NVLink privilege error", _APP, "IGNORE", _JOB, "look at the job"),
    ((140,), "unrecovered ECC error", _HW, "RESET_GPU", _OUT, _RESET),
    ((141, 152, 153, 160, 161), "notice", _NOTICE, "IGNORE", _NOTE, _LOG),
    ((142,), "fatal notice", _NOTICE, "CONTACT_SUPPORT", _WATCH, "open a ticket"),
    ((143,), "GPU initialisation error", _HW, "RESET_GPU", _OUT, _RESET),
    ((144, 145, 146, 147, 148, 149, 150), "NVLink 5 unit error", _HW, "WORKFLOW_NVLINK5_ERR", _WATCH,
     "decode unit and status; drain if fatal or repeated"),
    ((151,), "key rotation (confidential computing)", _SW, "RESTART_VM", _WATCH, "restart the VM"),
    ((154,), "GPU recovery action changed", _NOTICE, "XID_154_EVAL", _WATCH, "follow the value it reports"),
    ((155,), "NVLink software-defined error", _HW, "RESET_GPU", _OUT, _RESET),
    ((156,), "resource retirement", _HW, "RESET_GPU", _IDLE, "reset the GPU when idle"),
    ((157,), "resource retirement failed", _HW, "IGNORE", _WATCH, "open a ticket"),
    ((158,), "GPU fatal timeout", _HW, "RESET_GPU", _OUT, _RESET),
    ((159,), "CHI non-data error", _HW, "CHECK_UVM", _WATCH, "open a ticket"),
    ((162, 163, 164, 165, 166, 169, 170), "no action published", _NOTICE, "", _NOTE, _LOG),
    ((167,), "PCIe fatal timeout", _HW, "", _OUT, "drain, restart the node"),
    ((168,), "reduced memory", _HW, "", _OUT, _RESET),
    ((171, 172), "DRAM or SRAM detail of XID 48", _HW, "", _WATCH, "follow XID 48"),
)  # fmt: skip

XIDS: Mapping[int, Xid] = {
    code: Xid(code, meaning, kind, nvidia, code in IGNORED_BY_PLUGIN, effect, action)
    for codes, meaning, kind, nvidia, effect, action in _ROWS
    for code in codes
}
_GRAVITY = {effect: place for place, effect in enumerate(Effect)}


def xid_of(code: int) -> Xid:
    """The row of a code; one that nobody has described is watched, not acted on."""
    return XIDS.get(code) or Xid(
        code=code,
        meaning="not in the catalogue",
        kind=XidClass.NOTICE,
        nvidia="",
        ignored=False,
        effect=Effect.WATCH,
        action="look it up",
    )


def gravest(codes: Iterable[int]) -> Xid | None:
    """XIDs come in bursts: the gravest of those seen together decides; None without any."""
    rows = [xid_of(code) for code in codes if code]
    return max(rows, key=lambda row: (_GRAVITY[row.effect], -row.code), default=None)


class Recovery(StrEnum):
    """NVML's recovery action, which XID 154 reports."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX = "recover_imex"
    BUS_RESET = "bus_reset"
    SYSTEM_REBOOT = "system_reboot"


RECOVERIES: Mapping[int, Recovery] = dict(enumerate(Recovery))
