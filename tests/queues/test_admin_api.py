"""Queues, quotas and the catalogue over REST: what is answered, who may, which version, which field."""

import json
from typing import Any

import pytest
from django.utils.dateparse import parse_datetime
from rest_framework.test import APIClient

from controlplane.common.errors import ConflictError
from controlplane.common.models import Event
from queues.models import Cluster, Flavor, Preset, Queue, Quota
from queues.services import planner
from scheduler.models import ClusterState
from scheduler.snapshot.policy import read_policy
from tenants.models import AuditEntry, Tenant, User
from tenants.throttling import buckets
from tests.factories import (
    NOW,
    make_cluster,
    make_flavor,
    make_job,
    make_preset,
    make_queue,
    run_job,
)
from tests.world import World, make_world

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
API = "/api/v1/"


@pytest.fixture
def world(db: None) -> World:
    """CONTRACT's people, with full rate limits."""
    buckets.clear()
    return make_world()


@pytest.fixture
def research(world: World) -> Tenant:
    """Their tenant."""
    return world.tenants["research"]


@pytest.fixture
def ravi(world: World) -> User:
    """A submitter in research."""
    return world.users["ravi"]


def call(client: APIClient, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """JSON in, response out."""
    return client.generic(
        method,
        f"{API}{path}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
        headers=headers,
    )


ANY = {"If-Match": "*"}


# --- queues ---


def test_queues_say_what_waits_and_runs(world: World, train: Queue, ravi: User) -> None:
    make_job(train, ravi)
    run_job(make_job(train, ravi, replicas=2))
    (answer,) = call(world.bearer("ravi"), "GET", "queues/").json()["results"]
    assert (answer["id"], answer["tenant"], answer["cluster"]) == (
        "research.train",
        "research",
        "demo",
    )
    assert answer["jobs"] == {"pending": 1, "held": 0, "active": 1}
    assert answer["used"] == {"h100": 16}
    assert answer["flavors"] == ["h100"]


def test_queues_of_other_tenants_are_hidden(world: World, train: Queue) -> None:
    mei = world.bearer("mei")
    assert call(mei, "GET", "queues/").json()["results"] == []
    for key in ("research.train", "train", "nope", "a.b.c"):
        assert call(mei, "GET", f"queues/{key}/").status_code == 404
    assert call(world.bearer("admin"), "GET", "queues/train/").status_code == 200


def test_a_name_that_several_tenants_use_must_be_said_in_full(world: World, train: Queue) -> None:
    make_queue(world.tenants["vision"])
    admin = world.bearer("admin")
    assert call(admin, "GET", "queues/train/").status_code == 404
    assert call(admin, "GET", "queues/vision.train/").json()["tenant"] == "vision"
    assert call(world.bearer("ravi"), "GET", "queues/train/").json()["tenant"] == "research"


def test_a_tenant_admin_holds_and_opens_a_queue(world: World, train: Queue) -> None:
    olivia = world.bearer("olivia")
    before = call(olivia, "GET", "queues/train/")
    held = call(olivia, "PATCH", "queues/train/", {"state": "held"}, **{"If-Match": before["ETag"]})
    assert (held.status_code, held.json()["state"]) == (200, "held")
    stale = call(
        olivia, "PATCH", "queues/train/", {"state": "open"}, **{"If-Match": before["ETag"]}
    )
    assert stale.status_code == 412
    assert call(olivia, "PATCH", "queues/train/", {"state": "open"}).status_code == 428
    assert Event.objects.filter(kind="queue.changed", tenant="research").count() == 1
    assert AuditEntry.objects.get(action="queue.changed").after == {"state": "held"}


@pytest.mark.parametrize(
    ("who", "status"), [("ravi", 403), ("vera", 403), ("ines", 403), ("sam", 403), ("mei", 404)]
)
def test_nobody_else_changes_a_queue(world: World, train: Queue, who: str, status: int) -> None:
    client = world.bearer(who)
    assert (
        call(client, "PATCH", "queues/research.train/", {"state": "held"}, **ANY).status_code
        == status
    )
    sent = {"tenant": "research", "name": "new", "flavors": ["h100"]}
    made = call(client, "POST", "queues/", sent)
    # A tenant that one may not see is, in a body, a name that is wrong.
    assert made.status_code == (422 if status == 404 else status)
    assert not Queue.objects.filter(name="new").exists()


def test_a_queue_opens_only_when_its_tenant_has_quota(world: World, train: Queue) -> None:
    olivia = world.bearer("olivia")
    make_flavor(train.cluster, "b200", "B200")
    sent = {"tenant": "research", "name": "new", "flavors": ["b200"]}
    made = call(olivia, "POST", "queues/", sent)
    assert (made.status_code, made.json()["state"]) == (201, "closed")
    refused = call(olivia, "PATCH", "queues/new/", {"state": "open"}, **ANY)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_quota")
    assert Queue.objects.get(name="new").state == "closed"
    Quota.objects.create(
        tenant=world.tenants["research"], flavor=Flavor.objects.get(name="b200"), nominal=8
    )
    assert call(olivia, "PATCH", "queues/new/", {"state": "open"}, **ANY).status_code == 200


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ({"state": "ajar"}, "/state"),
        ({"flavors": ["v100"]}, "/flavors/0"),
        ({"flavors": []}, "/flavors"),
        ({"presets": ["nope"]}, "/presets/0"),
        ({"bookings": -1}, "/bookings"),
        ({"min_runtime_seconds": 86_401}, "/min_runtime_seconds"),
        ({"on_waste": "shout"}, "/on_waste"),
        ({"default_max_runtime_seconds": 0}, "/default_max_runtime_seconds"),
        (
            {"default_max_runtime_seconds": 10, "longest_max_runtime_seconds": 5},
            "/default_max_runtime_seconds",
        ),
        ({"highest_priority_admin": 1001}, "/highest_priority_admin"),
        ({"user_fair_share": "yes"}, "/user_fair_share"),
        ({"name": "other"}, "/name"),
    ],
)
def test_a_wrong_queue_names_its_field(
    world: World, train: Queue, sent: dict[str, Any], pointer: str
) -> None:
    response = call(world.bearer("olivia"), "PATCH", "queues/train/", sent, **ANY)
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert Queue.objects.get(pk=train.pk).version == 1


