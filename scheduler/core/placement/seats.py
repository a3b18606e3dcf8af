"""From a placement to seats: replica numbers and ranks along the topology.

The last step before a `Start`; called by the cycle.
"""

from __future__ import annotations

from scheduler.core.inputs.cluster import Node
from scheduler.core.inputs.jobs import Seat
from scheduler.core.placement.gang import Part, Placement


def seats_of(placement: Placement) -> tuple[Seat, ...]:
    """One seat per replica in rank order: roles in order, then along the grid.

    Survivors keep replica number and rank; the replicas that moved take the numbers that are free.
    """
    seats: list[Seat] = []
    base = 0
    for part in placement.parts:
        seats.extend(_part_seats(placement, part, base))
        base += part.replicas
    return tuple(seats)


def _part_seats(placement: Placement, part: Part, base: int) -> list[Seat]:
    gpus, cpu_millis, memory_mib, _ = part.demand.request
    nodes = placement.grid.nodes
    taken = {seat.replica for seat in part.kept}
    numbers = (n for n in range(part.replicas + len(taken)) if n not in taken)
    moved = [
        Seat(part.demand.role, number, base + number, node, gpus, cpu_millis, memory_mib)
        for node, number in zip(_node_names(part, nodes), numbers, strict=False)
    ]
    kept = [
        Seat(s.role, s.replica, base + s.replica, s.node, gpus, cpu_millis, memory_mib)
        for s in part.kept
    ]
    return sorted(moved + kept, key=lambda seat: seat.rank)


def _node_names(part: Part, nodes: tuple[Node, ...]) -> list[str]:
    names: list[str] = []
    for index, count in zip(part.nodes.tolist(), part.counts.tolist(), strict=True):
        names.extend([nodes[index].name] * count)
    return names
