"""The API's behaviour beyond the recorded story."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from scheduler.simcluster.clock import RunningClock, SteppedClock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import Profile, uniform_profile
from tests.simcluster.direct import PODS, Direct, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
Json = dict[str, Any]


def config_map(name: str, **extra: Any) -> Json:
    """A config map."""
    return {"metadata": {"name": name, **extra}, "data": {"a": "1"}}


def test_pages_show_the_list_as_it_was_when_the_first_was_read(api: Direct) -> None:
    for index in range(5):
        api.ok("POST", CONFIG_MAPS, config_map(f"c{index}"))
    first = api.ok("GET", f"{CONFIG_MAPS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    api.ok("DELETE", f"{CONFIG_MAPS}/c3")
    api.ok("POST", CONFIG_MAPS, config_map("c2b"))
    token = first["metadata"]["continue"]
    rest = api.ok("GET", f"{CONFIG_MAPS}?limit=10&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c3", "c4"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_continue_token_of_dropped_history_is_410(api: Direct) -> None:
    for index in range(3):
        api.ok("POST", CONFIG_MAPS, config_map(f"c{index}"))
    token = api.ok("GET", f"{CONFIG_MAPS}?limit=1")["metadata"]["continue"]
    api.ok("POST", CONFIG_MAPS, config_map("later"))
    api.cluster.world.store.compact(lists_too=True)
    status = api.refused("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_dry_run_stores_nothing(api: Direct) -> None:
    api.ok("POST", f"{PODS}?dryRun=All", pod("dry"))
    assert api.gone("dry")
    api.ok("POST", PODS, pod("wet"))
    api.ok("DELETE", f"{PODS}/wet?dryRun=All")
    assert not api.gone("wet")


def test_generated_names_differ_and_keep_their_stem(api: Direct) -> None:
    body = config_map("")
    body["metadata"] = {"generateName": "run-"}
    names = {
        api.ok("POST", CONFIG_MAPS, json.loads(json.dumps(body)))["metadata"]["name"]
        for _ in range(5)
    }
    assert len(names) == 5
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


def test_dependents_go_with_their_owner(api: Direct) -> None:
    owner = api.ok("POST", CONFIG_MAPS, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    api.ok("POST", CONFIG_MAPS, config_map("child", ownerReferences=[reference]))
    api.ok("DELETE", f"{CONFIG_MAPS}/owner")
    api.cluster.advance(1)
    assert api.call("GET", f"{CONFIG_MAPS}/child").status == 404


def test_orphaned_dependents_stay(api: Direct) -> None:
    owner = api.ok("POST", CONFIG_MAPS, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    api.ok("POST", CONFIG_MAPS, config_map("child", ownerReferences=[reference]))
    api.ok("DELETE", f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Orphan"})
    api.cluster.advance(5)
    child = api.ok("GET", f"{CONFIG_MAPS}/child")
    assert not child["metadata"].get("ownerReferences")
    assert api.call("GET", f"{CONFIG_MAPS}/owner").status == 404


def test_foreground_deletion_waits_for_dependents(api: Direct) -> None:
    owner = api.ok("POST", CONFIG_MAPS, config_map("owner"))
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True,
    }  # fmt: skip
    api.ok(
        "POST",
        CONFIG_MAPS,
        config_map("child", ownerReferences=[reference], finalizers=["x.dev/hold"]),
    )
    api.ok("DELETE", f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
    api.cluster.advance(5)
    assert api.ok("GET", f"{CONFIG_MAPS}/owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    patch = {"metadata": {"finalizers": None}}
    api.ok("PATCH", f"{CONFIG_MAPS}/child", patch, "application/merge-patch+json")
    api.cluster.advance(1)
    assert api.call("GET", f"{CONFIG_MAPS}/owner").status == 404


def test_finalizer_holds_an_object_until_it_is_taken_off(api: Direct) -> None:
    api.ok("POST", CONFIG_MAPS, config_map("held", finalizers=["x.dev/hold"]))
    api.ok("DELETE", f"{CONFIG_MAPS}/held")
    assert "deletionTimestamp" in api.ok("GET", f"{CONFIG_MAPS}/held")["metadata"]
    patch = [{"op": "remove", "path": "/metadata/finalizers"}]
    api.ok("PATCH", f"{CONFIG_MAPS}/held", patch, "application/json-patch+json")
    assert api.call("GET", f"{CONFIG_MAPS}/held").status == 404


def test_namespace_goes_when_its_contents_have(api: Direct) -> None:
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    api.ok(
        "POST", "/api/v1/namespaces/team/pods", pod("a", run_seconds="forever", sigterm_seconds="3")
    )
    target = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "gpu-00000"}}
    api.ok("POST", "/api/v1/namespaces/team/pods/a/binding", target)
    api.cluster.advance(2)
    api.ok("DELETE", "/api/v1/namespaces/team")
    api.cluster.advance(3)
    assert api.ok("GET", "/api/v1/namespaces/team")["status"]["phase"] == "Terminating"
    refusal = api.refused("POST", "/api/v1/namespaces/team/configmaps", config_map("late"))
    assert refusal["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    api.cluster.advance(10)
    assert api.call("GET", "/api/v1/namespaces/team").status == 404
    assert api.call("GET", "/api/v1/namespaces/team/pods/a").status == 404


def quota(api: Direct, **hard: str) -> None:
    """A quota in the default namespace."""
    spec = {"hard": {key.replace("_", "."): value for key, value in hard.items()}}
    api.ok(
        "POST",
        "/api/v1/namespaces/default/resourcequotas",
        {"metadata": {"name": "q"}, "spec": spec},
    )
    api.cluster.advance(0.1)


def used(api: Direct) -> Json:
    """The quota's used amounts."""
    return api.ok("GET", "/api/v1/namespaces/default/resourcequotas/q")["status"]["used"]  # type: ignore[no-any-return]


