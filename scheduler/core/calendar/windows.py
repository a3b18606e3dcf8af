"""Maintenance windows and reservations as masks over the nodes of one grid.

The one place that says whether a job may be on a node across a window; asked by the cycle
for a start now and by the bookings for a start later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler.core.inputs.cluster import Crossing, Window, WindowKind
from scheduler.core.inputs.jobs import Ask
from scheduler.core.topology.grid import Bools, Grid, Ints


@dataclass(frozen=True, slots=True)
class Stay:
    """A job on nodes for [start, until). `job` and `is_swap` decide what reservations admit.

    `extra_seconds` is what the plan added to the job's limit (start allowance and grace).
    """

    ask: Ask
    job: str
    start: float
    until: float
    is_swap: bool = False
    extra_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class WindowMap:
    """The windows that concern one grid, with their nodes as indexes."""

    size: int
    windows: tuple[tuple[Window, Ints], ...]

    def blocking(self, stay: Stay) -> list[tuple[Window, Ints]]:
        """The windows that keep this stay off their nodes."""
        return [pair for pair in self.windows if blocks(pair[0], stay)]

    def nodes_of(self, windows: Iterable[tuple[Window, Ints]]) -> Bools:
        """The nodes that any of these windows concerns."""
        mask = np.zeros(self.size, dtype=np.bool_)
        for _, nodes in windows:
            mask[nodes] = True
        return mask

    def turns(self, after: float) -> list[float]:
        """The times after `after` at which a window ends and its nodes return."""
        return sorted({window.ends_at for window, _ in self.windows if window.ends_at > after})

    def crossed(self, stay: Stay, nodes: Ints) -> Window | None:
        """The first window that the stay runs into on these nodes (a planned stop)."""
        hit = [
            window
            for window, indexes in self.windows
            if stay.start < window.starts_at < stay.until
            and not _admits(window, stay)
            and np.isin(nodes, indexes).any()
        ]
        return min(hit, key=lambda window: (window.starts_at, window.id), default=None)


def window_map(windows: Iterable[Window], grid: Grid, now: float) -> WindowMap:
    """The windows that are not over, on this grid's nodes."""
    found = []
    for window in windows:
        if window.ends_at <= now:
            continue
        nodes = sorted(grid.index[name] for name in window.nodes if name in grid.index)
        if nodes:
            found.append((window, np.array(nodes, dtype=np.int64)))
    return WindowMap(grid.size, tuple(found))


def blocks(window: Window, stay: Stay) -> bool:
    """Whether the window keeps the stay off its nodes."""
    if stay.start >= window.ends_at or stay.until <= window.starts_at:
        return False
    if _admits(window, stay):
        return False
    starts_inside = stay.start >= window.starts_at
    may_cross = window.crossing is Crossing.CHECKPOINTABLE and stay.ask.checkpoint is not None
    return starts_inside or not may_cross


def _admits(window: Window, stay: Stay) -> bool:
    if window.kind is not WindowKind.RESERVED:
        return False
    return (
        stay.ask.tenant in window.admits_tenants
        or stay.ask.queue in window.admits_queues
        or stay.job in window.admits_jobs
        or (window.spare and stay.is_swap)
    )
