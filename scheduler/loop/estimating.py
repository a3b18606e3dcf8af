"""Start estimates of the first waiting jobs, a slice at a time between cycles, so that no start waits for them.

Owned by `scheduler.loop.cycle`. A round plans once more on the snapshot of its beginning, then goes through the jobs in
order, then writes what has moved. It keeps a memo of its own: a paused round still uses what the cycles' memo would
have patched by then.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from scheduler.apply.estimates import estimates_written
from scheduler.apply.fence import HeldLease
from scheduler.apply.spoken import Spoken
from scheduler.core.inputs.snapshot import Effort, Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.planner import estimating

# For so many jobs in order; further back too much can happen before them.
ESTIMATED_JOBS = 1_000
# Estimates are for people: a round so often at most, and never more than a fifth of the time.
ESTIMATE_AFTER = timedelta(seconds=10)
ESTIMATE_SHARE = 5
# A cluster where something happens in every second has no quiet tick.
ESTIMATE_LATEST = timedelta(seconds=20)


@dataclass(slots=True)
class Estimating:
    """One round after the other. began_at: when the last one did."""

    began_at: datetime | None = None
    _took: timedelta = timedelta()
    _steps: Iterator[object] | None = None
    _memo: Memo = field(default_factory=Memo)

    @property
    def is_open(self) -> bool:
        """Whether a round has begun and has not come to its end."""
        return self._steps is not None

    def is_due(self, planned_at: datetime | None, now: datetime) -> bool:
        """Whether a round should begin, once there is time: something was planned since the last one."""
        if self.is_open or planned_at is None:
            return False
        if self.began_at is None:
            return True
        rest = max(ESTIMATE_AFTER, self._took * ESTIMATE_SHARE)
        return planned_at > self.began_at and now - self.began_at >= rest

    def is_late(self, planned_at: datetime | None, now: datetime) -> bool:
        """Whether a round should begin though there is no time."""
        if not self.is_due(planned_at, now):
            return False
        return self.began_at is None or now - self.began_at >= ESTIMATE_LATEST

    def begin(
        self, lease: HeldLease, snapshot: Snapshot, options: Options, spoken: Spoken, now: datetime
    ) -> None:
        """Open a round on this snapshot; `go_on` does the work."""
        self.began_at, self._took = now, timedelta()
        if snapshot.waiting or spoken.estimates:
            few = replace(options, estimates=ESTIMATED_JOBS, effort=Effort.DECIDE)
            self._steps = self._round(lease, snapshot, few, spoken, now)

    def go_on(self, clock: Callable[[], float], has_time: Callable[[], bool]) -> None:
        """Do a slice of the open round, one estimate or one transaction at least."""
        began = clock()
        steps, self._steps = self._steps, None
        for _ in steps or ():
            if not has_time():
                self._steps = steps
                break
        self._took += timedelta(seconds=clock() - began)

    def _round(
        self, lease: HeldLease, snapshot: Snapshot, options: Options, spoken: Spoken, now: datetime
    ) -> Iterator[object]:
        starts: dict[str, float | None] = {}
        for estimate in estimating(snapshot, options, self._memo):
            starts[estimate.job] = estimate.starts_at
            yield estimate
        yield from estimates_written(lease, starts, snapshot.now, spoken, now)
