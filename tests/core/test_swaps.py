"""Hot swap after node losses: survivors keep node and rank, the lost replicas move together or not at all."""

from dataclasses import replace

import pytest

from scheduler.core.inputs.cluster import OutCause, WindowKind
from scheduler.core.inputs.jobs import SliceAsk, TopologyAsk
from tests.core.builders import (
    ask,
    code_of,
    fabric,
    gang,
    job,
    planned,
    role,
    running,
    snapshot,
    start_of,
    started,
)
from tests.core.test_bookings import window

NODES = fabric(1, 2, 6)


def without(nodes, *lost):
    return tuple(replace(n, outs=(OutCause.NOT_READY,)) if n.name in lost else n for n in nodes)


def swap_of(waiting, lost, *, nodes=NODES, **changes):
    """Place the job, lose these ranks' nodes, and plan its return: (first start, lost names, plan)."""
    first = start_of(planned(snapshot(nodes, waiting)), waiting.id)
    names = [first.seats[rank].node for rank in lost]
    survivors = tuple(seat for seat in first.seats if seat.node not in names)
    again = replace(waiting, survivors=survivors)
    given = snapshot(without(nodes, *names), again)
    return first, names, planned(replace(given, **changes))


@pytest.mark.parametrize("lost", [(1,), (0, 3), (0, 1, 2)])
def test_several_lost_nodes_are_swapped_at_once_inside_the_required_leaf(lost):
    first, names, made = swap_of(gang("g", 4, level="leaf"), lost, nodes=fabric(1, 2, 8))
    second = start_of(made, "g")
    kept = {s.rank: s.node for s in first.seats if s.node not in names}
    assert {s.rank: s.node for s in second.seats if s.rank in kept} == kept
    moved = {s.node for s in second.seats if s.rank not in kept}
    assert len(moved) == len(lost)
    assert not moved & set(names)
    assert second.domains == first.domains


def test_swap_that_does_not_fit_whole_moves_the_whole_gang_or_none():
    """Two are lost and the leaf has one free: the other leaf holds the gang whole."""
    waiting = gang("g", 5, level="leaf")
    first, _, made = swap_of(waiting, (0, 1))
    second = start_of(made, "g")
    assert second.domains != first.domains
    assert not {s.node for s in first.seats} & {s.node for s in second.seats}
    held = running("r", *((n.name, 8) for n in NODES if "-1-" in n.name[3:]))
    _, _, nowhere = swap_of(waiting, (0, 1), running=(held,))
    assert started(nowhere) == []
    assert code_of(nowhere, "g") == "waiting_for_nodes"


def test_lost_replicas_join_the_survivors_of_their_slice():
    wanted = ask(role(8, topology=TopologyAsk(slice=SliceAsk(4, "leaf"))))
    first, names, made = swap_of(job("g", wanted), (1, 6))
    second = start_of(made, "g")
    for rank in (1, 6):
        mate = next(s.node for s in first.seats if s.rank // 4 == rank // 4 and s.node not in names)
        new = second.seats[rank].node
        assert new not in names
        assert new.rsplit("-", 1)[0] == mate.rsplit("-", 1)[0]
    assert [s.node for s in second.seats if s.rank not in (1, 6)] == [
        s.node for s in first.seats if s.rank not in (1, 6)
    ]


def test_slice_that_is_lost_whole_moves_to_one_leaf():
    nodes = fabric(1, 3, 4)
    wanted = ask(role(8, topology=TopologyAsk(slice=SliceAsk(4, "leaf"))))
    first, _, made = swap_of(job("g", wanted), (4, 5, 6, 7), nodes=nodes)
    second = start_of(made, "g")
    assert [s.node for s in second.seats[:4]] == [s.node for s in first.seats[:4]]
    assert len({s.node.rsplit("-", 1)[0] for s in second.seats[4:]}) == 1


def test_spare_is_kept_for_swaps():
    spare = NODES[5].name
    kept = window(-60, 9_000, spare, kind=WindowKind.RESERVED, spare=True)
    given = replace(snapshot(NODES, gang("new", 6, level="leaf")), windows=(kept,))
    assert not any(name == spare for s in planned(given).starts for name in s.nodes)
    waiting = gang("g", 5, level="leaf")
    full = running("r", *((n.name, 8) for n in NODES[6:]))
    first, names, made = swap_of(waiting, (2,), running=(full,), windows=(kept,))
    second = start_of(made, "g")
    assert second.seats[2].node == spare
    assert [s.node for s in second.seats if s.rank != 2] == [
        s.node for s in first.seats if s.node not in names
    ]
