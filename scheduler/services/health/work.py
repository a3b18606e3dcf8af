"""How running jobs use their GPUs: waste, memory copy as the bottleneck, stalls; what the queue's rule does then.

Owners are told by an alert. Only a rule in mode `act` lowers a job's protection, stops it, or restarts what stalled.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Placement
from queues.services.attempts import stop_attempt
from queues.services.protection import lower_protection
from scheduler.health.readings import GpuReading
from scheduler.health.rules import Mode
from scheduler.health.work import JobMemory, Progress, WorkFinding, judge_job, stalled_for
from scheduler.services.alerts import AlertFacts, settle_alerts
from scheduler.services.health.scene import Scene
from scheduler.services.health.timeline import HEALTH

ALERT_OF = {"waste": "gpu_waste", "memory_copy": "memory_copy_bound"}
LogTimes = Mapping[int, datetime]  # placement id → its log's last line


@dataclass(slots=True)
class WorkBook:
    """What is remembered of running attempts between two ticks."""

    memories: dict[int, JobMemory] = field(default_factory=dict)

    def quiet_attempts(self, seconds: float, now: datetime) -> list[int]:
        """Attempts whose GPUs have been idle for so long: whose logs are worth a look."""
        return [
            pk
            for pk, memory in self.memories.items()
            if memory.flat_since is not None
            and (now - memory.flat_since).total_seconds() >= seconds
        ]


@dataclass(slots=True)
class _Use:
    """What a job's GPUs do."""

    attempt: Attempt
    placements: list[Placement] = field(default_factory=list)
    utilisation: list[float | None] = field(default_factory=list)
    memory_copy: list[float | None] = field(default_factory=list)


def judge_work(
    scene: Scene,
    book: WorkBook,
    readings: Mapping[str, Mapping[str, GpuReading]],
    log_times: LogTimes,
    now: datetime,
) -> None:
    """Look at every running attempt of the cluster. readings: by node, then UUID, of a whole pass."""
    alerts: dict[str, list[AlertFacts]] = {
        "gpu_waste": [],
        "memory_copy_bound": [],
        "job_stalled": [],
    }
    uses = _uses(scene, readings)
    book.memories = {pk: book.memories.get(pk, JobMemory()) for pk in uses}
    for pk, use in uses.items():
        memory = book.memories[pk]
        for finding in judge_job(use.utilisation, use.memory_copy, memory, scene.rules, now):
            alerts[ALERT_OF[finding.rule]].append(_work_alert(scene, use.attempt, finding))
            _on_waste(scene, use.attempt, finding, now)
        if (stall := _stall(scene, use, memory, log_times, now)) is not None:
            alerts["job_stalled"].append(stall)
    for kind, facts in alerts.items():
        settle_alerts(kind, scene.cluster, facts, now)


def _uses(scene: Scene, readings: Mapping[str, Mapping[str, GpuReading]]) -> dict[int, _Use]:
    """Running attempts and the readings of their GPUs, found by the exporter's pod labels; without any on a node,
    by a job's being alone there."""
    uses: dict[int, _Use] = {}
    for name, node in scene.nodes.items():
        here = [
            p for p in node.placements
            if p.attempt.job.phase == Phase.RUNNING and p.attempt.ended_at is None and p.ended_at is None
        ]  # fmt: skip
        seen = readings.get(name) or {}
        labelled = any(reading.holders for reading in seen.values())
        for placement in here:
            use = uses.setdefault(placement.attempt_id, _Use(placement.attempt))
            use.placements.append(placement)
            if not placement.gpus:
                continue
            if labelled:
                own = [
                    r for r in seen.values() if any(h.pod == placement.pod_name for h in r.holders)
                ]
            else:
                own = list(seen.values()) if len(here) == 1 else []
            use.utilisation += [r.utilisation for r in own] or [None]
            use.memory_copy += [r.values.get("memory_copy") for r in own] or [None]
    return uses


def _work_alert(scene: Scene, attempt: Attempt, finding: WorkFinding) -> AlertFacts:
    numbers = {"utilisation": finding.percent, "minutes": finding.minutes}
    return AlertFacts(
        ALERT_OF[finding.rule], cluster=scene.cluster, job=attempt.job, numbers=numbers
    )


def _on_waste(scene: Scene, attempt: Attempt, finding: WorkFinding, now: datetime) -> None:
    rule = attempt.job.queue.on_waste
    if finding.rule != "waste" or scene.rules["waste"].mode is not Mode.ACT or rule == "alert":
        return
    message = f"used {finding.percent} % of its GPUs for {finding.minutes} minutes"
    if rule == "lower":
        lower_protection(attempt.job, message, now)
        return
    _stop(attempt, EndedBy.CANCELLED, f"stopped by the rule of its queue: {message}", now)


def _stall(
    scene: Scene, use: _Use, memory: JobMemory, log_times: LogTimes, now: datetime
) -> AlertFacts | None:
    job, attempt = use.attempt.job, use.attempt
    if (
        job.stall_timeout_seconds is None
        or not scene.rules["stalled"].is_on
        or attempt.started_at is None
    ):
        return None
    beats = [p.heartbeat_at for p in use.placements if p.heartbeat_at is not None]
    logs = [log_times[p.pk] for p in use.placements if p.pk in log_times]
    progress = Progress(
        attempt.started_at, max(beats, default=None), max(logs, default=None), memory.flat_since
    )
    found = stalled_for(progress, job.stall_timeout_seconds, now)
    if found is None:
        return None
    seconds, evidence = found
    # The owner asked for it with the job: no rule has to be switched on for that.
    if job.on_stall == "restart":
        _stop(attempt, EndedBy.STALLED, f"stalled: {evidence}", now)
    return AlertFacts(
        "job_stalled",
        cluster=scene.cluster,
        job=job,
        numbers={"seconds": seconds},
        detail=evidence,
    )


def _stop(attempt: Attempt, cause: EndedBy, message: str, now: datetime) -> None:
    if attempt.stop_cause:
        return
    try:
        stop_attempt(attempt, cause=cause, grace_seconds=attempt.job.grace_seconds,
                     message=message, actor=HEALTH, now=now)  # fmt: skip
    except ConflictError:  # it has ended meanwhile
        return


def placements_by_attempt(scene: Scene) -> dict[int, list[Placement]]:
    """Placements with a pod, by attempt."""
    found: dict[int, list[Placement]] = defaultdict(list)
    for node in scene.nodes.values():
        for placement in node.placements:
            found[placement.attempt_id].append(placement)
    return found
