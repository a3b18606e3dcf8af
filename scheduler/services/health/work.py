"""How running jobs use their GPUs: waste, memory copy as the bottleneck, stalls; what the queue's rule does then.

Owners are told by an alert. Only a rule in mode `act` lowers a job's protection or stops it; what has stalled is
restarted where its owner asked for that with the job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Cluster, Placement
from queues.services.attempts import stop_attempt
from queues.services.protection import lower_protection
from scheduler.health.readings import GpuReading
from scheduler.health.rules import Mode, Rules
from scheduler.health.work import JobMemory, Progress, WorkFinding, judge_job, stalled_for
from scheduler.services.alerts import AlertFacts, settle_alerts
from scheduler.services.health.timeline import HEALTH

ALERT_OF = {"waste": "gpu_waste", "memory_copy": "memory_copy_bound"}
# Placement id → its log's last line, None: there is none. Missing: nobody has looked, or could.
LogTimes = Mapping[int, datetime | None]
Readings = Mapping[str, Mapping[str, GpuReading]]
# A gang's first ranks stand for it when its logs are looked at.
RANKS_LOOKED_AT = 16


@dataclass(slots=True)
class WorkBook:
    """What is remembered of running attempts between two passes."""

    memories: dict[int, JobMemory] = field(default_factory=dict)
    # Placements whose logs decide whether their attempts have stalled; those that moved longest ago first.
    logs_wanted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Use:
    """What the GPUs of an attempt do, and what its pods have let know of themselves."""

    started_at: datetime | None
    stall_timeout_seconds: int | None
    placements: list[int] = field(default_factory=list)
    heartbeat_at: datetime | None = None
    utilisation: list[float | None] = field(default_factory=list)
    memory_copy: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """What a pass has found, by attempt."""

    work: list[tuple[int, WorkFinding]] = field(default_factory=list)
    stalls: list[tuple[int, int, str]] = field(default_factory=list)

    def attempts(self) -> dict[int, Attempt]:
        """The attempts concerned, with their jobs."""
        numbers = {pk for pk, _ in self.work} | {pk for pk, _, _ in self.stalls}
        rows = Attempt.objects.filter(pk__in=numbers, ended_at__isnull=True)
        return {row.pk: row for row in rows.select_related("job__tenant", "job__queue__cluster")}


def judge_work(
    cluster: Cluster,
    rules: Rules,
    book: WorkBook,
    readings: Readings,
    log_times: LogTimes,
    now: datetime,
) -> None:
    """Look at every running attempt of the cluster. readings: by node, then UUID, of a whole pass."""
    uses = _uses(cluster, readings)
    book.memories = {pk: book.memories.get(pk, JobMemory()) for pk in uses}
    found = _Found()
    wanted: list[tuple[datetime, list[int]]] = []
    for pk, use in uses.items():
        memory = book.memories[pk]
        for finding in judge_job(use.utilisation, use.memory_copy, memory, rules, now):
            found.work.append((pk, finding))
        if not rules["stalled"].is_on or use.stall_timeout_seconds is None:
            continue
        if (stall := _stall(use, memory, log_times, now)) is not None:
            found.stalls.append((pk, *stall))
        if (since := _logs_wanted_since(use, memory, now)) is not None:
            wanted.append((since, use.placements[:RANKS_LOOKED_AT]))
    book.logs_wanted = [number for _, each in sorted(wanted) for number in each]
    _tell_and_act(cluster, rules, found, now)


def _uses(cluster: Cluster, readings: Readings) -> dict[int, _Use]:
    """Running attempts and the readings of their GPUs, found by the exporter's pod labels; without any on a node,
    by a job's being alone there."""
    rows = (
        Placement.objects.filter(
            attempt__cluster=cluster,
            attempt__ended_at__isnull=True,
            attempt__job__phase=Phase.RUNNING,
            ended_at__isnull=True,
        )
        .order_by("attempt", "rank")
        .values_list(
            *("pk", "attempt_id", "node", "pod_name", "gpus", "heartbeat_at"),
            *("attempt__started_at", "attempt__job__stall_timeout_seconds"),
        )
    )
    uses: dict[int, _Use] = {}
    here: dict[str, list[tuple[_Use, str]]] = defaultdict(list)
    for pk, attempt, node, pod, gpus, beat, started_at, timeout in rows:
        use = uses.setdefault(attempt, _Use(started_at, timeout))
        use.placements.append(pk)
        if beat is not None:
            use.heartbeat_at = max(beat, use.heartbeat_at or beat)
        here[node].append((use, pod if gpus else ""))
    for node, pods in here.items():
        _add_readings(pods, (readings.get(node) or {}).values())
    return uses


