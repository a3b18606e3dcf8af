"""Simulate, explain and quota preview over REST."""

from typing import Any

import pytest
from django.utils import timezone

from queues.models import Job
from queues.services.jobs import submit_job
from queues.services.validation import validate_job
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.whatif.server import Whatif
from tenants.access import Actor
from tests.scheduler import rows
from tests.scheduler.people import add_people, client, payload
from tests.scheduler.rows import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def run(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while loop.tick(timezone.now()) is Tick.CYCLED:
        pass
    loop.stop()


def submitted(world: World, **asked: Any) -> Job:
    actor, now = Actor(user=world.users["research"]), timezone.now()
    return submit_job(actor, validate_job(actor, payload(**asked), now), now)


def post(name: str, address: str, body: object):
    return client(name).post(f"/api/v1/{address}", body, format="json")


def test_simulation_answers_as_the_contract_says(world: World, whatif: Whatif) -> None:
    body = payload(replicas=2, min_replicas=1, topology={"level": "leaf", "mode": "required"})
    answer = post("ravi", "jobs/simulate/", body)
    assert answer.status_code == 200, answer.json()
    found = answer.json()
    assert found["verdict"] == "starts_now"
    assert found["reason"] is None
    assert found["estimated_start"]["p50"].endswith("Z")
    assert [p["rank"] for p in found["placement"]] == [0, 1]
    assert found["placement"][0]["domains"] == {"leaf": "leaf-00", "spine": "spine-00"}
    assert found["placement"][0]["pod"].endswith("-1-main-0-1")
    assert found["quota"]["before"]["used"] == 0
    assert found["quota"]["after"]["used"] == 16
    (pod,) = found["pods"]
    assert pod["kind"] == "Pod"
    assert pod["metadata"]["namespace"] == "muster-research"
    assert pod["spec"]["schedulerName"] == "muster"
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NNODES"]) == ("2", "0", "1:2")
    assert not Job.objects.exists()


def test_simulation_shows_one_manifest_a_role_for_a_job_that_waits(
    world: World, whatif: Whatif
) -> None:
    roles = [
        {"name": "lead", "replicas": 1, "gpus_per_replica": 8, "image": "a/lead:1"},
        {"name": "worker", "replicas": 9, "gpus_per_replica": 8, "image": "a/worker:1"},
    ]
    body = payload(roles=roles)
    for key in ("image", "gpus_per_replica"):
        body.pop(key)
    found = post("ravi", "jobs/simulate/", body).json()
    assert found["verdict"] == "never"
    assert found["reason"]["code"] == "exceeds_cluster_for_ever"
    assert found["reason"]["message"]
    assert found["placement"] == []
    assert [pod["metadata"]["labels"]["muster.dev/role"] for pod in found["pods"]] == [
        "lead",
        "worker",
    ]


def test_simulation_refuses_what_submitting_would_refuse(world: World, whatif: Whatif) -> None:
    body = payload(gpus_per_replica=9, env={"NVIDIA_VISIBLE_DEVICES": "all"})
    answer = post("ravi", "jobs/simulate/", body)
    assert answer.status_code == 422
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers == {"/gpus_per_replica", "/env/NVIDIA_VISIBLE_DEVICES"}
    assert post("mei", "jobs/simulate/", payload()).status_code in (403, 422)


def test_on_infeasible_on_submit(world: World, whatif: Whatif) -> None:
    body = payload(replicas=9)
    rejected = post("ravi", "jobs/?on_infeasible=reject", body)
    assert rejected.status_code == 422
    assert rejected.json()["code"] == "infeasible"
    assert not Job.objects.exists()
    finished = post("ravi", "jobs/?on_infeasible=finish", body)
    assert finished.status_code == 201
    assert (finished.json()["phase"], finished.json()["outcome"]) == ("finished", "infeasible")
    assert post("ravi", "jobs/", body).json()["phase"] == "pending"


def test_explanation_answers_as_the_contract_says(world: World, whatif: Whatif) -> None:
    rows.add_job(world, "vision", replicas=6)
    run(world)
    job = submitted(world, replicas=4, topology={"level": "leaf", "mode": "required"})
    run(world)
    found = client("ravi").get(f"/api/v1/jobs/{job.pk}/explain/").json()
    assert found["reason"]["code"] == "waiting_for_nodes"
    assert found["reasons"][0] == found["reason"]
    assert {check["check"]: check["ok"] for check in found["checks"]}["nodes"] is False
    assert found["ahead"] == [
        {"hidden": True, "gpus": 48, "state": "running", "expected_end": None}
    ]
    assert found["estimated_start"] is None
    assert {"replicas": 2} in [each["change"] for each in found["counterfactuals"]]
    assert [told["code"] for told in found["history"]] == ["waiting_for_nodes"]
    assert client("mei").get(f"/api/v1/jobs/{job.pk}/explain/").status_code == 404


def test_explanation_of_a_running_job_has_only_its_history(world: World, whatif: Whatif) -> None:
    job = submitted(world, replicas=1)
    run(world)
    found = client("ravi").get(f"/api/v1/jobs/{job.pk}/explain/").json()
    assert (found["reason"], found["checks"], found["ahead"]) == (None, [], [])


def test_quota_preview_fits_or_not_and_applies_only_unchanged(world: World, whatif: Whatif) -> None:
    job = submitted(world, replicas=4)
    run(world)
    flavor = {"flavor": "h100", "nominal": 64, "borrowing_limit": 0}
    address = "tenants/research/quotas/preview/"
    more = post("admin", address, {"flavors": [flavor]}).json()
    assert more["fits"] is True
    assert more["flavors"][0]["nominal"] == 64
    assert more["flavors"][0]["used"] == 32
    less = post("admin", address, {"flavors": [flavor | {"nominal": 16}]}).json()
    assert less["fits"] is False
    assert "16" in less["warnings"][0]
    beyond = post("olivia", address, {"flavors": [flavor]})
    assert beyond.status_code == 403
    assert beyond.json()["errors"][0]["pointer"].startswith("/flavors/0/")
    assert post("mei", address, {"flavors": [flavor]}).status_code == 404

    admin = client("admin")
    put = f"/api/v1/tenants/research/quotas/?plan_id={more['plan_id']}"
    waiting = submitted(world, replicas=2)
    changed = admin.put(put, {"flavors": [flavor]}, format="json", HTTP_IF_MATCH="*")
    assert changed.status_code == 409
    assert changed.json()["code"] == "plan_changed"
    new_plan = changed.json()["plan_id"]
    assert new_plan != more["plan_id"]
    put = put.replace(more["plan_id"], new_plan)
    applied = admin.put(put, {"flavors": [flavor]}, format="json", HTTP_IF_MATCH="*")
    assert applied.status_code == 200
    assert job.pk != waiting.pk


def test_no_verdict_now_is_503_with_a_time_to_try_again(world: World, settings) -> None:
    settings.WHATIF_URL = "http://127.0.0.1:9"
    answer = post("ravi", "jobs/simulate/", payload())
    assert answer.status_code == 503
    assert answer.json()["code"] == "no_verdict"
    assert answer["Retry-After"]
