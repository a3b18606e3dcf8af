"""Node conditions, labels and taints → findings. Polarity differs by vendor: some are bad when True, some when False.

Read from the node's row, which the `cluster` process keeps. A condition of status Unknown says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduler.health.findings import RANK, Finding, Grade, Source
from scheduler.health.kernel import read_text
from scheduler.health.xids import Effect, gravest

BAD_WHEN_FALSE = "False"
BAD_WHEN_TRUE = "True"


@dataclass(frozen=True, slots=True)
class ConditionRule:
    """One condition type: whose it is, the status that is bad, how grave where no XID says more."""

    type: str
    product: str
    bad: str
    grade: Grade
    meaning: str


_S, _U, _A = Grade.SUSPECT, Grade.UNHEALTHY, Grade.ALERT
_SENTINEL = "NVSentinel"

CONDITIONS: tuple[ConditionRule, ...] = (
    ConditionRule("GPUMissing", "AKS", BAD_WHEN_TRUE, _U, "a GPU is missing"),
    ConditionRule("NVLinkStatusInactive", "AKS", BAD_WHEN_TRUE, _U, "NVLink is down"),
    ConditionRule("XIDErrors", "AKS", BAD_WHEN_TRUE, _S, "XIDs were logged"),
    ConditionRule("IBLinkFlapping", "AKS", BAD_WHEN_TRUE, _S, "an InfiniBand link flaps"),
    ConditionRule("GPUClockThrottling", "AKS", BAD_WHEN_TRUE, _S, "GPU clocks are throttled"),
    ConditionRule("UnhealthyNvidiaDevicePlugin", "AKS", BAD_WHEN_TRUE, _S, "the device plugin is not well"),
    ConditionRule("VMEventScheduled", "AKS", BAD_WHEN_TRUE, _S, "the cloud has planned work on the VM"),
    ConditionRule("KubeletProblem", "NPD", BAD_WHEN_TRUE, _S, "the kubelet is not well"),
    ConditionRule("ContainerRuntimeProblem", "NPD", BAD_WHEN_TRUE, _S, "the container runtime is not well"),
    ConditionRule("FilesystemCorruptionProblem", "NPD", BAD_WHEN_TRUE, _U, "a file system is corrupt"),
    ConditionRule("KernelDeadlock", "NPD", BAD_WHEN_TRUE, _U, "the kernel has deadlocked"),
    ConditionRule("ReadonlyFilesystem", "NPD", BAD_WHEN_TRUE, _U, "a file system is read-only"),
    ConditionRule("FrequentKubeletRestart", "NPD", BAD_WHEN_TRUE, _S, "the kubelet restarts often"),
    ConditionRule("FrequentContainerdRestart", "NPD", BAD_WHEN_TRUE, _S, "containerd restarts often"),
    ConditionRule("FrequentDockerRestart", "NPD", BAD_WHEN_TRUE, _S, "docker restarts often"),
    ConditionRule("FrequentUnregisterNetDevice", "NPD", BAD_WHEN_TRUE, _S, "network devices come and go"),
    ConditionRule("AcceleratedHardwareReady", "EKS", BAD_WHEN_FALSE, _U, "a GPU is not well"),
    ConditionRule("KernelReady", "EKS", BAD_WHEN_FALSE, _S, "the kernel is not well"),
    ConditionRule("NetworkingReady", "EKS", BAD_WHEN_FALSE, _S, "the network is not well"),
    ConditionRule("StorageReady", "EKS", BAD_WHEN_FALSE, _S, "storage is not well"),
    ConditionRule("ContainerRuntimeReady", "EKS", BAD_WHEN_FALSE, _S, "the container runtime is not well"),
    ConditionRule("XidCriticalError", "GKE", BAD_WHEN_TRUE, _U, "a critical XID was logged"),
    *(
        ConditionRule(f"Gpu{watch}Watch", _SENTINEL, BAD_WHEN_TRUE, _U, f"DCGM's {watch} watch failed")
        for watch in ("Mem", "Pcie", "Inforom", "Sm", "Nvlink", "Mcu", "Pmu", "Driver", "Cpuset")
    ),
    ConditionRule("GpuThermalWatch", _SENTINEL, BAD_WHEN_TRUE, _S, "DCGM's thermal watch failed"),
    ConditionRule("GpuPowerWatch", _SENTINEL, BAD_WHEN_TRUE, _S, "DCGM's power watch failed"),
    ConditionRule("SysLogsXIDError", _SENTINEL, BAD_WHEN_TRUE, _U, "an XID was logged"),
    ConditionRule("SysLogsSXIDError", _SENTINEL, BAD_WHEN_TRUE, _U, "an NVSwitch error was logged"),
    ConditionRule("SysLogsGPUFallenOff", _SENTINEL, BAD_WHEN_TRUE, _U, "a GPU has fallen off the bus"),
    ConditionRule("NVSwitchFatalError", _SENTINEL, BAD_WHEN_TRUE, _U, "an NVSwitch has failed"),
    ConditionRule("NVSwitchNonFatalError", _SENTINEL, BAD_WHEN_TRUE, _S, "an NVSwitch has reported an error"),
    ConditionRule("NVSwitchDown", _SENTINEL, BAD_WHEN_TRUE, _U, "an NVSwitch is down"),
    ConditionRule("DCGMError", _SENTINEL, BAD_WHEN_TRUE, _S, "DCGM reports an error"),
    ConditionRule("CSPMaintenance", _SENTINEL, BAD_WHEN_TRUE, _S, "the cloud has planned work on the machine"),
    # Nothing is taken out for a watcher that is silent.
    ConditionRule("GpuDcgmUnresponsive", _SENTINEL, BAD_WHEN_TRUE, _A, "DCGM does not answer"),
    ConditionRule("GpuDcgmConnectivityFailure", _SENTINEL, BAD_WHEN_TRUE, _A, "DCGM cannot be reached"),
)  # fmt: skip
BY_TYPE: Mapping[str, ConditionRule] = {rule.type: rule for rule in CONDITIONS}

_GRADE_OF = {
    Effect.NOTE: Grade.NOTE,
    Effect.JOB: Grade.NOTE,
    Effect.WATCH: Grade.SUSPECT,
    Effect.IDLE_RESET: Grade.SUSPECT,
    Effect.OUT: Grade.UNHEALTHY,
}


def grade_of(effect: Effect) -> Grade:
    """How grave a finding of an XID is. A job's own fault says nothing against the GPU."""
    return _GRADE_OF[effect]


