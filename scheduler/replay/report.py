"""The figures of a replay, as the `replay` command prints them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

from scheduler.core.inputs.cluster import Node
from scheduler.replay.engine import Run
from scheduler.replay.trace import TraceJob

BOUND_SECONDS = 10.0
"""The bound of the bounded slowdown (Feitelson)."""


class Report(TypedDict):
    """One JSON object; seconds, shares as 0…1."""

    jobs: int
    never_fit: int
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_max_s: float
    wait_mean_ge8gpu_s: float
    bounded_slowdown_mean: float
    bounded_slowdown_max: float
    flow_mean_s: float
    makespan_s: float
    utilization: float
    multi_node_gangs: int
    multi_node_on_min_leaves: float | None
    wall_s: float


def report(
    runs: Sequence[Run], never_fit: Sequence[TraceJob], nodes: Sequence[Node], wall_seconds: float
) -> Report:
    """The figures over all runs; `wall_seconds` is copied."""
    waits = sorted(_wait(run) for run in runs)
    big = [_wait(run) for run in runs if run.job.waiting.ask.gpus >= 8]
    slowdowns = [_bounded_slowdown(run) for run in runs]
    makespan = _makespan(runs)
    gangs = [run for run in runs if len(run.nodes) > 1]
    return Report(
        jobs=len(runs) + len(never_fit),
        never_fit=len(never_fit),
        wait_mean_s=_mean(waits),
        wait_p50_s=_quantile(waits, 0.50),
        wait_p95_s=_quantile(waits, 0.95),
        wait_p99_s=_quantile(waits, 0.99),
        wait_max_s=waits[-1] if waits else 0.0,
        wait_mean_ge8gpu_s=_mean(big),
        bounded_slowdown_mean=_mean(slowdowns),
        bounded_slowdown_max=max(slowdowns, default=0.0),
        flow_mean_s=_mean([run.ended_at - run.job.waiting.submitted_at for run in runs]),
        makespan_s=makespan,
        utilization=_utilization(runs, nodes, makespan),
        multi_node_gangs=len(gangs),
        multi_node_on_min_leaves=_on_min_leaves(gangs, nodes),
        wall_s=wall_seconds,
    )


def _wait(run: Run) -> float:
    return run.started_at - run.job.waiting.submitted_at


def _bounded_slowdown(run: Run) -> float:
    flow = _wait(run) + run.job.duration_seconds
    return max(1.0, flow / max(BOUND_SECONDS, run.job.duration_seconds))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _makespan(runs: Sequence[Run]) -> float:
    if not runs:
        return 0.0
    first = min(run.job.waiting.submitted_at for run in runs)
    return max(run.ended_at for run in runs) - first


def _utilization(runs: Sequence[Run], nodes: Sequence[Node], makespan: float) -> float:
    total = sum(node.capacity.gpus for node in nodes) * makespan
    used = math.fsum(run.job.waiting.ask.gpus * run.job.duration_seconds for run in runs)
    return used / total if total else 0.0


def _on_min_leaves(gangs: Sequence[Run], nodes: Sequence[Node]) -> float | None:
    """The share of multi-node gangs on ⌈nodes / leaf size⌉ leaves; None without leaves."""
    leaf_of = {node.name: dict(node.domains).get("leaf") for node in nodes}
    sizes: dict[str, int] = defaultdict(int)
    for leaf in leaf_of.values():
        if leaf is not None:
            sizes[leaf] += 1
    if not sizes or not gangs:
        return None
    largest = max(sizes.values())
    good = sum(
        len({leaf_of[name] for name in run.nodes}) <= math.ceil(len(run.nodes) / largest)
        for run in gangs
    )
    return good / len(gangs)