def test_quota_is_charged_refused_and_given_back(api: Direct) -> None:
    spec = {"hard": {"requests.nvidia.com/gpu": "8", "pods": "5"}}
    api.ok(
        "POST",
        "/api/v1/namespaces/default/resourcequotas",
        {"metadata": {"name": "q"}, "spec": spec},
    )
    api.cluster.advance(0.1)
    api.run_pod("a", "gpu-00000", run_seconds="5")
    assert used(api) == {"requests.nvidia.com/gpu": "8", "pods": "1"}
    refusal = api.refused("POST", PODS, pod("b", gpus=1))
    assert refusal["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
    )
    api.cluster.advance(10)
    assert used(api) == {"requests.nvidia.com/gpu": "0", "pods": "0"}


def test_quota_on_cpu_demands_that_pods_ask_for_cpu(api: Direct) -> None:
    quota(api, requests_cpu="10")
    assert "must specify requests.cpu for: main" in api.refused("POST", PODS, pod("a"))["message"]


def test_limit_range_gives_defaults_and_refuses_too_much(api: Direct) -> None:
    limits = [{"type": "Container", "max": {"nvidia.com/gpu": "4"}, "default": {"nvidia.com/gpu": "0"},
               "defaultRequest": {"nvidia.com/gpu": "0"}}]  # fmt: skip
    api.ok(
        "POST", "/api/v1/namespaces/default/limitranges",
        {"metadata": {"name": "l"}, "spec": {"limits": limits}},
    )  # fmt: skip
    made = api.ok("POST", PODS, pod("none", gpus=0))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "0"}
    assert api.refused("POST", PODS, pod("much", gpus=8))["code"] == 403


def test_restricted_namespace_refuses_and_takes_pods(api: Direct) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "safe", "labels": labels}})
    refusal = api.refused("POST", "/api/v1/namespaces/safe/pods", pod("a"))
    assert refusal["message"] == (
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": '
        'allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "
        '"main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or '
        'container "main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or '
        'container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")'
    )
    body = pod("b")
    body["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    body["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    api.ok("POST", "/api/v1/namespaces/safe/pods", body)


def test_priority_class_sets_priority_and_an_unknown_one_is_refused(api: Direct) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.ok(
        "POST",
        classes,
        {"metadata": {"name": "muster"}, "value": 900000, "preemptionPolicy": "Never"},
    )
    made = api.ok("POST", PODS, pod("a", spec={"priorityClassName": "muster"}))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (900000, "Never")
    refusal = api.refused("POST", PODS, pod("b", spec={"priorityClassName": "nope"}))
    assert "no PriorityClass with name nope was found" in refusal["message"]


def test_default_scheduler_honours_affinity_and_explains_itself(api: Direct) -> None:
    terms = [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-00002"]}
            ]
        }
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    spec = {"schedulerName": "default-scheduler", "affinity": affinity}
    api.ok("POST", PODS, pod("a", spec=spec, run_seconds="forever"))
    api.ok("POST", PODS, pod("b", spec=spec, run_seconds="forever"))
    api.cluster.advance(3)
    assert api.pod("a")["spec"]["nodeName"] == "gpu-00002"
    waiting = api.pod("b")["status"]["conditions"][0]
    assert waiting["reason"] == "Unschedulable"
    assert "1 Insufficient nvidia.com/gpu" in waiting["message"]
    assert "3 node(s) didn't match Pod's node affinity/selector" in waiting["message"]
    api.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 1})
    api.cluster.advance(10)
    assert api.pod("b")["spec"]["nodeName"] == "gpu-00002"


