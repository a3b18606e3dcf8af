"""Why a gang found no place: the checks in order, against the state left by the jobs ahead.

Called by the cycle once per class that was refused (and only when reasons are wanted). Each check
loosens or tightens one thing and asks placement again; the first that fails is the reason.
"""

from __future__ import annotations

import numpy as np

from scheduler.core.calendar.windows import Stay
from scheduler.core.inputs.cluster import NODE_LEVEL
from scheduler.core.inputs.jobs import Ask
from scheduler.core.placement.demand import Demand, replica_capacity
from scheduler.core.placement.field import Field
from scheduler.core.placement.gang import place
from scheduler.core.placement.search import bubble_up
from scheduler.core.reasons import Numbers, Reason, ReasonCode
from scheduler.core.topology.grid import GPUS, Bools, Grid


def static_refusal(field: Field, stay: Stay, demands: tuple[Demand, ...]) -> Reason | None:
    """What an empty cluster would refuse: too big, drivers too old, nodes out."""
    grid, ask = field.grid, stay.ask
    view = field.lens.view(ask)
    if field.lens.holds_empty(view):
        return None
    matching, new_enough = view.matching, view.new_enough
    if place(grid, demands, grid.inventory, matching) is None:
        return _never(field, stay.ask, demands, matching)
    if place(grid, demands, grid.inventory, new_enough) is None:
        version = ask.min_cuda or (0, 0)
        numbers: Numbers = {
            **fit_numbers(field, ask),
            "min_cuda": f"{version[0]}.{version[1]}",
            "new_enough_nodes": int(new_enough.sum()),
            "too_old_nodes": int((matching & ~new_enough).sum()),
        }
        return Reason(ReasonCode.WAITING_FOR_DRIVER, numbers)
    return _unhealthy(field, stay.ask)


def passing_refusal(field: Field, stay: Stay, demands: tuple[Demand, ...]) -> Reason | None:
    """What the cluster as it is now refuses: nodes, topology, reservations, windows."""
    inside = field.lens.view(stay.ask).inside
    short = tuple(demand for demand in demands if field.is_short(demand, inside))
    if short:
        return _nodes(field, stay.ask, _biggest(short), inside)
    if not field.fits(demands, inside):
        return _topology(field, stay.ask, demands, inside)
    return _windows(field, stay, demands, inside)


def also_unhealthy(field: Field, stay: Stay, demands: tuple[Demand, ...]) -> Reason | None:
    """UNHEALTHY_NODES when the job would fit now if the nodes that are out were in."""
    view = field.lens.view(stay.ask)
    if not field.lens.causes(view) or not field.fits(demands, view.new_enough):
        return None
    return _unhealthy(field, stay.ask)


def fit_numbers(field: Field, ask: Ask) -> Numbers:
    """What is needed at least: replicas, GPUs, and nodes of this flavor when empty."""
    view = field.lens.view(ask)
    return {
        "flavor": field.grid.flavor.name,
        "needed_replicas": sum(demand.least for demand in view.least),
        "needed_gpus": view.least_gpus,
        "needed_nodes": view.least_nodes,
    }


def _biggest(demands: tuple[Demand, ...]) -> Demand:
    return max(demands, key=lambda demand: (demand.request[GPUS] * demand.least, demand.role))


def _level_name(grid: Grid, demand: Demand) -> str | None:
    tiers = [demand.limit_tier, *(layer.tier for layer in demand.layers)]
    tier = next((tier for tier in tiers if tier > 0), 0)
    return grid.tiers[tier].name


def _never(field: Field, ask: Ask, demands: tuple[Demand, ...], matching: Bools) -> Reason:
    grid, demand = field.grid, _biggest(demands)
    cap = replica_capacity(demand, grid.inventory, matching)
    counts = bubble_up(grid, cap, demand.layers)[demand.limit_tier]
    numbers: Numbers = {
        **fit_numbers(field, ask),
        "most_replicas": int(counts.max()) if counts.size else 0,
        "level": _level_name(grid, demand),
    }
    return Reason(ReasonCode.EXCEEDS_CLUSTER_FOR_EVER, numbers)


def _unhealthy(field: Field, ask: Ask) -> Reason:
    view = field.lens.view(ask)
    causes = field.lens.causes(view)
    inside = int(view.inside.sum())
    numbers: Numbers = {
        **fit_numbers(field, ask),
        "nodes_in": inside,
        "nodes_out": int(view.new_enough.sum()) - inside,
        "main_cause": min(causes, key=lambda name: (-causes[name], name), default=None),
        **{f"out_{name}": count for name, count in sorted(causes.items())},
    }
    return Reason(ReasonCode.UNHEALTHY_NODES, numbers)


def _nodes(field: Field, ask: Ask, demand: Demand, inside: Bools) -> Reason:
    left = field.left(demand, inside)
    numbers: Numbers = {
        **fit_numbers(field, ask),
        "free_replicas": left.replicas,
        "free_gpus": left.gpus,
        "free_nodes": left.nodes,
        "limiting_resource": left.limiting_resource,
        "frees_at": None,
        "frees_job": None,
    }
    return Reason(ReasonCode.WAITING_FOR_NODES, numbers)


def _topology(field: Field, ask: Ask, demands: tuple[Demand, ...], inside: Bools) -> Reason:
    grid, demand = field.grid, _biggest(demands)
    tally = field.tally(demand, inside)
    cap = tally.cap
    tier = demand.limit_tier or next((layer.tier for layer in demand.layers), 0)
    counts = tally.counts[tier]
    best = int(np.argmax(counts)) if counts.size else 0
    name = grid.tiers[tier].names[best] if counts.size else None
    span = slice(int(grid.tiers[tier].starts[best]), int(grid.tiers[tier].starts[best + 1]))
    numbers: Numbers = {
        **fit_numbers(field, ask),
        "level": grid.tiers[tier].name or NODE_LEVEL,
        "best_domain": name,
        "free_there": int((cap[span] > 0).sum()),
        "replicas_there": int(counts[best]) if counts.size else 0,
        "frees_at": None,
        "frees_job": None,
    }
    return Reason(ReasonCode.WAITING_FOR_TOPOLOGY, numbers)


def _windows(field: Field, stay: Stay, demands: tuple[Demand, ...], inside: Bools) -> Reason | None:
    blocking = field.windows.blocking(stay)
    for code in (ReasonCode.WAITING_FOR_RESERVATION, ReasonCode.WAITING_FOR_MAINTENANCE):
        kind = "reserved" if code is ReasonCode.WAITING_FOR_RESERVATION else "maintenance"
        mine = [pair for pair in blocking if pair[0].kind == kind]
        if not mine:
            continue
        inside = inside.copy()
        for _, nodes in mine:
            inside[nodes] = False
        if place(field.grid, demands, field.free, inside) is None:
            first = min((window for window, _ in mine), key=lambda w: (w.starts_at, w.id))
            numbers = fit_numbers(field, stay.ask) | {"window": first.id}
            if code is ReasonCode.WAITING_FOR_RESERVATION:
                numbers["reserved_nodes"] = int(
                    np.unique(np.concatenate([n for _, n in mine])).size
                )
                numbers["ends_at"] = first.ends_at
            else:
                numbers["starts_at"] = first.starts_at
                numbers["longest_seconds"] = max(
                    0.0, first.starts_at - stay.start - stay.extra_seconds
                )
            return Reason(code, numbers)
    return None
