"""When time alone will change what a plan says. Pure; called by `scheduler.loop.cycle`."""

from collections.abc import Iterator

from scheduler.core.inputs.snapshot import Snapshot


def next_due(snapshot: Snapshot) -> float | None:
    """The first moment after the snapshot at which a job may be considered that may not now, or a window turns."""
    return min((at for at in _moments(snapshot) if at > snapshot.now), default=None)


def _moments(snapshot: Snapshot) -> Iterator[float]:
    for job in snapshot.waiting:
        for at in (job.begin_at, job.backoff_until, job.refused_until):
            if at is not None:
                yield at
    for window in snapshot.windows:
        yield window.starts_at
        yield window.ends_at