@pytest.mark.parametrize("tenant", [None, 7, "vision", "nobody", "\u0000x"])
def test_a_queue_is_made_for_a_tenant_that_one_sees(
    world: World, train: Queue, tenant: Any
) -> None:
    sent = {"tenant": tenant, "name": "new", "flavors": ["h100"]}
    response = call(world.bearer("olivia"), "POST", "queues/", sent)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/tenant"


def test_null_takes_a_limit_away(world: World, train: Queue) -> None:
    olivia = world.bearer("olivia")
    for limit in (3600, None):
        sent = {"longest_max_runtime_seconds": limit}
        answer = call(olivia, "PATCH", "queues/train/", sent, **ANY).json()
        assert answer["longest_max_runtime_seconds"] == limit


def test_presets_are_given_by_platform_admins_alone(world: World, train: Queue) -> None:
    make_preset("infiniband")
    sent = {"presets": ["infiniband"]}
    refused = call(world.bearer("olivia"), "PATCH", "queues/train/", sent, **ANY)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (403, "/presets")
    admin = world.bearer("admin")
    assert call(admin, "PATCH", "queues/train/", sent, **ANY).json()["presets"] == ["infiniband"]
    # Keeping what one has is not giving.
    kept = call(world.bearer("olivia"), "PATCH", "queues/train/", sent | {"bookings": 3}, **ANY)
    assert kept.status_code == 200


def test_a_queue_says_how_long_its_jobs_are_safe_and_what_follows_waste(
    world: World, train: Queue
) -> None:
    sent = {"min_runtime_seconds": 30, "on_waste": "lower"}
    answer = call(world.bearer("olivia"), "PATCH", "queues/train/", sent, **ANY).json()
    assert {name: answer[name] for name in sent} == sent
    train.refresh_from_db()
    assert (train.min_runtime_seconds, train.on_waste) == (30, "lower")
    (planned,) = (q for q in read_policy(train.cluster_id).queues if q.tenant == "research")
    assert planned.min_runtime_seconds == 30


