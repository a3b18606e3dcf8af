"""Rules over readings: durations, counters, bursts, unknowns; conditions of every vendor; jobs at work."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.health.conditions import (
    CONDITIONS,
    blocks_of,
    condition_findings,
    is_shared,
    taint_findings,
    takes_whole_node,
)
from scheduler.health.findings import Finding, Grade
from scheduler.health.judge import (
    GpuMemory,
    is_applications,
    judge_gpu,
    kernel_finding,
    missing_finding,
)
from scheduler.health.kernel import read_text
from scheduler.health.readings import GpuReading, read_page
from scheduler.health.rules import Rule, rules_in_force
from scheduler.health.work import JobMemory, Progress, judge_job, stalled_for
from tests.health.pages import page, uuid_of

FIXTURES = Path(__file__).parent.parent / "fixtures"
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
RULES = rules_in_force({})
BAD = "GPU-e8f61eef-4f96-4aa7-a5c5-54f7d604757b"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def reading(pod: str = "", **values: Any) -> GpuReading:
    return read_page(page("n1", {0: {"pod": pod, **values}}, gpus=1))[uuid_of("n1", 0)]


def judged(
    memory: GpuMemory, seconds: float = 0, rules: dict[str, Rule] = RULES, **values: Any
) -> list[tuple[str, str]]:
    found = judge_gpu(reading(**values), memory, rules, at(seconds))
    return [(finding.rule, finding.grade.value) for finding in found]


def test_xid_is_news_once_and_again_only_after_it_was_gone() -> None:
    memory = GpuMemory()
    assert judged(memory) == []
    assert judged(memory, 15, xid=79) == [("xid", "unhealthy")]
    assert judged(memory, 30, xid=79) == []
    assert judged(memory, 45, xid=0) == []
    assert judged(memory, 60, xid=79) == [("xid", "unhealthy")]


def test_xid_that_a_row_remembers_is_no_news_after_a_restart() -> None:
    assert judged(GpuMemory(fresh=False, xid=79), xid=79) == []
    assert judged(GpuMemory(), xid=79) == [("xid", "unhealthy")]


def test_xid_seen_again_within_the_exporters_window_is_news() -> None:
    memory = GpuMemory()
    one = reading(xid=94)
    one.xid_window = {94: 1}
    assert [f.rule for f in judge_gpu(one, memory, RULES, NOW)] == ["xid"]
    two = reading(xid=94)
    two.xid_window = {94: 2}
    assert [f.rule for f in judge_gpu(two, memory, RULES, at(15))] == ["xid"]


def test_a_missing_xid_series_is_unknown_and_keeps_what_was_known() -> None:
    memory = GpuMemory()
    judged(memory, xid=79)
    assert judged(memory, 15, xid=None) == []
    assert memory.xid == 79


@pytest.mark.parametrize("code", [13, 31])
def test_application_xids_are_noted_and_repeats_over_two_jobs_make_the_gpu_suspect(
    code: int,
) -> None:
    memory = GpuMemory()
    assert judged(memory, 0, pod="jaaa-1-main-0-1", xid=code) == [("xid", "note")]
    assert is_applications(code)
    judged(memory, 60, pod="jaaa-2-main-0-1", xid=0)
    assert judged(memory, 75, pod="jaaa-2-main-0-1", xid=code) == [("xid", "note")]
    judged(memory, 90, pod="jbbb-1-main-0-1", xid=0)
    assert judged(memory, 99, pod="jbbb-1-main-0-1", xid=code) == [
        ("xid", "note"),
        ("xid_repeat", "suspect"),
    ]


def test_application_xids_of_yesterday_do_not_count_as_a_repeat() -> None:
    memory = GpuMemory()
    judged(memory, 0, pod="jaaa-1-main-0-1", xid=31)
    judged(memory, 86_000, pod="jbbb-1-main-0-1", xid=0)
    assert ("xid_repeat", "suspect") not in judged(memory, 86_500, pod="jbbb-1-main-0-1", xid=31)


def test_any_corrected_ecc_error_alerts_and_only_uncorrectable_ones_take_out() -> None:
    memory = GpuMemory()
    assert judged(memory, ecc_sbe_vol=0, ecc_dbe_vol=0) == []
    assert judged(memory, 15, ecc_sbe_vol=1, ecc_dbe_vol=0) == [("ecc_corrected", "alert")]
    assert judged(memory, 30, ecc_sbe_vol=1, ecc_dbe_vol=1) == [
        ("ecc_uncorrected", "unhealthy"),
        ("ecc_corrected", "alert"),
    ]
    assert judged(memory, 45, ecc_sbe_vol=0, ecc_dbe_vol=1) == []
    assert judged(memory, 60, ecc_dbe_vol=0) == []  # reset
    assert judged(memory, 75, ecc_dbe_vol=1) == [("ecc_uncorrected", "unhealthy")]


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "1 uncorrectable ECC error"), (2, "2 uncorrectable ECC errors")],
)
def test_one_error_is_no_errors(count: int, said: str) -> None:
    memory = GpuMemory()
    judged(memory, ecc_dbe_vol=0)
    (finding,) = judge_gpu(reading(ecc_dbe_vol=count), memory, RULES, at(15))
    assert finding.cause == said


def test_lifetime_ecc_counts_are_news_only_when_they_rise() -> None:
    memory = GpuMemory()
    assert judged(memory, ecc_dbe_agg=3) == []
    assert judged(memory, 15, ecc_dbe_agg=4) == [("ecc_uncorrected", "unhealthy")]


def test_missing_ecc_series_say_nothing() -> None:
    memory = GpuMemory()
    for seconds in range(0, 7200, 60):
        assert judged(memory, seconds) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"remap_failed": 1}, [("row_remap", "unhealthy")]),
        ({"remap_pending": 1}, [("row_remap", "suspect")]),
        ({"remap_failed": 0, "remap_pending": 0}, []),
        ({"remap_failed": None}, []),
    ],
)
def test_row_remapping(values: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert judged(GpuMemory(), **values) == expected


def test_temperature_must_last_two_minutes_without_a_gap() -> None:
    memory = GpuMemory()
    assert judged(memory, 0, temperature_c=86) == []
    assert judged(memory, 119, temperature_c=86) == []
    assert judged(memory, 120, temperature_c=86) == [("temperature", "alert")]
    assert judged(memory, 130, temperature_c=85) == []
    assert judged(memory, 140, temperature_c=90) == []
    assert judged(memory, 200, temperature_c=None) == []  # unknown: neither good nor bad
    assert judged(memory, 300, temperature_c=90) == []


def test_slowdown_by_hardware_makes_suspect_and_a_power_cap_does_not() -> None:
    memory = GpuMemory()
    judged(memory, 0, clock_reasons=0x4)
    assert judged(memory, 500, clock_reasons=0x5) == []
    judged(memory, 600, clock_reasons=0x48)
    assert judged(memory, 720, clock_reasons=0x48) == [("slowdown", "suspect")]


def test_nvlink_recoveries_and_crc_rates_make_suspect() -> None:
    memory = GpuMemory()
    assert judged(memory, 0, nvlink_flit=5000, nvlink_recovery=7) == []  # of days ago
    assert judged(memory, 60, nvlink_flit=5050, nvlink_recovery=7) == []
    assert judged(memory, 120, nvlink_flit=5050, nvlink_recovery=8) == [("nvlink", "suspect")]
    assert judged(memory, 180, nvlink_flit=5200, nvlink_recovery=8) == [("nvlink", "suspect")]


def test_a_rule_that_is_off_finds_nothing_and_a_changed_threshold_holds() -> None:
    off = rules_in_force({"xid": ("off", {}), "temperature": ("propose", {"above_c": 95})})
    memory = GpuMemory()
    judged(memory, 0, off, temperature_c=90)
    assert judged(memory, 300, off, temperature_c=90, xid=79) == []


def test_missing_gpu_is_lost_after_a_minute() -> None:
    assert missing_finding("G", 3, NOW, RULES, at(59)) is None
    found = missing_finding("G", 3, NOW, RULES, at(60))
    assert found is not None
    assert (found.grade, found.at, found.spares_job) == (Grade.UNHEALTHY, NOW, True)


# The samples: what is a fault, what is unknown.


def sample_findings(
    before: str | None, name: str, seconds: float = 300
) -> dict[int, set[tuple[str, str]]]:
    memories: dict[str, GpuMemory] = {}
    found: dict[int, set[tuple[str, str]]] = {}
    for moment, file in ((0.0, before), (seconds, name), (seconds + 120, name)):
        if file is None:
            continue
        for uuid, one in read_page((FIXTURES / "dcgm" / file).read_text()).items():
            findings = judge_gpu(one, memories.setdefault(uuid, GpuMemory()), RULES, at(moment))
            if moment:
                found.setdefault(one.index, set()).update((f.rule, f.grade.value) for f in findings)
    return {index: rules for index, rules in found.items() if rules}


def test_sample_with_all_metrics_shows_a_dead_and_a_hot_gpu() -> None:
    assert sample_findings("dcgm_h100_node_prev.prom", "dcgm_h100_node.prom") == {
        6: {("temperature", "alert"), ("slowdown", "suspect"), ("dcgm_health", "alert")},
        7: {
            ("xid", "unhealthy"),
            ("ecc_uncorrected", "unhealthy"),
            ("ecc_corrected", "alert"),
            ("row_remap", "suspect"),
            ("dcgm_health", "unhealthy"),
        },
    }


def test_sample_before_the_fault_is_well() -> None:
    found = sample_findings(None, "dcgm_h100_node_prev.prom")
    assert all(
        grade in ("alert", "note")
        for rules in found.values()
        for _, grade in rules
        if _ != "slowdown"
    )
    assert 7 not in {i for i, rules in found.items() if any(r == "xid" for r, _ in rules)}


@pytest.mark.parametrize(
    "name",
    [
        "dcgm_h100_node_default_metrics_only.prom",
        "dcgm_h100_node_genB_hostname.prom",
        "dcgm_h100_node_genC_reconstructed.prom",
    ],
)  # fmt: skip
def test_samples_without_ecc_still_show_the_xid_and_the_heat(name: str) -> None:
    found = sample_findings(None, name)
    assert found[7] == {("xid", "unhealthy")}
    assert ("temperature", "alert") in found[6]
    assert set(found) == {6, 7}


def test_sample_of_mig_is_well() -> None:
    assert sample_findings(None, "dcgm_a100_mig_node.prom") == {}


def nodes() -> dict[str, dict[str, Any]]:
    listed = json.loads((FIXTURES / "nodes" / "nodelist.json").read_text())["items"]
    return {node["metadata"]["name"]: node for node in listed}


def conditions(node: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {
        c["type"]: {"status": c["status"], "reason": c["reason"], "message": c["message"],
                    "since": c["lastTransitionTime"].replace("Z", "+00:00")}
        for c in node["status"]["conditions"]
    }  # fmt: skip


def test_node_samples_blame_one_gpu_of_one_node() -> None:
    found = {name: condition_findings(conditions(node), NOW) for name, node in nodes().items()}
    assert [name for name, findings in found.items() if findings] == ["gpu-h100-0022"]
    (finding,) = found["gpu-h100-0022"]
    assert (finding.xid, finding.uuid, finding.grade) == (95, BAD, Grade.UNHEALTHY)
    assert finding.at < NOW


def test_node_samples_say_which_are_shared_and_none_is_blocked() -> None:
    shared = {name for name, node in nodes().items() if is_shared(node["metadata"]["labels"])}
    assert shared == {"gpu-a100-mig-0003", "gpu-t4-0042"}
    assert all(not blocks_of(node["metadata"]["labels"]) for node in nodes().values())


@pytest.mark.parametrize("rule", CONDITIONS, ids=lambda r: r.type)
def test_every_condition_is_bad_in_its_own_polarity_only(rule: Any) -> None:
    well = "True" if rule.bad == "False" else "False"
    for status, bad in ((rule.bad, True), (well, False), ("Unknown", False)):
        found = condition_findings(
            {rule.type: {"status": status, "reason": "", "message": "", "since": ""}}, NOW
        )
        assert bool(found) == bad
        assert all(f.grade == rule.grade for f in found)


def test_ready_and_pressure_conditions_are_nobodys_business_here() -> None:
    assert (
        condition_findings({"Ready": {"status": "False"}, "DiskPressure": {"status": "True"}}, NOW)
        == []
    )


@pytest.mark.parametrize(
    ("type_", "status", "reason", "message", "xid", "grade", "index"),
    [
        ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU fell off", 79, Grade.UNHEALTHY, None),
        ("AcceleratedHardwareReady", "False", "NvidiaXID[31]Error", "", 31, Grade.NOTE, None),
        ("AcceleratedHardwareReady", "False", "NvidiaDoubleBitError", "", None, Grade.UNHEALTHY, None),
        ("XidCriticalError", "True", '{"79": 1, "31": 4}', "b7e2-boot", 79, Grade.UNHEALTHY, None),
        ("XidCriticalError", "True", "XidCriticalError", "boot", None, Grade.UNHEALTHY, None),
        ("GpuMemWatch", "True", "GpuMemWatchIsNotHealthy",
         "ErrorCode:95 GPU:3 uncontained Recommended Action=COMPONENT_RESET;", 95, Grade.UNHEALTHY, 3),
        ("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy",
         "[13,79] bus - RecommendedAction: RESTART_BM", 79, Grade.UNHEALTHY, None),
        ("XIDErrors", "True", "XIDFound", "NVRM: Xid (PCI:0000:df:00): 63, pid=1", 63, Grade.SUSPECT, None),
        ("XIDErrors", "True", "", "", None, Grade.SUSPECT, None),
        ("GpuDcgmUnresponsive", "True", "", "", None, Grade.ALERT, None),
    ],
)  # fmt: skip
def test_conditions_with_codes(
    type_: str,
    status: str,
    reason: str,
    message: str,
    xid: int | None,
    grade: Grade,
    index: int | None,
) -> None:
    told = {
        "status": status,
        "reason": reason,
        "message": message,
        "since": "2026-11-29T11:59:00+00:00",
    }
    (finding,) = condition_findings({type_: told}, NOW)
    assert (finding.xid, finding.grade, finding.index) == (xid, grade, index)
    assert finding.at == at(-60)


def test_kernel_lines_name_their_codes() -> None:
    text = "[1.2] NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert read_text(text).xids == (79,)
    found = kernel_finding(read_text(text).xids, text, NOW)
    assert found is not None
    assert (found.grade, found.xid) == (Grade.UNHEALTHY, 79)
    assert kernel_finding((), "all well", NOW) is None
    assert read_text("nothing of interest 79").xids == ()


@pytest.mark.parametrize(
    ("labels", "blocked"),
    [
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, False),
        ({}, False),
        *(({"nvidia.com/gpu-driver-upgrade-state": state}, True)
          for state in ("upgrade-required", "cordon-required", "drain-required", "pod-restart-required",
                        "validation-required", "uncordon-required", "upgrade-failed")),
        ({"nvidia.com/mig.config.state": "success"}, False),
        ({"nvidia.com/mig.config.state": "pending"}, True),
        ({"nvidia.com/mig.config.state": "rebooting"}, True),
        ({"nvidia.com/mig.config.state": "failed"}, True),
        ({"dgxc.nvidia.com/nvsentinel-state": "draining"}, True),
    ],
)  # fmt: skip
def test_driver_upgrades_and_mig_changes_block(labels: dict[str, str], blocked: bool) -> None:
    assert bool(blocks_of(labels)) == blocked


def test_taints_of_other_watchers_are_findings() -> None:
    taints = [
        {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu-nvlink-error", "value": "", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ]
    found = taint_findings(taints, NOW)
    assert [(f.xid, f.grade) for f in found] == [(79, Grade.UNHEALTHY), (None, Grade.SUSPECT)]


@pytest.mark.parametrize(
    ("bad", "capacity", "allocatable", "shared", "whole"),
    [
        (0, 8, 8, False, False),
        (1, 8, 8, False, True),  # nobody hides the bad one
        (1, 8, 7, False, False),  # the plugin does
        (2, 8, 7, False, True),
        (1, 8, 7, True, True),  # allocatable says nothing of shared GPUs
        (1, 8, 0, False, False),
    ],
)
def test_whole_node_closes_unless_allocatable_has_fallen_enough(
    bad: int, capacity: int, allocatable: int, shared: bool, whole: bool
) -> None:
    assert takes_whole_node(bad, capacity, allocatable, shared=shared) == whole


# Jobs at work.


def test_waste_is_a_mean_below_twenty_percent_for_half_an_hour() -> None:
    memory = JobMemory()
    assert judge_job([5, 10], [1, 1], memory, RULES, NOW) == []
    assert judge_job([5, 10], [1, 1], memory, RULES, at(1799)) == []
    (found,) = judge_job([5, None], [1, 1], memory, RULES, at(1800))
    assert (found.rule, found.percent, found.minutes) == ("waste", 5.0, 30)
    assert judge_job([5, 50], [1, 1], memory, RULES, at(1860)) == []
    assert judge_job([5, 5], [1, 1], memory, RULES, at(1900)) == []


def test_unknown_utilisation_is_no_waste() -> None:
    memory = JobMemory()
    judge_job([5], [1], memory, RULES, NOW)
    judge_job([None], [None], memory, RULES, at(900))
    assert judge_job([5], [1], memory, RULES, at(1800)) == []


def test_memory_copy_over_ninety_percent_for_ten_minutes() -> None:
    memory = JobMemory()
    judge_job([99], [95], memory, RULES, NOW)
    assert [f.rule for f in judge_job([99], [95], memory, RULES, at(600))] == ["memory_copy"]


def progress(**changes: Any) -> Progress:
    known: dict[str, Any] = {
        "heartbeat_at": None,
        "log_known": True,
        "log_grew_at": None,
        "flat_since": None,
    }
    return Progress(at(-1000), **(known | changes))


def test_stall_needs_a_silent_heart_or_a_silent_log_with_flat_utilisation() -> None:
    silent = progress(heartbeat_at=at(-600))
    assert stalled_for(silent, 600, NOW) == (600, "no heartbeat for 600 s")
    assert stalled_for(silent, 601, NOW) is None
    assert stalled_for(progress(log_grew_at=at(-900)), 600, NOW) is None  # its GPUs move
    quiet = progress(log_grew_at=at(-700), flat_since=at(-650), flat_percent=100)
    evidence = "no log line and utilisation flat at 100 % for 650 s"
    assert stalled_for(quiet, 600, NOW) == (650, evidence)
    assert stalled_for(progress(log_grew_at=at(-5), flat_since=at(-650)), 600, NOW) is None
    never_a_line = stalled_for(progress(flat_since=at(-650)), 600, NOW)
    assert never_a_line is not None
    # A log that nobody could read says nothing.
    assert stalled_for(progress(log_known=False, flat_since=at(-650)), 600, NOW) is None


@pytest.mark.parametrize("level", [0, 55, 100])
def test_utilisation_is_flat_while_it_stays_the_same_at_any_level(level: float) -> None:
    memory = JobMemory()
    judge_job([level, level], [None], memory, RULES, NOW)
    judge_job([level, level - 1], [None], memory, RULES, at(60))
    assert (memory.flat_since, memory.flat_percent) == (NOW, level)
    judge_job([level - 20, level], [None], memory, RULES, at(75))
    assert memory.flat_since == at(75)
    judge_job([None, None], [None], memory, RULES, at(90))  # unknown is no stall
    assert memory.flat_since is None


def test_findings_are_comparable_values() -> None:
    found = judge_gpu(reading(xid=79), GpuMemory(), RULES, NOW)
    assert isinstance(found[0], Finding)
    assert found[0].uuid == uuid_of("n1", 0)
    assert found[0].action.startswith("drain")
