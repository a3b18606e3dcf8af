"""Where gangs go: gangs whole, levels, best fit, ranks, CPU and memory and pods."""

from dataclasses import replace

import pytest

from scheduler.core.inputs.cluster import Flavor, OutCause
from scheduler.core.inputs.jobs import SliceAsk, TopologyAsk
from scheduler.core.resources import Amount
from tests.core.builders import (
    BIG,
    H100,
    ask,
    code_of,
    fabric,
    gang,
    job,
    node,
    planned,
    role,
    running,
    snapshot,
    start_of,
    started,
)


def test_gang_that_does_not_fit_whole_holds_nothing():
    made = planned(snapshot(fabric(1, 2, 4), gang("a", 9)))
    assert started(made) == []
    assert code_of(made, "a") == "exceeds_cluster_for_ever"


def test_gang_takes_lowest_domain_that_holds_it():
    made = planned(snapshot(fabric(2, 2, 4), gang("a", 4)))
    assert start_of(made, "a").achieved_level == "leaf"
    assert start_of(made, "a").domains == (("spine", "spine-0"), ("leaf", "leaf-0-0"))


def test_gang_larger_than_leaf_takes_one_spine_and_fewest_leaves():
    busy = running("r", ("n-0-0-00", 8), ("n-0-1-00", 8), ("n-0-2-00", 8))
    made = planned(snapshot(fabric(2, 3, 4), gang("a", 6), running=(busy,)))
    start = start_of(made, "a")
    assert start.achieved_level == "spine"
    assert len({name.rsplit("-", 1)[0] for name in start.nodes}) == 2


def test_best_fit_takes_the_tightest_leaf_and_keeps_the_big_one_whole():
    busy = running("r", ("n-0-0-00", 8), ("n-0-0-01", 8))
    made = planned(snapshot(fabric(1, 2, 4), gang("a", 2), running=(busy,)))
    assert start_of(made, "a").nodes == ("n-0-0-02", "n-0-0-03")


def test_single_replica_takes_the_fullest_node_that_holds_it():
    busy = running("r", ("n-0-1-02", 5))
    made = planned(snapshot(fabric(1, 2, 4), gang("a", 1, gpus=2), running=(busy,)))
    assert start_of(made, "a").nodes == ("n-0-1-02",)


def test_required_level_never_climbs_and_names_the_nearest_miss():
    busy = running("r", ("n-0-0-00", 8), ("n-0-1-00", 8), ("n-0-1-01", 8))
    made = planned(snapshot(fabric(1, 2, 4), gang("a", 4, level="leaf"), running=(busy,)))
    reason = made.reason_of("a")
    assert reason is not None
    assert reason.code == "waiting_for_topology"
    assert reason.numbers["best_domain"] == "leaf-0-0"
    assert reason.numbers["free_there"] == 3
    assert reason.numbers["needed_nodes"] == 4


def test_preferred_level_climbs_and_says_what_was_achieved():
    wanted = ask(role(6, topology=TopologyAsk(preferred="leaf")))
    start = start_of(planned(snapshot(fabric(1, 2, 4), job("a", wanted))), "a")
    assert (start.asked_level, start.achieved_level) == ("leaf", "spine")


def test_required_spine_with_preferred_leaf_stays_in_the_spine():
    wanted = ask(role(6, topology=TopologyAsk(required="spine", preferred="leaf")))
    busy = running("r", ("n-0-0-00", 8), ("n-0-1-00", 8), ("n-0-1-01", 8))
    start = start_of(planned(snapshot(fabric(2, 2, 4), job("a", wanted), running=(busy,))), "a")
    assert start.domains == (("spine", "spine-1"),)


def test_gang_wider_than_every_spine_crosses_them_unless_required():
    nodes = fabric(2, 1, 4)
    assert start_of(planned(snapshot(nodes, gang("a", 6))), "a").achieved_level is None
    refused = planned(snapshot(nodes, gang("a", 6, level="spine")))
    assert code_of(refused, "a") == "exceeds_cluster_for_ever"


def test_unknown_level_is_refused_not_dropped():
    made = planned(snapshot(fabric(1, 1, 4), gang("a", 2, level="rack")))
    reason = made.reason_of("a")
    assert reason is not None
    assert reason.code == "exceeds_cluster_for_ever"
    assert reason.numbers["level"] == "rack"


def test_ranks_follow_the_topology():
    start = start_of(planned(snapshot(fabric(1, 2, 4), gang("a", 8))), "a")
    assert [seat.node for seat in start.seats] == sorted(seat.node for seat in start.seats)
    assert [seat.rank for seat in start.seats] == list(range(8))


