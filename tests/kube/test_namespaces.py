"""A tenant's namespace, its quota and its limit range are applied, and their drift is told."""

import pytest

from scheduler.kube.errors import Forbidden
from scheduler.kube.manifests import AttemptName
from scheduler.kube.namespaces import (
    NamespaceWanted,
    apply_namespace,
    limit_range_manifest,
    namespace_manifest,
    policy_manifest,
    quota_manifest,
    read_drift,
)
from scheduler.kube.services import (
    apply_object,
    make_object,
    pull_secret_manifest,
    remove_attempt_objects,
    secret_manifest,
    service_manifest,
)
from tests.kube.replay import EXCHANGES, json_answer, scripted_server

GPU = "nvidia.com/gpu"
WANTED = NamespaceWanted("muster-a", "a", "restricted", {GPU: 512}, (GPU, "nvidia.com/mig-1g.10gb"))
ATTEMPT = AttemptName("a", "muster-a", "job_01J", "jabcdefgh", 2)


async def test_all_objects_are_applied_by_force() -> None:
    answer = json_answer({"metadata": {"uid": "u"}})
    async with scripted_server(*[answer] * 4) as (script, connection):
        await apply_namespace(connection, WANTED)
    assert [c.path for c in script.calls] == [
        "/api/v1/namespaces/muster-a",
        "/api/v1/namespaces/muster-a/resourcequotas/muster",
        "/api/v1/namespaces/muster-a/limitranges/muster",
        "/apis/networking.k8s.io/v1/namespaces/muster-a/networkpolicies/muster",
    ]
    for call in script.calls:
        assert call.headers["Content-Type"] == "application/apply-patch+yaml"
        assert call.query == {"fieldManager": "muster", "force": "true"}


def test_request_has_the_shape_of_the_recorded_apply() -> None:
    recorded = EXCHANGES["server-side apply, forced"]["request"]
    assert recorded["contentType"] == "application/apply-patch+yaml"
    assert recorded["query"]["force"] == "true"


def test_quota_limits_requests_only() -> None:
    assert quota_manifest(WANTED)["spec"] == {"hard": {"requests.nvidia.com/gpu": "512"}}


def test_limit_range_gives_nothing_to_who_asks_for_nothing() -> None:
    (limit,) = limit_range_manifest(WANTED)["spec"]["limits"]
    assert "max" not in limit
    assert limit["default"] == limit["defaultRequest"] == dict.fromkeys(WANTED.devices, "0")


def test_namespace_enforces_pod_security() -> None:
    labels = namespace_manifest(WANTED)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["muster.dev/tenant"] == "a"


async def test_drift_is_told_in_words() -> None:
    labels = namespace_manifest(WANTED)["metadata"]["labels"]
    good = json_answer({"metadata": {"labels": {**labels, "other": "x"}}})
    bad = json_answer({"metadata": {"labels": {**labels, "muster.dev/tenant": "b"}}})
    same = json_answer({"spec": {"hard": {"requests.nvidia.com/gpu": "512"}}})
    more = json_answer({"spec": {"hard": {"requests.nvidia.com/gpu": "600", "pods": "10"}}})
    limits = json_answer(limit_range_manifest(WANTED))
    policy = json_answer(policy_manifest(WANTED))
    open_to_all = policy_manifest(WANTED)
    open_to_all["spec"]["ingress"] = [{}]
    async with scripted_server(
        *(good, same, limits, policy),
        *(bad, more, limits, json_answer(open_to_all)),
        "namespace missing",
    ) as (_, connection):
        assert await read_drift(connection, WANTED) == ()
        label, pods, gpus, network = await read_drift(connection, WANTED)
        (missing,) = await read_drift(connection, WANTED)
    assert "'b', wanted 'a'" in label
    assert "pods" in pods
    assert "'600', wanted '512'" in gpus
    assert network == "network policy ingress: changed"
    assert "not found" in missing


def test_pods_reach_each_other_dns_and_muster_and_nothing_else_in_the_cluster() -> None:
    spec = policy_manifest(WANTED)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"from": [{"podSelector": {}}]}]
    each_other, dns, muster, outside = spec["egress"]
    assert each_other == {"to": [{"podSelector": {}}]}
    assert {p["port"] for p in dns["ports"]} == {53}
    (to,) = muster["to"]
    assert to["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "web"
    assert "169.254.0.0/16" in outside["to"][0]["ipBlock"]["except"]


async def test_missing_right_is_not_drift() -> None:
    async with scripted_server("no role") as (_, connection):
        with pytest.raises(Forbidden):
            await read_drift(connection, WANTED)


def test_service_is_headless_and_early() -> None:
    service = service_manifest(ATTEMPT, 29500)
    assert service["metadata"]["name"] == "jabcdefgh-2"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"muster.dev/job": "job_01J", "muster.dev/attempt": "2"}


def test_secrets_are_encoded() -> None:
    assert secret_manifest(ATTEMPT, {"KEY": "ü"})["data"] == {"KEY": "w7w="}
    pull = pull_secret_manifest("muster-a", "regcred", "{}")
    assert pull["type"] == "kubernetes.io/dockerconfigjson"
    assert pull["data"] == {".dockerconfigjson": "e30="}


async def test_object_is_applied_and_its_uid_returned() -> None:
    async with scripted_server("headless service") as (script, connection):
        uid = await apply_object(connection, "services", service_manifest(ATTEMPT, 29500))
    assert uid == EXCHANGES["headless service"]["response"]["body"]["metadata"]["uid"]
    assert script.calls[0].path == "/api/v1/namespaces/muster-a/services/jabcdefgh-2"


async def test_what_is_made_already_is_applied() -> None:
    async with scripted_server("create node again", "headless service") as (script, connection):
        await make_object(connection, "services", service_manifest(ATTEMPT, 29500))
    assert [(c.method, c.path) for c in script.calls] == [
        ("POST", "/api/v1/namespaces/muster-a/services"),
        ("PATCH", "/api/v1/namespaces/muster-a/services/jabcdefgh-2"),
    ]


async def test_only_our_objects_are_removed() -> None:
    ours = json_answer({"metadata": {"uid": "u1", "labels": {"muster.dev/attempt": "2"}}})
    theirs = json_answer({"metadata": {"uid": "u2", "labels": {}}})
    async with scripted_server(ours, json_answer({}), theirs) as (script, connection):
        await remove_attempt_objects(connection, "muster-a", "jabcdefgh-2", {})
    assert [(c.method, c.path.split("/")[5]) for c in script.calls] == [
        ("GET", "services"),
        ("DELETE", "services"),
        ("GET", "secrets"),
    ]
    assert script.calls[1].body["preconditions"] == {"uid": "u1"}


async def test_whose_an_object_is_need_not_be_asked_where_its_uid_is_known() -> None:
    known = {"services": "u1", "secrets": "u2"}
    async with scripted_server(json_answer({}), json_answer({})) as (script, connection):
        await remove_attempt_objects(connection, "muster-a", "jabcdefgh-2", known)
    assert [c.method for c in script.calls] == ["DELETE", "DELETE"]
    assert [c.body["preconditions"]["uid"] for c in script.calls] == ["u1", "u2"]


async def test_removing_what_is_gone_is_done() -> None:
    async with scripted_server("gone", "gone") as (script, connection):
        await remove_attempt_objects(connection, "muster-a", "jabcdefgh-2", {})
    assert len(script.calls) == 2