def condition_findings(conditions: Mapping[str, Mapping[str, Any]], now: datetime) -> list[Finding]:
    """What a node's conditions say: {type: {status, reason, message, since}}, as `Node.conditions` keeps them."""
    found = []
    for type_, condition in conditions.items():
        rule = BY_TYPE.get(type_)
        if rule is not None and condition.get("status") == rule.bad:
            found.append(_finding(rule, condition, now))
    return found


def _finding(rule: ConditionRule, condition: Mapping[str, Any], now: datetime) -> Finding:
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    told = read_text(message, reason)
    xid = gravest(told.xids)
    # The code says more than the type; where several stand, the gravest decides.
    grade = grade_of(xid.effect) if xid else rule.grade
    if xid and xid.effect is Effect.NOTE and rule.grade is Grade.SUSPECT:
        grade = Grade.NOTE
    cause = f"XID {xid.code}: {xid.meaning}" if xid else rule.meaning
    return Finding(
        rule="node_condition",
        grade=grade,
        cause=cause,
        evidence=f"condition {rule.type}={rule.bad} ({reason}): {message}"[:1000],
        source=Source.CONDITION,
        at=_since(condition, now),
        uuid=told.uuid,
        index=told.index,
        xid=xid.code if xid else None,
        action=xid.action if xid else "",
        spares_job=xid.spares_job if xid else RANK[grade] >= RANK[Grade.SUSPECT],
    )