@pytest.mark.parametrize(
    ("short", "limiting"),
    [
        (Amount(8, 500, 1_000_000, 110), "cpu"),
        (Amount(8, 128_000, 512, 110), "memory"),
        (Amount(8, 128_000, 1_000_000, 0), "pods"),
        (Amount(4, 128_000, 1_000_000, 110), "gpus"),
    ],
)
def test_every_resource_counts(short, limiting):
    full = node("full", inventory_gpus=8)
    taken = Amount(*(b - s for b, s in zip(BIG.as_tuple(), short.as_tuple(), strict=True)))
    made = planned(snapshot((replace(full, foreign=taken),), gang("a", 1)))
    reason = made.reason_of("a")
    assert reason is not None
    assert reason.code == "waiting_for_nodes"
    assert reason.numbers["limiting_resource"] == limiting


def test_slices_stay_whole_in_their_leaf():
    busy = running("r", ("n-0-0-00", 8), ("n-0-1-00", 8))
    wanted = ask(role(8, topology=TopologyAsk(slice=SliceAsk(4, "leaf"))))
    made = planned(snapshot(fabric(1, 4, 5), job("a", wanted), running=(busy,)))
    start = start_of(made, "a")
    assert {len([s for s in start.seats if s.node.startswith(p)]) for p in ("n-0-0", "n-0-1")} == {
        4
    }


def test_slices_that_fit_nowhere_wait_for_topology():
    busy = running("r", *((f"n-0-{leaf}-00", 8) for leaf in range(4)))
    wanted = ask(role(8, topology=TopologyAsk(slice=SliceAsk(4, "leaf"))))
    made = planned(snapshot(fabric(1, 4, 4), job("a", wanted), running=(busy,)))
    assert code_of(made, "a") == "waiting_for_topology"


def test_tensor_parallel_group_never_leaves_a_node_nvlink_domain():
    busy = running("r", *((f"n-0-0-0{n}", 4) for n in range(4)))
    wanted = ask(role(4, gpus=2, tensor_parallel=8))
    made = planned(snapshot(fabric(1, 1, 4), job("a", wanted), running=(busy,)))
    assert code_of(made, "a") == "waiting_for_topology"
    free = planned(snapshot(fabric(1, 1, 4), job("a", wanted)))
    assert len(start_of(free, "a").nodes) == 1


def test_tensor_parallel_group_spans_nodes_of_a_wide_nvlink_domain():
    flavor = Flavor("h100", gpus_per_nvlink_domain=16)
    nodes = tuple(
        replace(
            node(f"n{i}"),
            capacity=replace(BIG, gpus=4),
            domains=(("spine", "s"), ("nvlink", f"d{i // 4}")),
        )
        for i in range(8)
    )
    given = snapshot(nodes, job("a", ask(role(4, gpus=4, tensor_parallel=16))))
    given = replace(given, flavors=(flavor,))
    given = replace(given, cluster=replace(given.cluster, levels=("spine", "nvlink")))
    assert start_of(planned(given), "a").domains == (("spine", "s"), ("nvlink", "d0"))
    busy = running("r", ("n0", 4), ("n4", 4))
    assert code_of(planned(replace(given, running=(busy,))), "a") == "waiting_for_topology"


def test_narrow_nvlink_domains_hold_only_whole_groups():
    flavor = Flavor("h100", gpus_per_nvlink_domain=4)
    given = replace(
        snapshot((node("a"),), job("j", ask(role(1, gpus=8, tensor_parallel=8)))),
        flavors=(flavor,),
    )
    assert code_of(planned(given), "j") == "exceeds_cluster_for_ever"
    fits = replace(given, waiting=(job("j", ask(role(1, gpus=8, tensor_parallel=4))),))
    assert started(planned(fits)) == ["j"]


def test_roles_of_one_job_sit_together():
    busy = running("r", ("n-0-0-00", 8))
    wanted = ask(role(3), role(1, gpus=0, name="driver", tensor_parallel=1))
    made = planned(snapshot(fabric(1, 2, 4), job("a", wanted), running=(busy,)))
    start = start_of(made, "a")
    assert start.domains[-1] == ("leaf", "leaf-0-0")
    assert [seat.role for seat in start.seats] == ["main"] * 3 + ["driver"]


