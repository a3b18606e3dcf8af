"""How whole the free capacity still is: per level, and the largest gang that fits now.

For the map, for metrics and for planned defragmentation. Called by selectors and benchmarks with
a snapshot's free amounts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.core.inputs.cluster import NODE_LEVEL
from scheduler.core.topology.grid import GPUS, Bools, Grid, Ints


@dataclass(frozen=True, slots=True)
class LevelState:
    """One level of one flavor.

    `largest_gang_nodes` is the most whole free nodes in one domain; `domain` is that domain.
    `fragmentation` is 0 when all whole free nodes that could share a domain do, and nears 1 as
    they are scattered: 1 − largest gang / min(whole free nodes, largest domain).
    """

    level: str | None
    domains: int
    free_gpus: int
    whole_free_nodes: int
    largest_gang_nodes: int
    domain: str | None
    fragmentation: float


def level_states(grid: Grid, free: Ints) -> tuple[LevelState, ...]:
    """The state of every level, widest first; the root is the whole flavor (level None).

    At `node` the gang is counted in GPUs of one node over its capacity, so that the score tells of
    GPUs scattered over nodes.
    """
    if not grid.size:
        return ()
    gpus = np.where(grid.is_in, np.maximum(free[GPUS], 0), 0)
    whole = grid.is_in & (gpus == grid.capacity[GPUS]) & (gpus > 0)
    wider = tuple(_state(grid, position, gpus, whole) for position in range(grid.node_tier))
    return (*wider, _node_state(grid, gpus, whole))


def _state(grid: Grid, position: int, gpus: Ints, whole: Bools) -> LevelState:
    tier = grid.tiers[position]
    counts = np.add.reduceat(whole.astype(np.int64), tier.starts[:-1])
    best = int(np.argmax(counts))
    total, largest = int(whole.sum()), int(counts[best])
    could = min(total, int(np.diff(tier.starts).max()))
    return LevelState(
        level=tier.name,
        domains=tier.size,
        free_gpus=int(gpus.sum()),
        whole_free_nodes=total,
        largest_gang_nodes=largest,
        domain=tier.names[best] if largest else None,
        fragmentation=1.0 - largest / could if could else 0.0,
    )


def _node_state(grid: Grid, gpus: Ints, whole: Bools) -> LevelState:
    total = int(gpus.sum())
    in_whole = int(gpus[whole].sum())
    best = int(np.argmax(gpus))
    return LevelState(
        level=NODE_LEVEL,
        domains=grid.size,
        free_gpus=total,
        whole_free_nodes=int(whole.sum()),
        largest_gang_nodes=int(whole.any()),
        domain=grid.nodes[best].name if total else None,
        fragmentation=1.0 - in_whole / total if total else 0.0,
    )
