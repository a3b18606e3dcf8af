"""Readings, one after another, → findings. What must be remembered between two scrapes is in `GpuMemory`.

Durations count from the first scrape that showed the value; a scrape that does not show it (unknown) ends them, since
unknown is neither good nor bad.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from scheduler.health.conditions import grade_of
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.readings import GpuReading, Holder
from scheduler.health.rules import Rule, Rules
from scheduler.health.xids import Effect, gravest, xid_of

# Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS that deserve an alert: hardware slowdown, hardware thermal, power brake.
SLOWDOWN_BITS = 0x8 | 0x40 | 0x80
WATCH_WARNS, WATCH_FAILS = 10, 20
REPEATING = frozenset({13, 31})
# A pod that died of the fault is no longer on the exporter's page: who held the GPU shortly before counts.
HOLDER_REMEMBERED = timedelta(minutes=2)


@dataclass(slots=True)
class GpuMemory:
    """What was known of a GPU before this scrape. `fresh`: nothing was, not even from its row."""

    fresh: bool = True
    xid: int = 0
    xid_window: dict[int, int] | None = None
    xid_totals: dict[int, int] | None = None
    counters: dict[str, float] = field(default_factory=dict)
    since: dict[str, datetime] = field(default_factory=dict)
    # NVLink CRC errors an hour are a difference: (when, count) to compare with.
    nvlink_mark: tuple[datetime, float] | None = None
    # (when, pod) of XIDs that are an application's as long as they do not repeat.
    app_xids: list[tuple[datetime, str]] = field(default_factory=list)
    holders: tuple[Holder, ...] = ()
    held_at: datetime | None = None
    # What its row says of all this.
    written: dict[str, object] = field(default_factory=dict)

    def last_holders(self, now: datetime) -> tuple[Holder, ...]:
        """Who holds the GPU, or did a moment ago."""
        if self.held_at is None or now - self.held_at > HOLDER_REMEMBERED:
            return ()
        return self.holders


def judge_gpu(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    """Findings of one scrape of one GPU; `memory` is brought up to date."""
    if reading.holders:
        memory.holders, memory.held_at = tuple(reading.holders), now
    found: list[Finding] = []
    for judge in (_xids, _ecc, _remap, _nvlink, _watches, _temperature, _slowdown):
        found += judge(reading, memory, rules, now)
    memory.fresh = False
    return found


def _made(reading: GpuReading, rule: str, grade: Grade, cause: str, evidence: str, now: datetime,
          **more: object) -> Finding:  # fmt: skip
    return Finding(
        rule=rule, grade=grade, cause=cause, evidence=evidence, source=Source.EXPORTER, at=now,
        uuid=reading.uuid, index=reading.index, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _xids(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    codes = _new_codes(reading, memory)
    repeated = _repeats(reading, memory, rules["xid_repeat"], codes, now)
    xid = gravest(codes)
    if xid is None or not rules["xid"].is_on:
        return repeated
    told = f" ({reading.xid_message})" if reading.xid_message and reading.xid == xid.code else ""
    others = sorted(code for code in codes if code != xid.code)
    beside = f", with XID {', '.join(map(str, others))}" if others else ""
    return [
        _made(
            reading, "xid", grade_of(xid.effect), f"XID {xid.code}: {xid.meaning}",
            f"exporter: XID {xid.code}{told} on GPU {reading.index}{beside}", now,
            xid=xid.code, action=xid.action, spares_job=xid.spares_job,
        ),
        *repeated,
    ]  # fmt: skip


def _new_codes(reading: GpuReading, memory: GpuMemory) -> set[int]:
    """XIDs that were not there before: another last one, or a count that has risen."""
    codes: set[int] = set()
    if reading.xid is not None:
        if reading.xid and reading.xid != memory.xid:
            codes.add(reading.xid)
        memory.xid = reading.xid
    codes |= _risen(reading.xid_window, memory.xid_window, fresh=memory.fresh)
    codes |= _risen(reading.xid_totals, memory.xid_totals, fresh=memory.fresh)
    memory.xid_window = dict(reading.xid_window)
    memory.xid_totals = dict(reading.xid_totals)
    return codes


def _risen(counts: Mapping[int, int], before: Mapping[int, int] | None, *, fresh: bool) -> set[int]:
    if before is None and not fresh:
        return set()  # after a restart: what counted then was judged then
    known = before or {}
    return {code for code, count in counts.items() if code and count > known.get(code, 0)}


def _repeats(
    reading: GpuReading, memory: GpuMemory, rule: Rule, codes: set[int], now: datetime
) -> list[Finding]:
    if not codes & REPEATING or not rule.is_on:
        return []
    oldest = now - timedelta(seconds=rule.number("seconds"))
    memory.app_xids = [each for each in memory.app_xids if each[0] > oldest]
    memory.app_xids += [(now, job_of_pod(holder)) for holder in memory.last_holders(now)]
    jobs = sorted({job for _, job in memory.app_xids})
    if len(jobs) < rule.number("jobs"):
        return []
    cause = f"XID {min(codes & REPEATING)} under {len(jobs)} different jobs"
    evidence = f"exporter: repeats on GPU {reading.index} under different jobs"
    return [
        _made(reading, "xid_repeat", Grade.SUSPECT, cause, evidence, now, action="field diagnosis")
    ]


def job_of_pod(holder: Holder) -> str:
    """What tells two jobs' pods apart: in our namespaces the name's first part is the job's."""
    name = holder.pod.partition("-")[0] if holder.namespace.startswith("muster-") else holder.pod
    return f"{holder.namespace}/{name}"


