"""What would help the first jobs in line, tried before anybody asks, and kept with the moment at which it was.

Owned by `mirror.Mirror`; `server` looks while nobody asks anything, a few jobs at a time, so that a question that comes
meanwhile waits for one plan at most. Nothing is stored: a process that starts anew looks again.
"""

from collections import deque
from dataclasses import dataclass, field

from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Plan
from scheduler.whatif.trials import Trial

# Counterfactuals are kept for so many waiting jobs, in order.
KEPT_JOBS = 100
# So many are tried in one plan.
JOBS_A_LOOK = 10
# One look at all of them may begin so long after the last one did, if something has changed since.
LOOK_AGAIN_SECONDS = 30.0
# Time alone changes what works, too.
LOOK_ANYWAY_SECONDS = 300.0
# What is older is tried anew for who asks.
GOOD_FOR_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What was found for a job as it was asked then; made_at in seconds since the epoch."""

    ask: Ask
    made_at: float
    trials: tuple[Trial, ...]


@dataclass(slots=True)
class Lookout:
    """Trials by job, and who is next."""

    _kept: dict[str, Kept] = field(default_factory=dict)
    _next: deque[str] = field(default_factory=deque)
    _began_at: float = 0.0
    _revision: int = -1

    def of(self, job: WaitingJob, now: float) -> Kept | None:
        """What is kept for the job, unless it asks for something else by now or that is too old."""
        kept = self._kept.get(job.id)
        if kept is None or kept.ask != job.ask or now - kept.made_at > GOOD_FOR_SECONDS:
            return None
        return kept

    def keep(self, job: WaitingJob, now: float, trials: tuple[Trial, ...]) -> Kept:
        """Remember what was tried for a job at `now`."""
        kept = self._kept[job.id] = Kept(job.ask, now, trials)
        return kept

    def is_due(self, revision: int, now: float) -> bool:
        """Whether there is something to try: the line has not been gone through, or the state is another one."""
        if self._next:
            return True
        since = now - self._began_at
        changed = revision != self._revision
        return since >= (LOOK_AGAIN_SECONDS if changed else LOOK_ANYWAY_SECONDS)

    def few(self, snapshot: Snapshot, base: Plan) -> list[WaitingJob]:
        """The jobs to try now; after the last of a line the first of a new one. Forgets who no longer waits there."""
        if not self._next:
            self._begin(snapshot, base)
        waiting = {job.id: job for job in snapshot.waiting}
        found: list[WaitingJob] = []
        while self._next and len(found) < JOBS_A_LOOK:
            job = waiting.get(self._next.popleft())
            if job is not None:
                found.append(job)
        return found

    def _begin(self, snapshot: Snapshot, base: Plan) -> None:
        starting = {start.job for start in base.starts}
        line = [job for job in base.order if job not in starting][:KEPT_JOBS]
        self._next.extend(line)
        self._kept = {job: self._kept[job] for job in line if job in self._kept}
        self._began_at, self._revision = snapshot.now, snapshot.revision