def _since(condition: Mapping[str, Any], now: datetime) -> datetime:
    try:
        since = datetime.fromisoformat(str(condition.get("since", "")))
    except ValueError:
        return now
    return min(since, now) if since.tzinfo else now


DRIVER_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
UPGRADE_OVER = frozenset({"", "upgrade-done"})
MIG_STATE = "nvidia.com/mig.config.state"
MIG_SETTLED = frozenset({"", "success"})
SENTINEL_STATE = "dgxc.nvidia.com/nvsentinel-state"
SENTINEL_OVER = frozenset({"", "remediation-succeeded"})

# Taints by which others say that a GPU is bad.
BAD_TAINTS: Mapping[str, str] = {
    "nvidia.com/gpu-xid-error": "an XID, by NVSentinel",
    "nvidia.com/gpu-nvlink-error": "an NVLink error, by NVSentinel",
    "gpu.nvidia.com/gpu-lost": "a lost GPU, by the DRA driver",
    "gpu.nvidia.com/xid": "an XID, by the DRA driver",
}


@dataclass(frozen=True, slots=True)
class Block:
    """Why a node must take no new pod though no GPU of it is known to be bad."""

    cause: str
    evidence: str


def blocks_of(labels: Mapping[str, str]) -> list[Block]:
    """Driver upgrades and MIG changes under way, and what NVSentinel holds."""
    found = []
    upgrade, mig = labels.get(DRIVER_UPGRADE, ""), labels.get(MIG_STATE, "")
    if upgrade not in UPGRADE_OVER:
        found.append(Block(f"driver upgrade: {upgrade}", f"label {DRIVER_UPGRADE}={upgrade}"))
    if mig not in MIG_SETTLED:
        found.append(Block(f"MIG layout: {mig}", f"label {MIG_STATE}={mig}"))
    sentinel = labels.get(SENTINEL_STATE, "")
    if sentinel not in SENTINEL_OVER:
        found.append(Block(f"NVSentinel: {sentinel}", f"label {SENTINEL_STATE}={sentinel}"))
    return found


def taint_findings(taints: Iterable[Mapping[str, str]], now: datetime) -> list[Finding]:
    """What other watchers have marked by a taint."""
    found = []
    for taint in taints:
        meaning = BAD_TAINTS.get(taint.get("key", ""))
        if meaning is None or taint.get("effect") == "PreferNoSchedule":
            continue
        value = taint.get("value", "")
        xid = gravest([int(value)]) if value.isdecimal() and "xid" in taint["key"] else None
        found.append(
            Finding(
                rule="node_taint",
                grade=grade_of(xid.effect) if xid else Grade.SUSPECT,
                cause=f"XID {xid.code}: {xid.meaning}" if xid else meaning,
                evidence=f"taint {taint['key']}={value}:{taint.get('effect', '')}",
                source=Source.CONDITION,
                at=now,
                xid=xid.code if xid else None,
                action=xid.action if xid else "",
                spares_job=True,
            )
        )
    return found


SHARED_STRATEGIES = frozenset({"time-slicing", "mps"})


def is_shared(labels: Mapping[str, str]) -> bool:
    """Whether the node's GPUs are cut or shared, so that allocatable says nothing of healthy GPUs."""
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    product = labels.get("nvidia.com/gpu.product", "")
    has_mig = any(key.startswith("nvidia.com/mig-") and key.endswith(".count") for key in labels)
    return strategy in SHARED_STRATEGIES or "-MIG-" in product or has_mig


def takes_whole_node(bad: int, capacity: int, allocatable: int, *, shared: bool) -> bool:
    """Whether bad GPUs close the whole node: unless allocatable has fallen by at least as many.

    Kubernetes cannot be told which GPU to avoid; the device plugin hides the bad ones, or nobody does.
    """
    return bad > 0 and (shared or capacity - allocatable < bad)
