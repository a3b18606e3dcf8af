"""REST: who sees what, reports within limits, overrides, returns, rules and their dry runs."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.common.errors import InvalidError, LimitedError
from queues.lifecycle import EndedBy
from queues.models import Placement
from scheduler.models import (
    Alert,
    BurnIn,
    Cordon,
    Eviction,
    Gpu,
    HealthAction,
    HealthEvent,
    HealthPolicy,
    HealthRule,
    HealthSample,
    Node,
    NodeReport,
)
from scheduler.services.burn_in import note_burn_in
from scheduler.services.node_reports import report_from_attempt
from scheduler.services.node_signals import note_kernel_event
from tests.health.scene import Scene, make_scene
from tests.world import World

pytestmark = pytest.mark.django_db
XID_79 = {0: {3: {"xid": 79}}}


@pytest.fixture
def scene(people: World) -> Scene:
    return make_scene(4)


def get(people: World, name: str, path: str, status: int = 200) -> Any:
    answer = people.client(name).get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def post(people: World, name: str, path: str, body: dict[str, Any], status: int) -> Any:
    answer = people.client(name).post(f"/api/v1/{path}", body, format="json")
    assert answer.status_code == status, answer.content
    return answer.json()


def test_the_list_of_gpus_goes_on_over_its_pages(people: World, scene: Scene) -> None:
    scene.tick(3, {})
    client, path, found = people.client("vera"), "/api/v1/gpus/?limit=5", []
    while path:
        page = client.get(path).json()
        found += [(gpu["node"], gpu["index"]) for gpu in page["results"]]
        path = page["next"]
    assert found == [(f"gpu-{node:05}", index) for node in range(4) for index in range(8)]


def test_gpus_are_listed_by_state_and_unknown_values_are_null(people: World, scene: Scene) -> None:
    scene.tick(3, {0: {3: {"xid": 79, "temperature_c": None}}})
    found = get(people, "vera", "gpus/?cluster=demo&state=repairing")["results"]
    (gpu,) = found
    assert (gpu["node"], gpu["index"], gpu["cause"]) == (
        "gpu-00000",
        3,
        "XID 79: GPU fell off the bus",
    )
    assert gpu["ecc"] == "unknown"
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in gpu["ecc_hint"]
    assert len(get(people, "vera", "gpus/?limit=200")["results"]) == 32
    assert people.client("vera").get("/api/v1/gpus/?state=broken").status_code in (400, 422)
    scene.tick(15, silent={1})
    unknown = get(people, "vera", "gpus/?state=unknown")["results"]
    assert {gpu["node"] for gpu in unknown} == {"gpu-00001"}
    assert unknown[0]["utilisation"] is None
    assert unknown[0]["unknown_since"] is not None


def test_a_timeline_names_jobs_only_to_those_who_may_see_them(people: World, scene: Scene) -> None:
    attempt = scene.run()
    scene.tick(3, XID_79)
    path = "clusters/demo/nodes/gpu-00000/timeline/"
    mine = get(people, "ravi", path)["results"]
    action = next(line for line in mine if line["kind"] == "action")
    assert action["jobs"] == [{"job": attempt.job_id, "how": "on_gpu", "evicted": True}]
    assert (action["signal"], action["signal_age_seconds"], action["xid"]) == ("exporter", 0, 79)
    theirs = get(people, "mei", path)
    assert attempt.job_id not in str(theirs)
    action = next(line for line in theirs["results"] if line["kind"] == "action")
    assert (action["jobs"], action["hidden_jobs"]) == ([], 1)


def test_quarantine_says_age_and_next_step(people: World, scene: Scene) -> None:
    scene.tick(3, XID_79)
    (row,) = get(people, "sam", "clusters/demo/quarantine/")["results"]
    assert (row["node"], row["health"], row["closed"]) == ("gpu-00000", "repairing", True)
    assert row["next_step"].startswith("reset, restart or repair")
    assert row["gpus"] == [scene.gpu(0, 3).uuid]


def test_only_operators_override_and_their_word_holds_until_it_expires(
    people: World, scene: Scene
) -> None:
    uuid = scene.gpu(0, 3).uuid
    path = f"gpus/{uuid}/override/"
    body = {
        "state": "healthy",
        "reason": "cable reseated",
        "until": (timezone.now() + timedelta(days=1)).isoformat(),
    }
    post(people, "ravi", path, body, 403)
    assert (
        post(people, "ines", path, body | {"reason": " "}, 422)["errors"][0]["pointer"] == "/reason"
    )
    assert (
        post(people, "ines", path, body | {"state": "odd"}, 422)["errors"][0]["pointer"] == "/state"
    )
    assert (
        post(people, "ines", path, body | {"until": "tomorrow"}, 422)["errors"][0]["pointer"]
        == "/until"
    )
    post(people, "ines", "gpus/GPU-nobody/override/", body, 404)
    answer = post(people, "ines", path, body, 200)
    assert answer["override"]["by"] == "ines"
    Gpu.objects.filter(uuid=uuid).update(override_until=scene.now + timedelta(hours=1))
    scene.tick(3, XID_79)
    assert scene.gpu(0, 3).state == "healthy"
    assert not Cordon.objects.exists()
    scene.tick(3601)
    assert scene.gpu(0, 3).override_state == ""


def test_an_operator_takes_a_gpu_out_by_word_and_the_node_closes(
    people: World, scene: Scene
) -> None:
    uuid = scene.gpu(1, 0).uuid
    post(people, "ines", f"gpus/{uuid}/override/", {"state": "unhealthy", "reason": "smells"}, 200)
    assert scene.node(1).health_closed


def test_an_attempt_reports_its_own_nodes_twice_an_hour(people: World, scene: Scene) -> None:
    attempt = scene.run(replicas=2)
    sent = {"kind": "hang", "replica": "main-1", "message": "NCCL time-out", "gpu": 2}
    report = report_from_attempt(attempt, sent, scene.now)
    assert (report.node, report.verdict) == ("gpu-00001", "suspect")
    assert (scene.node(1).health, scene.gpu(1, 2).state) == ("suspect", "suspect")
    assert not Cordon.objects.exists()
    with pytest.raises(InvalidError):
        report_from_attempt(attempt, {"kind": "hang", "replica": "main-7"}, scene.now)
    with pytest.raises(InvalidError):
        report_from_attempt(attempt, {"kind": "hang"}, scene.now)  # which of two?
    with pytest.raises(InvalidError):
        report_from_attempt(attempt, {"kind": "xid", "replica": "main-0"}, scene.now)  # which code?
    with pytest.raises(InvalidError, match="/job"):
        report_from_attempt(attempt, sent | {"job": "job_of_others"}, scene.now)
    own = {"kind": "xid", "code": 79, "replica": 0, "job": attempt.job_id}
    report_from_attempt(attempt, own, scene.now)
    assert scene.node(0).health == "suspect"  # a tenant's word takes nothing out
    with pytest.raises(LimitedError) as refused:
        report_from_attempt(attempt, sent, scene.now)
    assert 3500 < refused.value.extra["retry_after_seconds"] <= 3601
    assert NodeReport.objects.count() == 2


def test_reports_stay_within_the_budget(people: World, scene: Scene) -> None:
    attempts = [scene.run(first_node=index) for index in range(3)]
    verdicts = [
        report_from_attempt(each, {"kind": "other"}, scene.now).verdict for each in attempts
    ]
    assert verdicts == ["suspect", "suspect", "beyond_budget"]
    assert scene.node(2).health == "healthy"
    assert Alert.objects.get(kind="budget_exhausted").node == "gpu-00002"


def test_operators_report_and_a_hardware_xid_from_them_acts(people: World, scene: Scene) -> None:
    path = "clusters/demo/nodes/gpu-00002/reports/"
    body = {"kind": "xid", "code": 79, "gpu": 3, "message": "seen on the console"}
    post(people, "ravi", path, body, 403)
    assert (
        post(people, "ines", path, body | {"kind": "odd"}, 422)["errors"][0]["pointer"] == "/kind"
    )
    seen_by_it = scene.run(first_node=1)
    odd = [True, [], {"a": 1}, "job_nobody", "nonsense", "x" * 400, "job_\x00"]
    for job in odd:
        refused = post(people, "ines", path, body | {"job": job}, 422)
        assert [error["pointer"] for error in refused["errors"]] == ["/job"]
    assert not NodeReport.objects.exists()
    body["job"] = seen_by_it.job_id
    assert post(people, "ines", path, body, 201)["verdict"] == "suspect"
    timeline = get(people, "ines", "clusters/demo/nodes/gpu-00002/timeline/")["results"]
    (line,) = [line for line in timeline if line["kind"] == "report"]
    assert (line["cause"], line["actor"]) == ("reported: xid 79 on GPU 3", "ines")
    assert line["jobs"] == [{"job": seen_by_it.job_id, "how": "possibly", "evicted": False}]
    theirs = get(people, "mei", "clusters/demo/nodes/gpu-00002/timeline/")
    assert seen_by_it.job_id not in str(theirs)
    assert scene.node(2).cordon_wanted
    post(people, "ines", "clusters/demo/nodes/nowhere/reports/", body, 404)


def test_a_kernel_event_acts_within_the_same_transaction(people: World, scene: Scene) -> None:
    attempt = scene.run()
    message = "NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus"
    seen: dict[str, Any] = {
        "reason": "XIDError",
        "message": message,
        "at": scene.now - timedelta(seconds=2),
        "now": scene.now,
    }
    assert note_kernel_event("demo", "gpu-00000", **seen)
    action = HealthEvent.objects.get(kind="action")
    assert (action.signal, action.signal_age_seconds) == ("kernel", 2.0)
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.NODE_FAILURE
    assert not note_kernel_event(
        "demo", "gpu-00001", reason="Rebooted", message="boot", at=scene.now, now=scene.now
    )
    assert not note_kernel_event("demo", "nowhere", **seen)


def test_people_return_nodes_through_burn_in(people: World) -> None:
    scene = make_scene(4, burn_in_image="x")
    path = "clusters/demo/nodes/gpu-00000/return/"
    post(people, "ines", path, {"reason": "why not"}, 409)  # it is well
    attempt = scene.run()
    scene.tick(3, XID_79)
    post(people, "ines", path, {"reason": "swapped"}, 409)  # jobs are leaving
    attempt.placements.update(released_at=scene.now)
    scene.tick(3, XID_79)
    post(people, "ravi", path, {"reason": "swapped"}, 403)
    assert post(people, "ines", path, {}, 422)["errors"][0]["pointer"] == "/reason"
    answer = post(people, "ines", path, {"reason": "swapped"}, 200)
    assert (answer["health"], answer["burn_in"]["phase"]) == ("burn_in", "wanted")
    assert BurnIn.objects.count() == 1


def test_operators_ask_for_a_burn_in_and_jobs_leave_after_their_checkpoints(people: World) -> None:
    scene = make_scene(4, burn_in_image="x")
    path = "clusters/demo/nodes/gpu-00000/burn-in/"
    attempt = scene.run(checkpoint_interval_seconds=600)
    post(people, "ravi", path, {"reason": "slow"}, 403)
    assert post(people, "ines", path, {}, 422)["errors"][0]["pointer"] == "/reason"
    assert post(people, "ines", path, {"reason": "slow"}, 200)["health"] == "draining"
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""  # its next checkpoint is waited for
    assert Eviction.objects.get(attempt=attempt).wait_for_checkpoint
    assert not HealthAction.objects.exists()  # a person's word takes nothing from the rules' budget
    assert Cordon.objects.get().by == "ines"
    scene.tick(15)
    assert not BurnIn.objects.exists()
    Placement.objects.update(released_at=scene.now)
    scene.tick(15)
    assert scene.node(0).health == "burn_in"
    assert post(people, "ines", path, {"reason": "again"}, 409)["code"] == "burn_in_open"
    burn_in = BurnIn.objects.get()
    steps = {step["name"]: step for step in scene.watch(0).checklist}
    assert list(steps) == ["empty", "repaired", "clean", "device_plugin", "burn_in"]
    assert [step["ok"] for step in steps.values()] == [True, True, True, True, None]
    assert steps["repaired"]["told"] == "repaired, says ines"
    note_burn_in(burn_in.pk, phase="passed", now=scene.now, exit_code=0)
    scene.tick(15)
    assert (scene.node(0).health, Cordon.objects.exists(), scene.watch(0).checklist) == (
        "healthy",
        False,
        [],
    )
    HealthPolicy.objects.update(burn_in_image="")
    assert post(people, "ines", path, {"reason": "slow"}, 409)["code"] == "no_burn_in"


def test_a_node_on_its_way_back_shows_each_step_and_the_line_that_restarts_the_plugin(
    people: World, scene: Scene
) -> None:
    scene.tick(3, XID_79)
    Node.objects.filter(name="gpu-00000").update(gpus_allocatable=7)
    scene.tick(15, XID_79)
    answer = get(people, "vera", "clusters/demo/nodes/gpu-00000/health/")
    steps = {step["name"]: step for step in answer["checklist"]}
    assert (steps["empty"]["ok"], steps["repaired"]["ok"], steps["clean"]["ok"]) == (
        True,
        False,
        False,
    )
    plugin = steps["device_plugin"]
    assert plugin["ok"] is False
    assert plugin["told"] == "7 of 8 GPUs allocatable: restart the device plugin"
    assert "delete pod -l app=nvidia-device-plugin-daemonset" in plugin["kubectl"]


def test_with_the_exporter_down_the_page_says_unknown_since_when_and_nothing_is_taken_out(
    people: World, scene: Scene
) -> None:
    scene.run()
    for _ in range(30):
        scene.tick(15, silent={1})
    client = Client()
    client.force_login(people.users["vera"], backend="django.contrib.auth.backends.ModelBackend")
    text = client.get("/nodes/demo/gpu-00001/").content.decode()
    since = scene.watch(1).unknown_since
    assert since is not None
    assert "Its exporter has not answered since" in text
    assert since.strftime("%H:%M") in text
    assert text.count("?") >= 8
    assert (
        "Its exporter has not answered" not in client.get("/nodes/demo/gpu-00000/").content.decode()
    )
    ledger = client.get("/health/?state=unknown").content.decode()
    assert "gpu-00001" in ledger
    assert (scene.node(1).health, scene.node(1).health_closed) == ("healthy", False)
    assert not Cordon.objects.exists()
    assert not HealthAction.objects.exists()


def test_people_clear_a_suspect_node(people: World, scene: Scene) -> None:
    scene.tick(3, {0: {3: {"xid": 92}}})
    answer = post(people, "ines", "clusters/demo/nodes/gpu-00000/return/", {"reason": "known"}, 200)
    assert (answer["health"], answer["gpus"][3]["state"]) == ("healthy", "healthy")


def test_rules_are_changed_by_platform_admins_with_their_version(
    people: World, scene: Scene
) -> None:
    rules = {rule["key"]: rule for rule in get(people, "vera", "health-rules/")["results"]}
    assert rules["temperature"]["parameters"] == {"above_c": 85.0, "seconds": 120.0}
    HealthRule.objects.all().delete()
    client = people.client("admin")
    url = "/api/v1/health-rules/temperature/"
    assert client.get(url).json()["mode"] == "propose"
    body = {"mode": "act", "parameters": {"above_c": 90}}
    assert client.patch(url, body, format="json").status_code == 428
    answer = client.patch(url, body, format="json", headers={"If-Match": '"0"'})
    assert (
        answer.status_code,
        answer.json()["parameters"]["above_c"],
        answer.json()["version"],
    ) == (200, 90, 1)
    assert client.patch(url, body, format="json", headers={"If-Match": '"0"'}).status_code == 412
    ines = people.client("ines").patch(url, body, format="json", headers={"If-Match": "*"})
    assert ines.status_code == 403
    wrong = {"mode": "sometimes", "parameters": {"warmer": 1, "seconds": -3}}
    refused = client.patch(url, wrong, format="json", headers={"If-Match": "*"})
    assert {error["pointer"] for error in refused.json()["errors"]} == {
        "/mode", "/parameters/warmer", "/parameters/seconds",
    }  # fmt: skip
    assert client.get("/api/v1/health-rules/odd/").status_code == 404


def test_a_dry_run_counts_what_a_day_of_samples_and_signals_would_have_done(
    people: World, scene: Scene
) -> None:
    now = timezone.now()
    node = scene.node(0)
    for place in range(6):
        values = {"0": [5.0, 1.0, 91.0 if place == 2 else 60.0], "1": [90.0, 1.0, None]}
        HealthSample.objects.create(
            node=node, at=now - timedelta(minutes=10 * (6 - place)), gpus=values
        )
    url = "health-rules/{}/dry-run/?cluster=demo"
    waste = post(people, "admin", url.format("waste"), {}, 200)
    assert (waste["samples"], waste["found"], waste["findings"][0]["gpu"]) == (6, 1, 0)
    hot = post(people, "admin", url.format("temperature"), {"parameters": {"above_c": 90}}, 200)
    assert hot["found"] == 1
    cold = post(people, "admin", url.format("temperature"), {"parameters": {"above_c": 95}}, 200)
    assert cold["found"] == 0
    for index in range(4):
        HealthEvent.objects.create(
            cluster=scene.cluster, node=f"gpu-0000{index}", at=now - timedelta(minutes=5), kind="state",
            rule="xid", after="unhealthy", cause="XID 79", xid=79,
        )  # fmt: skip
    tried = post(people, "admin", url.format("xid"), {"mode": "act"}, 200)
    assert (tried["found"], tried["taken_out"], tried["beyond_budget"]) == (4, 2, 2)
    assert post(people, "admin", url.format("xid"), {"mode": "propose"}, 200)["taken_out"] == 0
    post(people, "ines", url.format("xid"), {}, 403)


def test_samples_are_written_every_ten_minutes_and_kept_for_a_day(
    people: World, scene: Scene
) -> None:
    for _ in range(41):
        scene.tick(15)
    assert HealthSample.objects.count() == 4
    assert HealthSample.objects.order_by("pk")[0].gpus["0"] == [90.0, 40.0, 60.0]
    scene.tick(86_500)
    assert HealthSample.objects.count() == 4  # the old ones went


def test_a_policy_is_changed_with_errors_that_name_the_field(people: World, scene: Scene) -> None:
    client = people.client("admin")
    url = "/api/v1/clusters/demo/health-policy/"
    answer = client.patch(
        url,
        {"budget_percent": 10, "burn_in_image": "r/b:1", "burn_in_command": ["dcgmi"]},
        format="json",
    )
    assert (
        answer.status_code,
        answer.json()["budget_percent"],
        answer.json()["burn_in_command"],
    ) == (200, 10, ["dcgmi"])
    wrong = client.patch(
        url,
        {"budget_percent": 101, "scrape_seconds": 0, "odd": 1, "burn_in_preset": "none"},
        format="json",
    )
    assert {error["pointer"] for error in wrong.json()["errors"]} == {
        "/budget_percent", "/scrape_seconds", "/odd", "/burn_in_preset",
    }  # fmt: skip
    assert client.patch(url, {"burn_in_image": ""}, format="json").json()["burn_in_image"] is None
    assert people.client("ines").patch(url, {}, format="json").status_code == 403


def test_joining_shows_each_step_with_its_kubectl_line(people: World, scene: Scene) -> None:
    Node.objects.filter(name="gpu-00003").update(driver="535")
    scene.watch(3)
    watch = scene.watch(3)
    watch.state, watch.since = "joining", scene.now
    watch.save()
    scene.tick(15)
    (row,) = get(people, "vera", "clusters/demo/joining/")["results"]
    assert row["node"] == "gpu-00003"
    assert all(step["kubectl"].startswith("kubectl") for step in row["steps"])