def test_a_queues_name_is_used_once_in_a_tenant(world: World, train: Queue) -> None:
    sent = {"tenant": "research", "name": "train", "flavors": ["h100"]}
    response = call(world.bearer("olivia"), "POST", "queues/", sent)
    assert (response.status_code, response.json()["code"]) == (409, "name_in_use")


# --- quotas ---


def test_quotas_are_read_and_replaced_by_version(world: World, train: Queue) -> None:
    olivia = world.bearer("olivia")
    path = "tenants/research/quotas/"
    before = call(olivia, "GET", path)
    assert before["ETag"] == '"1"'
    assert before.json()["flavors"][0]["nominal"] == 256
    assert set(before.json()["flavors"][0]) >= {
        "flavor",
        "nominal",
        "borrowing_limit",
        "lending_limit",
        "weight",
        "headroom",
        "used",
        "borrowed",
        "lent",
        "outside",
    }
    sent = before.json()
    sent["flavors"][0]["lending_limit"] = 64
    assert call(olivia, "PUT", path, sent).status_code == 428
    done = call(olivia, "PUT", path, sent, **{"If-Match": '"1"'})
    assert (done.status_code, done["ETag"]) == (200, '"2"')
    assert done.json()["flavors"][0]["lending_limit"] == 64
    assert call(olivia, "PUT", path, sent, **{"If-Match": '"1"'}).status_code == 412


def test_a_tenant_admin_is_refused_beyond_what_they_may(world: World, train: Queue) -> None:
    sent = {"flavors": [{"flavor": "h100", "nominal": 512}]}
    response = call(world.bearer("olivia"), "PUT", "tenants/research/quotas/", sent, **ANY)
    document = response.json()
    assert (response.status_code, document["code"]) == (403, "beyond_tenant_admin")
    assert document["errors"][0]["pointer"] == "/flavors/0/nominal"
    assert document["hint"]
    admin = world.bearer("admin")
    assert call(admin, "PUT", "tenants/research/quotas/", sent, **ANY).status_code == 200


@pytest.mark.parametrize(
    ("who", "read", "write"),
    [
        ("ravi", 200, 403),
        ("vera", 200, 403),
        ("ines", 200, 403),
        ("sam", 200, 403),
        ("mei", 404, 404),
    ],
)
def test_who_reads_and_writes_quotas(
    world: World, train: Queue, who: str, read: int, write: int
) -> None:
    client = world.bearer(who)
    assert call(client, "GET", "tenants/research/quotas/").status_code == read
    assert call(client, "PUT", "tenants/research/quotas/", {}, **ANY).status_code == write


class Planner(planner.NoPlanner):
    """Knows one plan."""

    def check_quota_plan(self, tenant: Tenant, sent: Any, plan_id: str, now: Any) -> None:
        """Only "p1" holds."""
        if plan_id != "p1":
            raise ConflictError("the plan has changed", code="plan_changed")


def test_a_previewed_plan_is_applied_only_while_it_holds(world: World, train: Queue) -> None:
    sent = {"flavors": [{"flavor": "h100", "lending_limit": 1}]}
    path = "tenants/research/quotas/?plan_id="
    olivia = world.bearer("olivia")
    before = planner.register(Planner())
    try:
        changed = call(olivia, "PUT", f"{path}p2", sent, **ANY)
        assert (changed.status_code, changed.json()["code"]) == (409, "plan_changed")
        assert Quota.objects.get(tenant__slug="research").lending_limit is None
        assert call(olivia, "PUT", f"{path}p1", sent, **ANY).status_code == 200
    finally:
        planner.register(before)


