"""What containers print: computed from the pod and the time, never stored.

A run of a container has exactly `log-lines` lines, spread over its run, the first at its start and
the last at its end; then what it prints on SIGTERM. A container that runs for ever prints a line
every five seconds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

ENDLESS_INTERVAL_SECONDS = 5.0


@dataclass(slots=True)
class Output:
    """The log of one run of one container."""

    seed: int
    rank: int
    world: int
    node: str
    gpus: int
    started_at: float
    run_seconds: float
    lines: int
    exit_code: int
    stopped_at: float = math.inf
    """When the run was cut short; lines planned for later are never printed."""
    extra: list[tuple[float, str]] = field(default_factory=list)
    """Lines beside the plan, such as those on SIGTERM, in order of time."""

    def planned_at(self, index: int) -> float:
        """When line `index` is printed."""
        if math.isinf(self.run_seconds):
            return self.started_at + index * ENDLESS_INTERVAL_SECONDS
        if self.lines <= 1:
            return self.started_at
        return self.started_at + self.run_seconds * index / (self.lines - 1)

    def planned_until(self, moment: float) -> int:
        """How many planned lines are out at a moment."""
        moment = min(moment, self.stopped_at)
        if moment < self.started_at or self.lines <= 0:
            return 0
        if math.isinf(self.run_seconds):
            return int((moment - self.started_at) / ENDLESS_INTERVAL_SECONDS) + 1
        if self.lines == 1 or self.run_seconds <= 0:
            return self.lines
        share = (moment - self.started_at) / self.run_seconds
        return min(self.lines, int(share * (self.lines - 1) + 1e-9) + 1)

    def next_after(self, count: int) -> float:
        """When the line after the first `count` planned ones comes; infinity when none does."""
        if self.lines <= 0 or (count >= self.lines and not math.isinf(self.run_seconds)):
            return math.inf
        due = self.planned_at(count)
        return due if due <= self.stopped_at else math.inf

    def between(self, start: int, moment: float) -> Iterator[tuple[float, str]]:
        """Planned lines from index `start` that are out at a moment, with their times."""
        for index in range(start, self.planned_until(moment)):
            yield self.planned_at(index), self.text(index)

    def text(self, index: int) -> str:
        """Line `index` of the plan."""
        last = not math.isinf(self.run_seconds) and index == self.lines - 1
        if index == 0 and not last:
            return (
                f"rank={self.rank} world={self.world} node={self.node} gpus={self.gpus} "
                "starting training"
            )
        step = index * 10
        if last and self.exit_code == 0:
            return f"rank={self.rank} step={step} loss={self.loss(step):.4f} training finished"
        if last:
            return f"rank={self.rank} step={step} fatal: process exits with code {self.exit_code}"
        return (
            f"rank={self.rank} step={step} loss={self.loss(step):.4f} lr=3.0e-04 "
            f"tokens_per_second={self._speed(index)}"
        )

    def loss(self, step: int) -> float:
        """A loss that falls as training losses do, with noise that is the same every time."""
        noise = ((self.seed ^ (step * 2654435761)) % 1000) / 1000 - 0.5
        return 1.7 + 9.2 * math.exp(-step / 400) + 0.08 * noise

    def _speed(self, index: int) -> int:
        return max(1, self.gpus) * (22_000 + (self.seed * 31 + index * 7919) % 1500)