def test_elastic_gang_starts_with_the_largest_size_that_fits():
    busy = running("r", ("n-0-0-00", 8))
    wanted = ask(role(4, min_replicas=2, topology=TopologyAsk(required="leaf")))
    made = planned(snapshot(fabric(1, 1, 4), job("a", wanted), running=(busy,)))
    assert start_of(made, "a").replicas == 3


def test_node_selector_exclusions_and_driver_are_kept():
    nodes = (
        node("a", labels=(("disk", "fast"),), cuda=(12, 4)),
        node("b", labels=(("disk", "fast"),), cuda=(12, 0)),
        node("c", cuda=(12, 4)),
    )
    wanted = ask(role(), node_selector=(("disk", "fast"),), min_cuda=(12, 4))
    assert start_of(planned(snapshot(nodes, job("j", wanted))), "j").nodes == ("a",)
    barred = replace(wanted, exclude_nodes=frozenset({"a"}))
    made = planned(snapshot(nodes, job("j", barred)))
    assert code_of(made, "j") == "waiting_for_driver"


def test_nodes_that_are_out_are_counted_by_cause():
    nodes = (*fabric(1, 1, 3), *fabric(1, 2, 1, outs=(OutCause.CORDONED,))[1:])
    made = planned(snapshot(nodes, gang("a", 4)))
    reason = made.reason_of("a")
    assert reason is not None
    assert reason.code == "unhealthy_nodes"
    assert reason.numbers["main_cause"] == "cordoned"
    assert reason.numbers["nodes_out"] == 1


def test_survivors_keep_node_and_rank_and_only_the_lost_move():
    nodes = fabric(1, 2, 4)
    first = start_of(planned(snapshot(nodes, gang("a", 3, level="leaf"))), "a")
    lost = first.seats[1].node
    kept = tuple(seat for seat in first.seats if seat.node != lost)
    broken = tuple(replace(n, outs=(OutCause.NOT_READY,)) if n.name == lost else n for n in nodes)
    again = replace(gang("a", 3, level="leaf"), survivors=kept)
    second = start_of(planned(snapshot(broken, again)), "a")
    assert [s.node for s in second.seats if s.rank != 1] == [s.node for s in kept]
    assert second.seats[1].node == "n-0-0-03"


def test_unlabelled_node_is_a_domain_of_its_own():
    nodes = (*fabric(1, 1, 3), node("stray"))
    made = planned(snapshot(nodes, gang("a", 4, level="leaf")))
    assert code_of(made, "a") == "exceeds_cluster_for_ever"
    assert started(planned(snapshot(nodes, gang("b", 1, level="leaf")))) == ["b"]


def test_flavors_are_tried_in_order_of_preference():
    nodes = (*fabric(1, 1, 1), *(replace(n, flavor="a100") for n in fabric(1, 2, 1)[1:]))
    wanted = ask(role(), flavors=("h100", "a100"))
    given = snapshot(nodes, job("a", wanted), job("b", wanted, age=-1))
    given = replace(given, flavors=(H100, Flavor("a100")))
    tenants = (
        replace(
            given.tenants[0],
            quotas=(*given.tenants[0].quotas, replace(given.tenants[0].quotas[0], flavor="a100")),
        ),
    )
    made = planned(replace(given, tenants=tenants))
    assert [start.flavor for start in made.starts] == ["h100", "a100"]


def test_roles_are_packed_most_bound_first():
    """The workers need both free nodes of the leaf; their drivers may sit anywhere."""
    nodes = (*fabric(1, 1, 2), *fabric(1, 2, 1)[1:])
    workers = role(4, gpus=4, topology=TopologyAsk(required="leaf"))
    drivers = role(1, gpus=8, name="driver")
    assert started(planned(snapshot(nodes, job("a", ask(workers, drivers))))) == ["a"]


def test_suspect_node_takes_jobs_of_one_node_and_no_part_of_a_gang():
    nodes = (*fabric(1, 1, 1), node("s", "leaf-0-0", "spine-0", outs=(OutCause.SUSPECT,)))
    made = planned(snapshot(nodes, gang("pair", 2, age=9), gang("one", 1, age=8), gang("two", 1)))
    assert code_of(made, "pair") == "unhealthy_nodes"
    assert [(s.job, s.nodes) for s in made.starts] == [("one", ("n-0-0-00",)), ("two", ("s",))]
    halves = planned(snapshot(nodes[1:], gang("a", 2, gpus=4)))
    assert start_of(halves, "a").nodes == ("s",)
    worse = replace(nodes[1], outs=(OutCause.SUSPECT, OutCause.CORDONED))
    assert started(planned(snapshot((worse,), gang("a", 1)))) == []