def test_more_quota_is_asked_for_and_decided(world: World, train: Queue) -> None:
    olivia, admin = world.bearer("olivia"), world.bearer("admin")
    path = "tenants/research/quota-requests/"
    sent = {"changes": {"flavors": [{"flavor": "h100", "nominal": 300}]}, "comment": "please"}
    assert call(world.bearer("ravi"), "POST", path, sent).status_code == 403
    asked = call(olivia, "POST", path, sent)
    assert (asked.status_code, asked.json()["state"]) == (201, "open")
    one = f"{path}{asked.json()['id']}/"
    assert call(olivia, "POST", f"{one}accept/", {}).status_code == 403
    accepted = call(admin, "POST", f"{one}accept/", {"comment": "fine"})
    assert accepted.json()["state"] == "accepted"
    assert Quota.objects.get(tenant__slug="research").nominal == 300
    assert call(admin, "POST", f"{one}refuse/", {}).status_code == 409
    assert [r["id"] for r in call(olivia, "GET", path).json()["results"]] == [asked.json()["id"]]
    assert call(world.bearer("mei"), "GET", one).status_code == 404


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ({}, "/changes"),
        ({"changes": []}, "/changes"),
        ({"changes": {"flavors": [{"flavor": "x", "nominal": 1}]}}, "/flavors/0/flavor"),
        ({"changes": {}, "comment": 7}, "/comment"),
        ({"changes": {}, "more": 7}, "/more"),
    ],
)
def test_a_wrong_request_names_its_field(
    world: World, train: Queue, sent: dict[str, Any], pointer: str
) -> None:
    response = call(world.bearer("olivia"), "POST", "tenants/research/quota-requests/", sent)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer


# --- the catalogue ---


def test_everyone_reads_the_catalogue(world: World, train: Queue) -> None:
    make_preset("infiniband")
    nobody = world.bearer("nobody", scopes=())
    (cluster,) = call(nobody, "GET", "clusters/").json()["results"]
    assert (cluster["name"], cluster["mode"]) == ("demo", "schedule")
    assert [level["name"] for level in cluster["levels"]] == ["spine", "leaf"]
    assert (cluster["watch"], cluster["watch_since"]) == ("never", None)
    (flavor,) = call(nobody, "GET", "flavors/").json()["results"]
    assert (flavor["id"], flavor["gpus_per_node"]) == ("demo.h100", 8)
    assert call(nobody, "GET", "flavors/h100/").json() == flavor
    (preset,) = call(nobody, "GET", "presets/").json()["results"]
    assert preset["name"] == "infiniband"


@pytest.mark.parametrize("watch", ["live", "catching_up", "unreachable"])
def test_a_cluster_says_how_fresh_what_is_known_of_it_is(
    world: World, train: Queue, watch: str
) -> None:
    ClusterState.objects.update_or_create(
        cluster=train.cluster, defaults={"watch": watch, "watch_since": NOW}
    )
    nobody = world.bearer("nobody", scopes=())
    (listed,) = call(nobody, "GET", "clusters/").json()["results"]
    one = call(nobody, "GET", "clusters/demo/").json()
    assert listed == one
    assert one["watch"] == watch
    assert parse_datetime(one["watch_since"]) == NOW


def test_a_platform_admin_pauses_a_cluster(world: World, train: Queue) -> None:
    admin = world.bearer("admin")
    done = call(admin, "PATCH", "clusters/demo/", {"mode": "paused"}, **{"If-Match": '"1"'})
    assert (done.status_code, done.json()["mode"], done["ETag"]) == (200, "paused", '"2"')
    assert call(admin, "PATCH", "clusters/demo/", {"mode": "x"}, **ANY).status_code == 422
    event = Event.objects.get(kind="cluster.changed")
    assert (event.cluster, event.tenant) == ("demo", "")
    for who in ("olivia", "ravi", "ines", "sam"):
        response = call(world.bearer(who), "PATCH", "clusters/demo/", {"mode": "observe"}, **ANY)
        assert response.status_code == 403
    assert Cluster.objects.get().mode == "paused"


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ({"levels": [{"name": "rack", "node_label": "a/b"}]}, "/levels/0/name"),
        ({"levels": [{"name": "leaf"}]}, "/levels/0/node_label"),
        (
            {
                "levels": [
                    {"name": "leaf", "node_label": "a/b"},
                    {"name": "spine", "node_label": "a/c"},
                ]
            },
            "/levels",
        ),
        ({"node_selector": {"a b": "c"}}, "/node_selector/a b"),
        ({"name": "x"}, "/name"),
    ],
)
def test_a_wrong_cluster_names_its_field(
    world: World, train: Queue, sent: dict[str, Any], pointer: str
) -> None:
    response = call(world.bearer("admin"), "PATCH", "clusters/demo/", sent, **ANY)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer


