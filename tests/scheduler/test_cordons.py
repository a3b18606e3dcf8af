"""Cordons have owners: each party lifts only its own, and the node is free when the last is gone."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.common.models import Event
from scheduler.core.inputs.cluster import OutCause
from scheduler.models import Cordon, CordonSource, Node
from scheduler.services.cordons import lift_cordon, lift_cordons, set_cordon, set_cordons
from scheduler.snapshot.nodes import read_nodes
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW, World

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def world() -> World:
    made = rows.make_world(4)
    add_people(made)
    return made


def node(number: int = 0) -> Node:
    return Node.objects.get(name=f"gpu-{number:05d}")


def window(number: int = 0) -> None:
    set_cordon(
        node(number),
        source=CordonSource.WINDOW,
        key="7",
        reason="new driver",
        by="window 7",
        now=NOW,
    )


def test_a_node_is_free_only_when_the_last_cordon_is_lifted(world: World) -> None:
    window()
    set_cordon(node(), source=CordonSource.OPERATOR, reason="fan", by="ines", now=LATER)
    row = node()
    assert (row.cordon_wanted, row.cordon_reason, row.cordon_by) == (True, "fan", "ines")
    left = lift_cordon(node(), source=CordonSource.OPERATOR, now=LATER)
    row = node()
    assert [cordon.key for cordon in left] == ["7"]
    assert (row.cordon_wanted, row.cordon_reason, row.cordon_since) == (True, "new driver", NOW)
    assert lift_cordon(node(), source=CordonSource.WINDOW, key="7", now=LATER) == []
    row = node()
    assert (row.cordon_wanted, row.cordon_reason, row.cordon_source) == (False, "", "")


def test_a_party_lifts_only_its_own_cordon(world: World) -> None:
    window()
    for source, key in (("operator", ""), ("window", "8"), ("health", "7")):
        lift_cordon(node(), source=CordonSource(source), key=key, now=LATER)
    assert node().cordon_wanted is True
    assert Cordon.objects.count() == 1
    assert not Event.objects.filter(kind="node.uncordoned").exists()


def test_the_same_again_writes_nothing(world: World) -> None:
    window()
    seen = Event.objects.count()
    window()
    assert Event.objects.count() == seen
    assert Cordon.objects.get().since == NOW


def test_a_cordon_set_outside_muster_outlives_a_window(world: World) -> None:
    rows.change_node(world, "gpu-00000", unschedulable=True)
    window()
    set_cordon(node(), source=CordonSource.HEALTH, reason="XID 79", by="rule", now=NOW)
    lift_cordon(node(), source=CordonSource.WINDOW, key="7", now=LATER)
    lift_cordon(node(), source=CordonSource.HEALTH, now=LATER)
    assert node().cordon_wanted is None  # no opinion: Kubernetes keeps what it has


def test_a_cordon_of_ours_that_is_being_lifted_is_no_strangers(world: World) -> None:
    window()
    lift_cordon(node(), source=CordonSource.WINDOW, key="7", now=NOW)
    rows.change_node(world, "gpu-00000", unschedulable=True)  # Kubernetes has not followed yet
    window()
    lift_cordon(node(), source=CordonSource.WINDOW, key="7", now=LATER)
    assert node().cordon_wanted is False


def test_many_nodes_cost_as_many_queries_as_one(world: World) -> None:
    def cost(nodes: list[Node], key: str) -> int:
        wanted: dict[str, Any] = {"source": CordonSource.WINDOW, "key": key, "now": NOW}
        with CaptureQueriesContext(connection) as queries:
            set_cordons(nodes, reason="driver", by="window", **wanted)
            lift_cordons(nodes, **wanted)
        return len(queries)

    assert cost(list(Node.objects.all()), "1") == cost([node(1)], "2")


def test_the_planner_hears_of_it_by_whose_it_is(world: World) -> None:
    window(0)
    set_cordon(node(1), source=CordonSource.HEALTH, reason="XID 79", by="rule", now=NOW)
    set_cordon(node(2), source=CordonSource.OPERATOR, reason="fan", by="ines", now=NOW)
    rows.change_node(world, "gpu-00000", out_causes=[{"code": "cordoned", "numbers": {}}])
    outs = {name: seen.outs for name, seen in read_nodes(world.cluster.pk, {}).items()}
    assert outs["gpu-00000"] == (OutCause.WINDOW,)
    assert outs["gpu-00001"] == (OutCause.UNHEALTHY,)
    assert outs["gpu-00002"] == (OutCause.CORDONED,)
    assert outs["gpu-00003"] == ()


def test_uncordon_by_a_person_names_who_still_keeps_jobs_off(world: World) -> None:
    window()
    address = "/api/v1/clusters/demo/nodes/gpu-00000/"
    client("ines").post(f"{address}cordon/", {"reason": "fan"}, format="json")
    answer = client("ines").post(f"{address}uncordon/", {"reason": "done"}, format="json").json()
    assert answer["state"] == "maintenance"
    assert [(c["source"], c["reason"], c["by"]) for c in answer["cordons"]] == [
        ("window", "new driver", "window 7")
    ]
    assert client("ravi").get(address).json()["cordons"] == answer["cordons"]


def test_uncordon_by_a_person_ends_what_was_set_outside_muster(world: World) -> None:
    rows.change_node(world, "gpu-00000", unschedulable=True)
    window()
    client("ines").post(
        "/api/v1/clusters/demo/nodes/gpu-00000/uncordon/", {"reason": "mine"}, format="json"
    )
    lift_cordon(node(), source=CordonSource.WINDOW, key="7", now=LATER)
    assert node().cordon_wanted is False
