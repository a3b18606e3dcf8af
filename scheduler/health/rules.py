"""The rules: what each watches, its thresholds by default, whether it may take nodes out. Rows override the defaults.

`scheduler.models.HealthRule` keeps mode and parameters; a rule without a row has these defaults and mode `propose`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """What a rule may do."""

    OFF = "off"
    PROPOSE = "propose"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One rule. takes_out: in mode `act` its unhealthy findings cordon, taint and drain within the budget."""

    key: str
    title: str
    parameters: Mapping[str, float]
    takes_out: bool = False
    about_jobs: bool = False


_SPECS = (
    RuleSpec("xid", "XIDs of hardware, driver and firmware", {}, takes_out=True),
    RuleSpec("xid_repeat", "XID 13 or 31 on one GPU over different jobs", {"jobs": 2, "seconds": 86400}),
    RuleSpec("ecc_uncorrected", "Uncorrectable ECC errors", {}, takes_out=True),
    RuleSpec("ecc_corrected", "Corrected ECC errors", {"above": 0}),
    RuleSpec("row_remap", "Row remapping failed or pending", {}, takes_out=True),
    RuleSpec("nvlink", "NVLink errors", {"crc_per_hour": 100, "recoveries": 1}),
    RuleSpec("dcgm_health", "DCGM's own health watches", {}, takes_out=True),
    RuleSpec("temperature", "GPU too hot", {"above_c": 85, "seconds": 120}),
    RuleSpec("slowdown", "Clocks slowed down by hardware or heat", {"seconds": 120}),
    RuleSpec("gpu_missing", "GPU no longer seen by the exporter", {"seconds": 60}, takes_out=True),
    RuleSpec("allocatable", "Fewer GPUs allocatable than the node has", {"seconds": 120}),
    RuleSpec("node_condition", "Node conditions of watchers and clouds", {}, takes_out=True),
    RuleSpec("node_taint", "Taints set by other watchers", {}),
    RuleSpec("report", "Reports of jobs and operators", {}),
    RuleSpec("kernel", "XIDs in the kernel log", {}, takes_out=True),
    RuleSpec("waste", "GPUs held but idle", {"below_percent": 20, "seconds": 1800}, about_jobs=True),
    RuleSpec("memory_copy", "Memory copy is the bottleneck", {"above_percent": 90, "seconds": 600}, about_jobs=True),
    RuleSpec("stalled", "Jobs without a sign of progress", {}, about_jobs=True),
)  # fmt: skip
SPECS: Mapping[str, RuleSpec] = {spec.key: spec for spec in _SPECS}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in force."""

    spec: RuleSpec
    mode: Mode = Mode.PROPOSE
    parameters: Mapping[str, float] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """A parameter: the row's, else the default."""
        return float(self.parameters.get(name, self.spec.parameters[name]))

    @property
    def is_on(self) -> bool:
        """Looked at at all."""
        return self.mode is not Mode.OFF

    @property
    def may_take_out(self) -> bool:
        """Takes nodes out by itself, within the budget."""
        return self.mode is Mode.ACT and self.spec.takes_out


Rules = Mapping[str, Rule]


def rules_in_force(rows: Mapping[str, tuple[str, Mapping[str, float]]]) -> dict[str, Rule]:
    """All rules: as the rows say {key: (mode, parameters)}, else as they come."""
    return {
        key: Rule(spec, Mode(rows[key][0]), rows[key][1]) if key in rows else Rule(spec)
        for key, spec in SPECS.items()
    }