def _add_readings(pods: list[tuple[_Use, str]], readings: Iterable[GpuReading]) -> None:
    """What the GPUs of a node say goes to who holds them. pods: (use, pod name; empty when it has no GPU)."""
    listed = list(readings)
    by_pod: dict[str, list[GpuReading]] = defaultdict(list)
    for reading in listed:
        for holder in reading.holders:
            by_pod[holder.pod].append(reading)
    for use, pod in pods:
        if not pod:
            continue
        own = by_pod.get(pod, []) if by_pod else listed if len(pods) == 1 else []
        use.utilisation += [reading.utilisation for reading in own] or [None]
        use.memory_copy += [reading.values.get("memory_copy") for reading in own] or [None]


def _stall(
    use: _Use, memory: JobMemory, log_times: LogTimes, now: datetime
) -> tuple[int, str] | None:
    if use.started_at is None or use.stall_timeout_seconds is None:
        return None
    looked_at = [number for number in use.placements[:RANKS_LOOKED_AT] if number in log_times]
    logs = [moment for number in looked_at if (moment := log_times[number]) is not None]
    progress = Progress(
        started_at=use.started_at,
        heartbeat_at=use.heartbeat_at,
        log_known=len(looked_at) == len(use.placements[:RANKS_LOOKED_AT]),
        log_grew_at=max(logs, default=None),
        flat_since=memory.flat_since,
        flat_percent=memory.flat_percent,
    )
    return stalled_for(progress, use.stall_timeout_seconds, now)


def _logs_wanted_since(use: _Use, memory: JobMemory, now: datetime) -> datetime | None:
    """Since when an attempt's GPUs have been flat, once that is half of what its job allows."""
    if use.heartbeat_at is not None or memory.flat_since is None:
        return None
    seconds = (now - memory.flat_since).total_seconds()
    return memory.flat_since if seconds >= (use.stall_timeout_seconds or 0) / 2 else None


def _tell_and_act(cluster: Cluster, rules: Rules, found: _Found, now: datetime) -> None:
    alerts: dict[str, list[AlertFacts]] = {
        "gpu_waste": [],
        "memory_copy_bound": [],
        "job_stalled": [],
    }
    attempts = found.attempts() if found.work or found.stalls else {}
    for pk, finding in found.work:
        if pk in attempts:
            alerts[ALERT_OF[finding.rule]].append(_work_alert(cluster, attempts[pk], finding))
            _on_waste(rules, attempts[pk], finding, now)
    for pk, seconds, evidence in found.stalls:
        if pk in attempts:
            alerts["job_stalled"].append(_stall_alert(cluster, attempts[pk], seconds, evidence))
            _on_stall(attempts[pk], evidence, now)
    for kind, facts in alerts.items():
        settle_alerts(kind, cluster, facts, now)


def _work_alert(cluster: Cluster, attempt: Attempt, finding: WorkFinding) -> AlertFacts:
    numbers = {"utilisation": finding.percent, "minutes": finding.minutes}
    return AlertFacts(ALERT_OF[finding.rule], cluster=cluster, job=attempt.job, numbers=numbers)


def _stall_alert(cluster: Cluster, attempt: Attempt, seconds: int, evidence: str) -> AlertFacts:
    numbers = {"seconds": seconds}
    return AlertFacts(
        "job_stalled", cluster=cluster, job=attempt.job, numbers=numbers, detail=evidence
    )


def _on_waste(rules: Rules, attempt: Attempt, finding: WorkFinding, now: datetime) -> None:
    rule = attempt.job.queue.on_waste
    if finding.rule != "waste" or rules["waste"].mode is not Mode.ACT or rule == "alert":
        return
    message = f"used {finding.percent} % of its GPUs for {finding.minutes} minutes"
    if rule == "lower":
        lower_protection(attempt.job, message, now)
        return
    _stop(attempt, EndedBy.CANCELLED, f"stopped by the rule of its queue: {message}", now)


def _on_stall(attempt: Attempt, evidence: str, now: datetime) -> None:
    # The owner asked for it with the job: no rule has to be switched on for that.
    if attempt.job.on_stall == "restart":
        _stop(attempt, EndedBy.STALLED, f"stalled: {evidence}", now)


def _stop(attempt: Attempt, cause: EndedBy, message: str, now: datetime) -> None:
    if attempt.stop_cause:
        return
    try:
        stop_attempt(attempt, cause=cause, grace_seconds=attempt.job.grace_seconds,
                     message=message, actor=HEALTH, now=now)  # fmt: skip
    except ConflictError:  # it has ended meanwhile
        return