def test_claims_are_bound_at_once_or_with_their_first_pod(api: Direct) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    for name, class_ in (("shared", "standard"), ("near", "local")):
        request = {"accessModes": ["ReadWriteOnce"], "storageClassName": class_,
                   "resources": {"requests": {"storage": "10Gi"}}}  # fmt: skip
        api.ok("POST", claims, {"metadata": {"name": name}, "spec": request})
    api.cluster.advance(1)
    assert api.ok("GET", f"{claims}/shared")["status"]["phase"] == "Bound"
    assert api.ok("GET", f"{claims}/near")["status"]["phase"] == "Pending"
    volume = {"name": "near", "persistentVolumeClaim": {"claimName": "near"}}
    api.ok("POST", PODS, pod("a", spec={"schedulerName": "default-scheduler", "volumes": [volume]}))
    api.cluster.advance(5)
    assert api.ok("GET", f"{claims}/near")["status"]["phase"] == "Bound"
    assert api.pod("a")["status"]["phase"] == "Running"


def test_wrong_types_are_400_and_name_the_field(api: Direct) -> None:
    body = pod("a")
    body["spec"]["terminationGracePeriodSeconds"] = "soon"
    refusal = api.refused("POST", PODS, body)
    assert refusal["code"] == 400
    assert "spec.terminationGracePeriodSeconds of type int64" in refusal["message"]


def test_strategic_merge_deletes_list_items_by_key(api: Direct) -> None:
    service = {
        "metadata": {"name": "s"},
        "spec": {
            "clusterIP": "None",
            "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
        },
    }
    address = "/api/v1/namespaces/default/services"
    api.ok("POST", address, service)
    patch = {"spec": {"ports": [{"port": 1, "$patch": "delete"}, {"port": 3, "name": "c"}]}}
    patched = api.ok("PATCH", f"{address}/s", patch, "application/strategic-merge-patch+json")
    assert sorted(port["port"] for port in patched["spec"]["ports"]) == [2, 3]


def test_apply_creates_shares_and_drops_fields(api: Direct) -> None:
    address = f"{CONFIG_MAPS}/shared"
    kind = "application/apply-patch+yaml"
    one = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shared"},
        "data": {"a": "1", "b": "1"},
    }
    api.ok("PATCH", f"{address}?fieldManager=one", one, kind)
    two = {**one, "data": {"a": "1", "c": "2"}}
    api.ok("PATCH", f"{address}?fieldManager=two", two, kind)
    merged = api.ok("PATCH", f"{address}?fieldManager=one", {**one, "data": {}}, kind)
    assert merged["data"] == {"a": "1", "c": "2"}
    managers = {entry["manager"] for entry in merged["metadata"]["managedFields"]}
    assert managers >= {"two"}
    conflict = api.refused(
        "PATCH", f"{address}?fieldManager=one", {**one, "data": {"c": "3"}}, kind
    )
    assert conflict["reason"] == "Conflict"
    assert conflict["details"]["causes"][0]["field"] == ".data.c"


def test_pod_security_and_names_are_checked_before_anything_is_stored(api: Direct) -> None:
    before = api.cluster.world.store.version
    for body in (
        {"metadata": {"name": "A"}},
        {"metadata": {"name": "a", "labels": {"x": "bad value"}}},
    ):
        assert api.refused("POST", CONFIG_MAPS, body)["code"] == 422
    assert api.cluster.world.store.version == before


async def watch_lines(session: aiohttp.ClientSession, address: str, count: int) -> list[Json]:
    """The first `count` events of a watch."""
    lines: list[Json] = []
    async with session.get(address) as response:
        assert response.status == 200
        async for line in response.content:
            lines.append(json.loads(line))
            if len(lines) == count:
                break
    return lines


@pytest.fixture
async def sim():
    """Two nodes in stepped time, listening."""
    async with SimCluster(uniform_profile(2), clock=SteppedClock(), seed=1) as cluster:
        yield cluster


