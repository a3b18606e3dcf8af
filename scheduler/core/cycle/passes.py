"""One pass: jobs in order, each started, blocked or gated; a verdict per class.

Equal shapes are tried once: inside a pass nothing is freed, so what was refused stays refused.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from scheduler.core.cycle.attempts import Placed, attempt, refusals
from scheduler.core.cycle.gates import cluster_gate, own_gate, queue_gate
from scheduler.core.cycle.starts import start_of
from scheduler.core.cycle.world import World
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.snapshot import Effort
from scheduler.core.order.line import Line, PlainLine, age_key
from scheduler.core.order.turns import Turns
from scheduler.core.outputs import Finish, FinishCause, Start, Stats, Verdict
from scheduler.core.reasons import FOR_EVER, Reason, ReasonCode


@dataclass(slots=True)
class Outcome:
    """What a pass has decided so far."""

    starts: list[Start] = field(default_factory=list)
    blocked: dict[str, tuple[WaitingJob, tuple[Reason, ...]]] = field(default_factory=dict)
    class_sizes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    classes: dict[str, str] = field(default_factory=dict)
    own_reasons: dict[str, Reason] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    tried: int = 0
    skipped: int = 0

    def verdicts(self) -> dict[str, Verdict]:
        """One verdict per class that has a waiting job."""
        return {
            key: Verdict(key, job.id, reasons[0], reasons, self.class_sizes[key])
            for key, (job, reasons) in self.blocked.items()
        }

    def stats(self) -> Stats:
        """Counts for metrics."""
        return Stats(len(self.order), self.tried, self.skipped, len(self.blocked))


class Pass:
    """One run over the waiting jobs of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.outcome = Outcome()
        self._explains = world.options.effort is Effort.EXPLAIN
        self._gate = cluster_gate(world.snapshot, world.options)

    def run(self) -> Outcome:
        """Consider every waiting job once."""
        world = self.world
        turns = Turns(world.snapshot, self._lines(), world.accounts, age_key)
        while (job := turns.next()) is not None:
            self.outcome.order.append(job.id)
            if self._consider(job):
                turns.started(job)
        return self.outcome

    def _lines(self) -> dict[str, Line]:
        by_tenant: dict[str, list[WaitingJob]] = defaultdict(list)
        for job in self.world.snapshot.waiting:
            by_tenant[job.ask.tenant].append(job)
        return {tenant: PlainLine(sorted(jobs, key=age_key)) for tenant, jobs in by_tenant.items()}

    def _consider(self, job: WaitingJob) -> bool:
        """Start the job or note why not; whether it starts."""
        own = own_gate(job, self.world.now)
        if own is not None:
            self.outcome.own_reasons[job.id] = own
            return False
        key = self.world.key_of(job)
        if key in self.outcome.blocked:
            self.outcome.skipped += 1
            self._wait(job, key)
            return False
        gate = self._gate or queue_gate(self.world.queue_of(job)) or self._spent()
        if gate is not None:
            self._block(job, key, (gate,))
            return False
        self.outcome.tried += 1
        placed = attempt(self.world, job)
        if placed is None:
            self._block(job, key, self._reasons(job))
            return False
        self._start(job, placed)
        return True

    def _spent(self) -> Reason | None:
        most = self.world.options.max_starts
        if most is not None and len(self.outcome.starts) >= most:
            return Reason(ReasonCode.NOT_YET_CONSIDERED, {})
        return None

    def _start(self, job: WaitingJob, placed: Placed) -> None:
        start = start_of(self.world, job, placed)
        self.world.fields[placed.flavor].take(*placed.placement.usage())
        self.world.accounts.add(job.ask, placed.flavor, start.gpus)
        self.outcome.starts.append(start)

    def _reasons(self, job: WaitingJob) -> tuple[Reason, ...]:
        if not self._explains:
            return (Reason(ReasonCode.NOT_YET_CONSIDERED, {}),)
        return refusals(self.world, job)

    def _block(self, job: WaitingJob, key: str, reasons: tuple[Reason, ...]) -> None:
        self.outcome.blocked[key] = (job, reasons)
        self._wait(job, key)

    def _wait(self, job: WaitingJob, key: str) -> None:
        self.outcome.class_sizes[key] += 1
        self.outcome.classes[job.id] = key
        reason = self.outcome.blocked[key][1][0]
        if reason.code in FOR_EVER:
            self.outcome.finishes.append(Finish(job.id, FinishCause.INFEASIBLE, reason))
