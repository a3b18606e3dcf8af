"""Whose start a window would delay: the plan with it against the plan without. Asked by `services.proposals`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler.core.inputs.cluster import Crossing, Window
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.memo import Memo
from scheduler.core.planner import plan
from scheduler.whatif.mirror import OPTIONS, Mirror

Json = dict[str, Any]
ESTIMATES = 100
# Sooner than this a start is the same.
NOTICED_SECONDS = 60.0


def ask_windows(
    mirror: Mirror, sent: Mapping[str, Any], now: float, has_time: Callable[[], bool]
) -> Json:
    """{"windows": [{"starts_at", "ends_at", "nodes", "crossing"}]} → {"delays": [{"jobs", "seconds", "gpu_seconds"}]}.

    For each window alone; null for those that there was no time for. Seconds are summed over jobs.
    """
    snapshot = mirror.snapshot(now)
    before = _starts(snapshot, mirror.memo)
    gpus = {job.id: job.ask.gpus for job in snapshot.waiting}
    delays: list[Json | None] = []
    for number, each in enumerate(sent["windows"]):
        if number and not has_time():
            delays.append(None)
            continue
        window = _window(each, number)
        after = _starts(replace(snapshot, windows=(*snapshot.windows, window)), Memo())
        delays.append(_delay(before, after, gpus, window.ends_at))
    return {"delays": delays}


def _window(sent: Mapping[str, Any], number: int) -> Window:
    return Window(
        id=f"~proposed-{number}",
        starts_at=float(sent["starts_at"]),
        ends_at=float(sent["ends_at"]),
        nodes=frozenset(sent["nodes"]),
        crossing=Crossing(sent.get("crossing", Crossing.CHECKPOINTABLE)),
    )


def _starts(snapshot: Snapshot, memo: Memo) -> dict[str, float | None]:
    """When each of the first waiting jobs starts; None: nobody can say."""
    made = plan(snapshot, replace(OPTIONS, estimates=ESTIMATES), memo)
    return {start.job: snapshot.now for start in made.starts} | {
        estimate.job: estimate.starts_at for estimate in made.estimates
    }


def _delay(
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    gpus: Mapping[str, int],
    ends_at: float,
) -> Json:
    """A start that nobody can name any more is taken for one at the window's end."""
    later = {}
    for job, starts_at in before.items():
        if starts_at is None:
            continue
        found = after.get(job)
        seconds = (ends_at if found is None else found) - starts_at
        if seconds > NOTICED_SECONDS:
            later[job] = seconds
    return {
        "jobs": len(later),
        "seconds": round(sum(later.values())),
        "gpu_seconds": round(sum(seconds * gpus.get(job, 0) for job, seconds in later.items())),
    }
