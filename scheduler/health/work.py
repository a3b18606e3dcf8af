"""How well jobs use what they hold: waste, memory copy as the bottleneck, stalls. Pure.

A job is judged as a whole: by the mean over all its GPUs of which something is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from scheduler.health.rules import Rule, Rules


@dataclass(slots=True)
class JobMemory:
    """Since when each rule's condition has held for a job, and what its GPUs did last."""

    since: dict[str, datetime] = field(default_factory=dict)
    flat_since: datetime | None = None
    # Around which value, in percent.
    flat_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkFinding:
    """One finding about a job: the mean, in percent, and for how many minutes."""

    rule: str
    percent: float
    minutes: int


def judge_job(
    utilisation: Sequence[float | None],
    memory_copy: Sequence[float | None],
    memory: JobMemory,
    rules: Rules,
    now: datetime,
) -> list[WorkFinding]:
    """Findings about a running job from its GPUs' readings of one scrape (None: unknown)."""
    found = []
    for rule, mean, holds in (
        (rules["waste"], _mean(utilisation), _below),
        (rules["memory_copy"], _mean(memory_copy), _above),
    ):
        key = rule.spec.key
        if mean is None or not rule.is_on or not holds(rule, mean):
            memory.since.pop(key, None)
            continue
        seconds = (now - memory.since.setdefault(key, now)).total_seconds()
        if seconds >= rule.number("seconds"):
            found.append(WorkFinding(key, round(mean, 1), int(seconds // 60)))
    _note_flat(_mean(utilisation), memory, now)
    return found


def _below(rule: Rule, mean: float) -> bool:
    return mean < rule.number("below_percent")


def _above(rule: Rule, mean: float) -> bool:
    return mean > rule.number("above_percent")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# A hung collective keeps its GPUs at 0 or at a constant 100 %; real training moves by more than this.
FLAT_PERCENT = 2.0


def _note_flat(mean: float | None, memory: JobMemory, now: datetime) -> None:
    """Since when the job's GPUs have done just the same. Unknown counts as movement: no stall is made of it."""
    if mean is None:
        memory.flat_since = None
    elif memory.flat_since is None or abs(mean - memory.flat_percent) > FLAT_PERCENT:
        memory.flat_since, memory.flat_percent = now, mean


@dataclass(frozen=True, slots=True)
class Progress:
    """Signs of life of a running job. heartbeat_at None: it has never sent one. log_known: whether anybody has
    looked at its log; log_grew_at None: nothing is there."""

    started_at: datetime
    heartbeat_at: datetime | None
    log_known: bool
    log_grew_at: datetime | None
    flat_since: datetime | None
    flat_percent: float = 0.0


def stalled_for(
    progress: Progress, timeout_seconds: float, now: datetime
) -> tuple[int, str] | None:
    """(seconds, evidence) when a job has stalled: no heartbeat from one that sends them; else no log line
    and flat utilisation. None while it moves, or while too little is known."""
    if progress.heartbeat_at is not None:
        seconds = (now - max(progress.heartbeat_at, progress.started_at)).total_seconds()
        if seconds >= timeout_seconds:
            return int(seconds), f"no heartbeat for {seconds:.0f} s"
        return None
    if progress.flat_since is None or not progress.log_known:
        return None
    quiet_since = max(progress.log_grew_at or progress.started_at, progress.started_at)
    seconds = (now - max(quiet_since, progress.flat_since)).total_seconds()
    if seconds < timeout_seconds:
        return None
    use = f"utilisation flat at {progress.flat_percent:.0f} %"
    return int(seconds), f"no log line and {use} for {seconds:.0f} s"