def test_levels_are_replaced_whole(world: World, train: Queue) -> None:
    levels = [{"name": "zone", "node_label": "z"}, {"name": "leaf", "node_label": "l"}]
    answer = call(world.bearer("admin"), "PATCH", "clusters/demo/", {"levels": levels}, **ANY)
    assert answer.json()["levels"] == levels


def test_flavors_are_made_and_changed(world: World) -> None:
    make_cluster()
    admin = world.bearer("admin")
    sent = {"name": "b200", "cluster": "demo", "model": "B200", "gpus_per_nvlink_domain": 72}
    made = call(admin, "POST", "flavors/", sent)
    assert (made.status_code, made.json()["gpus_per_node"]) == (201, None)
    assert call(admin, "POST", "flavors/", sent).status_code == 409
    changed = call(admin, "PATCH", "flavors/demo.b200/", {"default_cpu_millis_per_gpu": 4000})
    assert changed.json()["default_cpu_millis_per_gpu"] == 4000
    wrong = call(admin, "PATCH", "flavors/b200/", {"gpus_per_nvlink_domain": 7})
    assert wrong.json()["errors"][0]["pointer"] == "/gpus_per_nvlink_domain"
    assert call(world.bearer("olivia"), "POST", "flavors/", sent).status_code == 403
    assert call(admin, "POST", "flavors/", {"name": "x"}).status_code == 422


def test_presets_are_made_changed_and_deleted_while_no_job_names_them(
    world: World, train: Queue, ravi: User
) -> None:
    admin = world.bearer("admin")
    spec = {
        "resources": {"rdma/hca": "1"},
        "capabilities": ["IPC_LOCK"],
        "env": {"NCCL_DEBUG": "WARN"},
        "tolerations": [{"key": "rdma", "operator": "Exists"}],
        "pod_security": "baseline",
    }
    made = call(admin, "POST", "presets/", {"name": "ib", "spec": spec, "flavor": "demo/h100"})
    assert (made.status_code, made.json()["spec"], made.json()["flavor"]) == (
        201,
        spec,
        "demo/h100",
    )
    changed = call(admin, "PATCH", "presets/ib/", {"description": "InfiniBand"})
    assert (changed.json()["description"], changed.json()["spec"]) == ("InfiniBand", spec)
    job = make_job(train, ravi, preset=Preset.objects.get())
    assert call(admin, "DELETE", "presets/ib/").status_code == 409
    job.delete()
    assert call(admin, "DELETE", "presets/ib/").status_code == 204
    assert call(admin, "GET", "presets/ib/").status_code == 404


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ({"name": "X"}, "/name"),
        ({"name": "x", "flavor": "nope"}, "/flavor"),
        ({"name": "x", "spec": {"privileged": True}}, "/spec/privileged"),
        ({"name": "x", "spec": {"pod_security": "none"}}, "/spec/pod_security"),
        ({"name": "x", "spec": {"host_network": True}}, "/spec/host_network"),
        ({"name": "x", "spec": {"resources": {"gpu": "1"}}}, "/spec/resources/gpu"),
        ({"name": "x", "spec": {"env": {"A=B": "1"}}}, "/spec/env/A=B"),
    ],
)
def test_a_wrong_preset_names_its_field(
    world: World, train: Queue, sent: dict[str, Any], pointer: str
) -> None:
    response = call(world.bearer("admin"), "POST", "presets/", sent)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer
    assert not Preset.objects.exists()