async def test_watch_with_a_selector_sees_objects_enter_and_leave_it(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        await session.post(base, json=pod("a"))
        version = sim.world.store.version
        address = f"{base}?watch=1&labelSelector=in%3Dyes&resourceVersion={version}"
        reading = asyncio.create_task(watch_lines(session, address, 3))
        await asyncio.sleep(0.1)
        headers = {"Content-Type": "application/merge-patch+json"}
        for value in ("yes", "yes", "no"):
            patch = {
                "metadata": {
                    "labels": {"in": value},
                    "annotations": {"n": str(sim.world.store.version)},
                }
            }
            await session.patch(f"{base}/a", json=patch, headers=headers)
        lines = await asyncio.wait_for(reading, 10)
    assert [line["type"] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]


async def test_expired_watch_gets_one_error_event_and_a_storm_ends_open_ones(
    sim: SimCluster,
) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        version = sim.world.store.version
        reading = asyncio.create_task(
            watch_lines(session, f"{base}?watch=1&resourceVersion={version}", 1)
        )
        await asyncio.sleep(0.1)
        await session.post(base, json=pod("a"))
        await asyncio.wait_for(reading, 10)
        open_one = asyncio.create_task(
            watch_lines(session, f"{base}?watch=1&resourceVersion={sim.world.store.version}", 1)
        )
        await asyncio.sleep(0.1)
        async with session.post(
            f"{sim.url}/_sim/faults", json={"kind": "watch_expire"}
        ) as response:
            assert response.status == 201
        assert (await asyncio.wait_for(open_one, 10))[0]["object"]["code"] == 410
        late = await watch_lines(session, f"{base}?watch=1&resourceVersion={version}", 1)
    assert late[0]["type"] == "ERROR"
    assert late[0]["object"]["reason"] == "Expired"


async def test_discovery_in_one_answer_names_what_the_separate_ones_do(sim: SimCluster) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    async with aiohttp.ClientSession() as session:
        for path, single in (("/api", "/api/v1"), ("/apis", "/apis/policy/v1")):
            async with session.get(sim.url + path, headers={"Accept": accept}) as response:
                assert "as=APIGroupDiscoveryList" in response.headers["Content-Type"]
                groups = {
                    item["metadata"]["name"]: item for item in (await response.json())["items"]
                }
            async with session.get(sim.url + single) as response:
                listed = {entry["name"] for entry in (await response.json())["resources"]}
            resources = groups["" if path == "/api" else "policy"]["versions"][0]["resources"]
            names = {entry["resource"] for entry in resources}
            subresources = {
                f"{entry['resource']}/{item['subresource']}"
                for entry in resources
                for item in entry.get("subresources", ())
            }
            assert names | subresources == listed


async def test_metadata_alone_is_given_when_asked_for(sim: SimCluster) -> None:
    headers = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{sim.url}/api/v1/nodes") as response:
            listed = await response.json()
        assert listed["kind"] == "PartialObjectMetadataList"
        assert [set(item) for item in listed["items"]] == [{"metadata"}] * 2
        event = (await watch_lines(session, f"{sim.url}/api/v1/nodes?watch=1", 1))[0]
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "status" not in event["object"]


async def test_watch_of_a_client_that_has_gone_is_closed(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    session = aiohttp.ClientSession()
    response = await session.get(f"{base}?watch=1")
    assert response.status == 200
    assert len(sim.verbs.watches) == 1
    await session.close()
    async with asyncio.timeout(10):
        while sim.verbs.watches:  # noqa: ASYNC110 - the server ends it
            await asyncio.sleep(0.01)


async def test_roles_are_enforced_when_switched_on() -> None:
    options = Options(rbac=True)
    async with SimCluster(Profile("empty"), clock=RunningClock(), options=options) as sim:
        admin = {"Authorization": f"Bearer {sim.admin_token}"}
        user = {"Authorization": "Bearer u"}
        async with aiohttp.ClientSession() as session:
            body = {"token": "u", "user": "sched"}
            await session.post(f"{sim.url}/_sim/tokens", json=body)
            nodes = f"{sim.url}/api/v1/nodes"
            async with session.get(nodes, headers=user) as response:
                assert response.status == 403
            rbac = f"{sim.url}/apis/rbac.authorization.k8s.io/v1"
            role = {
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
            }
            binding = {
                "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "sched"}],
                "roleRef": {"kind": "ClusterRole", "name": "r"},
            }  # fmt: skip
            await session.post(f"{rbac}/clusterroles", json=role, headers=admin)
            await session.post(f"{rbac}/clusterrolebindings", json=binding, headers=admin)
            async with session.get(nodes, headers=user) as response:
                assert response.status == 200
            async with session.get(f"{nodes}?watch=1&timeoutSeconds=1", headers=user) as response:
                assert response.status == 403


async def test_stepped_clock_is_moved_over_the_control_api(sim: SimCluster) -> None:
    base = f"{sim.url}/api/v1/namespaces/default/pods"
    async with aiohttp.ClientSession() as session:
        await session.post(base, json=pod("a", run_seconds="100"))
        target = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "gpu-00000"}}
        await session.post(f"{base}/a/binding", json=target)
        async with session.post(f"{sim.url}/_sim/clock", json={"seconds": 102}) as response:
            assert response.status == 200
        async with session.get(f"{base}/a") as response:
            assert (await response.json())["status"]["phase"] == "Succeeded"
        async with session.post(f"{sim.url}/_sim/clock", json={"seconds": -1}) as response:
            assert response.status == 400