def _rise(reading: GpuReading, memory: GpuMemory, key: str, *, from_zero: bool) -> float:
    """By how much a counter has risen since it was last judged; a reset begins anew. Missing: 0 and unchanged."""
    value = reading.values.get(key)
    if value is None:
        return 0
    before = memory.counters.get(key, 0 if from_zero else value)
    memory.counters[key] = value
    return max(0, value - before)


def _ecc(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    found = []
    double = _rise(reading, memory, "ecc_dbe_vol", from_zero=True)
    # The lifetime count may be years old: only its rise is news.
    double = max(double, _rise(reading, memory, "ecc_dbe_agg", from_zero=False))
    if double and rules["ecc_uncorrected"].is_on:
        found.append(
            _made(
                reading, "ecc_uncorrected", Grade.UNHEALTHY, _errors(double, "uncorrectable"),
                f"exporter: double-bit ECC errors on GPU {reading.index}: "
                f"{_shown(reading, 'ecc_dbe_vol')} since driver load, {_shown(reading, 'ecc_dbe_agg')} ever",
                now, action="drain, reset the GPU; when it repeats, check for RMA", spares_job=True,
                numbers=(("count", double), ("error_kind", "uncorrectable")),
            )
        )  # fmt: skip
    single = reading.values.get("ecc_sbe_vol", reading.values.get("ecc_sbe_agg"))
    rule = rules["ecc_corrected"]
    if single is not None and rule.is_on and single > rule.number("above"):
        found.append(
            _made(
                reading, "ecc_corrected", Grade.ALERT, _errors(single, "corrected"),
                f"exporter: single-bit ECC errors on GPU {reading.index}: {single:.0f}", now,
                numbers=(("count", single), ("error_kind", "corrected")),
            )
        )  # fmt: skip
    return found


def _errors(count: float, kind: str) -> str:
    return f"{count:.0f} {kind} ECC error{'' if round(count) == 1 else 's'}"


def _shown(reading: GpuReading, key: str) -> str:
    value = reading.values.get(key)
    return "unknown" if value is None else f"{value:.0f}"


def _remap(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    if not rules["row_remap"].is_on:
        return []
    if reading.values.get("remap_failed"):
        return [
            _made(reading, "row_remap", Grade.UNHEALTHY, "row remapping failed",
                  f"exporter: ROW_REMAP_FAILURE=1 on GPU {reading.index}", now,
                  action="drain, reset the GPU; check for RMA", spares_job=True)
        ]  # fmt: skip
    if reading.values.get("remap_pending"):
        return [
            _made(reading, "row_remap", Grade.SUSPECT, "a row remap waits for a reset",
                  f"exporter: ROW_REMAP_PENDING=1 on GPU {reading.index}", now,
                  action="reset the GPU when idle", spares_job=True)
        ]  # fmt: skip
    return []


def _nvlink(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    rule = rules["nvlink"]
    if not rule.is_on:
        return []
    recoveries = _rise(reading, memory, "nvlink_recovery", from_zero=False)
    crc = [reading.values[key] for key in ("nvlink_flit", "nvlink_data") if key in reading.values]
    rate = _hourly(memory, sum(crc), now) if crc else 0.0
    if recoveries < rule.number("recoveries") and rate < rule.number("crc_per_hour"):
        return []
    again = "recovery" if round(recoveries) == 1 else "recoveries"
    cause = f"NVLink: {recoveries:.0f} {again}, {rate:.0f} CRC errors an hour"
    return [
        _made(reading, "nvlink", Grade.SUSPECT, cause,
              f"exporter: NVLink error counts of GPU {reading.index} rise", now,
              action="reset all GPUs of the baseboard when idle")
    ]  # fmt: skip


def _hourly(memory: GpuMemory, count: float, now: datetime) -> float:
    """CRC errors an hour since the mark, which moves on every hour; a sudden rise counts at once."""
    if memory.nvlink_mark is None or memory.nvlink_mark[1] > count:
        memory.nvlink_mark = (now, count)
        return 0.0
    since, before = memory.nvlink_mark
    hours = max((now - since).total_seconds() / 3600, 1.0)
    if now - since >= timedelta(hours=1):
        memory.nvlink_mark = (now, count)
    return (count - before) / hours


def _watches(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    """DCGM's own verdicts. `ALL` repeats XIDs: those are judged by their own rule."""
    if not rules["dcgm_health"].is_on:
        return []
    found = []
    bad = [each for each in reading.watches.items() if each[1][0] >= WATCH_WARNS]
    for watch, (value, code) in sorted(bad):
        if watch == "ALL":
            continue
        grade = Grade.UNHEALTHY if value >= WATCH_FAILS else Grade.ALERT
        cause = f"DCGM's {watch} watch {'failed' if value >= WATCH_FAILS else 'warns'}: {code}"
        found.append(
            _made(reading, "dcgm_health", grade, cause,
                  f"exporter: GPU_HEALTH_STATUS {watch}={value} on GPU {reading.index}", now,
                  spares_job=grade is Grade.UNHEALTHY)
        )  # fmt: skip
    return found


def _temperature(
    reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime
) -> list[Finding]:
    rule, value = rules["temperature"], reading.values.get("temperature_c")
    hot = value is not None and value > rule.number("above_c")
    if not _lasts(memory, rule, now, holds=hot):
        return []
    limit = rule.number("above_c")
    return [
        _made(reading, "temperature", Grade.ALERT, f"{value:.0f} °C",
              f"exporter: GPU {reading.index} above {limit:.0f} °C for {rule.number('seconds'):.0f} s", now,
              numbers=(("temperature_c", value or 0), ("limit_c", limit)))
    ]  # fmt: skip


def _slowdown(reading: GpuReading, memory: GpuMemory, rules: Rules, now: datetime) -> list[Finding]:
    rule, bits = rules["slowdown"], reading.values.get("clock_reasons")
    slowed = bits is not None and bool(int(bits) & SLOWDOWN_BITS)
    if not _lasts(memory, rule, now, holds=slowed):
        return []
    return [
        _made(reading, "slowdown", Grade.SUSPECT, "clocks slowed down by hardware",
              f"exporter: clock event reasons 0x{int(bits or 0):x} on GPU {reading.index}", now,
              action="check cooling and power")
    ]  # fmt: skip


def _lasts(memory: GpuMemory, rule: Rule, now: datetime, *, holds: bool) -> bool:
    """Whether a condition has held for the rule's seconds; remembers since when."""
    if not holds or not rule.is_on:
        memory.since.pop(rule.spec.key, None)
        return False
    since = memory.since.setdefault(rule.spec.key, now)
    return (now - since).total_seconds() >= rule.number("seconds")


def missing_finding(
    uuid: str, index: int, since: datetime, rules: Rules, now: datetime
) -> Finding | None:
    """A GPU that the exporter told of and no longer does, while it answers: after a while it is lost."""
    rule = rules["gpu_missing"]
    seconds = (now - since).total_seconds()
    if not rule.is_on or seconds < rule.number("seconds"):
        return None
    return Finding(
        rule="gpu_missing", grade=Grade.UNHEALTHY, cause="no longer seen by the exporter",
        evidence=f"exporter: answers, but without GPU {index} for {seconds:.0f} s",
        source=Source.EXPORTER, at=since, uuid=uuid, index=index,
        action="restart the node; when it repeats, RMA", spares_job=True,
    )  # fmt: skip


def kernel_finding(
    codes: Iterable[int], message: str, at: datetime, uuid: str = "", index: int | None = None
) -> Finding | None:
    """XIDs of a kernel line or a node event; None without any."""
    xid = gravest(codes)
    if xid is None:
        return None
    return Finding(
        rule="kernel", grade=grade_of(xid.effect), cause=f"XID {xid.code}: {xid.meaning}",
        evidence=f"kernel: {message}"[:1000], source=Source.KERNEL, at=at, uuid=uuid, index=index,
        xid=xid.code, action=xid.action, spares_job=xid.spares_job,
    )  # fmt: skip


def is_applications(xid: int | None) -> bool:
    """Whether a code counts against the job that was running."""
    return xid is not None and xid_of(xid).effect is Effect.JOB
