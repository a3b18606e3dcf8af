"""Nodes over REST: counts for everyone, jobs for their own tenant, cordons for operators, pages and filters."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.common.models import Event
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import ForeignPod, Node
from tenants.models import AuditEntry
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4, leaves_per_spine=1)
    add_people(made)
    return made


def run(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while loop.tick(timezone.now()) is Tick.CYCLED:
        pass
    loop.stop()


def test_everyone_sees_counts_and_only_their_own_jobs(world: World) -> None:
    job = rows.add_job(world, "vision", replicas=2, gpus_per_replica=4)
    rows.add_foreign_pod(world, "gpu-00007", gpus=3)
    rows.change_node(world, "gpu-00006", out_causes=[{"code": "not_ready", "numbers": {}}])
    by_hand = {"code": "cordoned", "numbers": {"since": "2026-11-29T21:07:32+00:00"}}
    rows.change_node(world, "gpu-00005", out_causes=[by_hand])
    run(world)
    seen = {}
    for name in ("ravi", "mei", "sam"):
        answer = client(name).get("/api/v1/nodes/")
        assert answer.status_code == 200
        seen[name] = {node["name"]: node for node in answer.json()["results"]}
    busy = rows.nodes_of(job)[0]
    assert seen["ravi"][busy]["gpus"] == {
        "capacity": 8,
        "allocatable": 8,
        "used": 8,
        "free": 0,
        "out": 0,
    }
    assert seen["ravi"][busy]["jobs"] == []
    assert seen["mei"][busy]["jobs"] == seen["sam"][busy]["jobs"] == [job.pk]
    assert "vision" not in repr(seen["ravi"])
    assert seen["ravi"]["gpu-00007"]["gpus"]["used"] == 3
    lost = seen["ravi"]["gpu-00006"]
    assert (lost["state"], lost["gpus"]["free"], lost["gpus"]["out"]) == ("not_ready", 0, 8)
    cordoned = seen["ravi"]["gpu-00005"]
    assert (cordoned["cause"], cordoned["since"]) == ("cordoned", "2026-11-29T21:07:32Z")
    for node in seen["ravi"].values():
        gpus = node["gpus"]
        assert gpus["used"] + gpus["free"] + gpus["out"] == gpus["capacity"]


def test_list_is_paged_and_filtered_by_state(world: World) -> None:
    rows.change_node(world, "gpu-00003", cordon_wanted=True, cordon_reason="fan", cordon_by="ines")
    ravi = client("ravi")
    first = ravi.get("/api/v1/nodes/?limit=5").json()
    rest = ravi.get(first["next"]).json()
    names = [node["name"] for page in (first, rest) for node in page["results"]]
    assert names == [f"gpu-{number:05d}" for number in range(8)]
    assert rest["next"] is None
    out = ravi.get("/api/v1/nodes/?state=cordoned&cluster=demo").json()["results"]
    assert [(node["name"], node["cause"], node["by"]) for node in out] == [
        ("gpu-00003", "fan", "ines")
    ]
    assert ravi.get("/api/v1/nodes/?cluster=other").json()["results"] == []
    assert ravi.get("/api/v1/nodes/?search=00007").json()["results"][0]["name"] == "gpu-00007"


def test_list_costs_as_many_queries_for_many_nodes_as_for_few(world: World) -> None:
    rows.add_jobs(world, 6)
    run(world)
    ravi = client("ravi")
    ravi.get("/api/v1/nodes/")

    def cost(limit: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert len(ravi.get(f"/api/v1/nodes/?limit={limit}").json()["results"]) == limit
        return len(queries)

    assert cost(8) == cost(2) <= 12


def test_topology_is_a_tree_whose_counts_add_up(world: World) -> None:
    job = rows.add_job(world, replicas=3, topology_level="leaf", topology_mode="required")
    run(world)
    answer = client("ravi").get("/api/v1/clusters/demo/topology/").json()
    assert answer["levels"] == ["spine", "leaf"]
    assert answer["counts"] == {
        "capacity": 64,
        "used": 24,
        "free": 40,
        "out": 0,
        "nodes": 8,
        "nodes_out": 0,
    }
    assert [spine["name"] for spine in answer["domains"]] == ["spine-00", "spine-01"]
    leaf = answer["domains"][0]["domains"][0]
    assert (leaf["level"], leaf["name"], leaf["counts"]["nodes"]) == ("leaf", "leaf-00", 4)
    assert sum(job.pk in node["jobs"] for node in leaf["nodes"]) == 3
    assert sum(spine["counts"]["used"] for spine in answer["domains"]) == 24


def test_topology_costs_as_many_queries_for_many_nodes_as_for_few(world: World) -> None:
    ravi = client("ravi")
    ravi.get("/api/v1/clusters/demo/topology/")

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            ravi.get("/api/v1/clusters/demo/topology/")
        return len(queries)

    few = cost()
    rows.add_nodes(world, 200, nodes_per_leaf=4, leaves_per_spine=2, first=8)
    rows.add_jobs(world, 20)
    run(world)
    assert cost() == few <= 12


def test_cordon_needs_an_operator_and_a_reason_and_keeps_jobs_off_at_once(world: World) -> None:
    address = "/api/v1/clusters/demo/nodes/gpu-00000/cordon/"
    assert client("ravi").post(address, {"reason": "x"}, format="json").status_code == 403
    assert client("sam").post(address, {"reason": "x"}, format="json").status_code == 403
    refused = client("ines").post(address, {"reason": "  "}, format="json")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/reason"
    assert not Node.objects.filter(cordon_wanted=True).exists()

    answer = client("ines").post(address, {"reason": "fan is loud"}, format="json")
    assert answer.status_code == 200
    assert answer.json()["state"] == "cordoned"
    assert (answer.json()["by"], answer.json()["cause"]) == ("ines", "fan is loud")
    event = Event.objects.get(kind="node.cordoned")
    assert (event.cluster, event.node, event.actor) == ("demo", "gpu-00000", "ines")
    assert AuditEntry.objects.get().reason == "fan is loud"
    job = rows.add_job(world, replicas=8)
    run(world)
    assert rows.nodes_of(job) == []

    back = client("ines").post(
        address.replace("/cordon", "/uncordon"), {"reason": "fixed"}, format="json"
    )
    assert back.status_code == 200
    run(world)
    assert len(rows.nodes_of(job)) == 8


def test_unknown_nodes_and_clusters_are_not_found(world: World) -> None:
    ravi = client("ravi")
    for address in (
        "clusters/demo/nodes/gpu-99999/",
        "clusters/other/nodes/gpu-00000/",
        "clusters/other/topology/",
    ):
        assert ravi.get(f"/api/v1/{address}").status_code == 404


def test_unclaimed_pods_are_shown_to_operators_and_their_own_tenant(world: World) -> None:
    for number, tenant in enumerate((world.queues["research"].tenant, None)):
        ForeignPod.objects.create(
            cluster=world.cluster,
            uid=f"uid-{number}",
            namespace="muster-research" if tenant else "elsewhere",
            name=f"pod-{number}",
            node="gpu-00000",
            tenant=tenant,
            unclaimed=True,
            gpus=8,
            labels={"muster.dev/job": "job_lost", "muster.dev/attempt": "2"},
            seen_at=NOW,
        )
    rows.add_foreign_pod(world, "gpu-00001", gpus=1)

    def names(who: str) -> list[str]:
        results = client(who).get("/api/v1/unclaimed/").json()["results"]
        return [pod["name"] for pod in results]

    assert names("ines") == ["pod-0", "pod-1"]
    assert names("ravi") == ["pod-0"]
    assert names("mei") == []
    pod = client("ravi").get("/api/v1/unclaimed/").json()["results"][0]
    assert (pod["job"], pod["attempt"], pod["gpus"]) == ("job_lost", "2", 8)


def test_nobody_sees_nodes_without_signing_in(world: World) -> None:
    assert client("ravi").get("/api/v1/nodes/").status_code == 200
    from_outside = client("ravi")
    from_outside.logout()
    assert from_outside.get("/api/v1/nodes/").status_code == 401
