"""Wrong bodies: whatever is sent, the server refuses it in its own words or takes it, and lives on."""

import copy
import json
from random import Random
from typing import Any

import pytest

from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.simcluster.direct import PODS, Direct, pod

Json = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "x", "a b", "é", [], {}, [None], [1], {"a": None}, "0.5", "1Gi",
)  # fmt: skip
RICH_POD: Json = {
    "metadata": {
        "name": "rich", "labels": {"a": "b"}, "finalizers": ["x.dev/a"],
        "annotations": {"sim.muster.dev/run-seconds": "5"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
    },
    "spec": {
        "nodeName": "gpu-00001", "restartPolicy": "OnFailure", "activeDeadlineSeconds": 9,
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}}},
        "initContainers": [{"name": "i", "image": "i:1"}],
        "imagePullSecrets": [{"name": "s"}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [{
            "name": "main", "image": "i:1", "command": ["a"], "ports": [{"containerPort": 1}],
            "env": [{"name": "RANK", "value": "1"}, {"name": "T", "valueFrom": {
                "secretKeyRef": {"name": "s", "key": "k"}}}],
            "envFrom": [{"secretRef": {"name": "s"}}],
            "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}, "requests": {"cpu": "500m"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "securityContext": {"capabilities": {"drop": ["ALL"]}, "privileged": False},
        }],
    },
}  # fmt: skip
BODIES: dict[str, tuple[str, Json]] = {
    "pod": (PODS, RICH_POD),
    "scheduled pod": (
        PODS,
        {**RICH_POD, "spec": {**RICH_POD["spec"], "nodeName": "", "schedulerName": "default-scheduler"}},
    ),
    "node": ("/api/v1/nodes", {
        "metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }),
    "quota": (f"{NAMESPACE}/resourcequotas", {
        "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["NotTerminating"]},
    }),
    "limits": (f"{NAMESPACE}/limitranges", {
        "metadata": {"name": "l"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}}]},
    }),
    "service": (f"{NAMESPACE}/services", {
        "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "name": "a"}], "selector": {"a": "b"}},
    }),
    "secret": (f"{NAMESPACE}/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}, "type": "Opaque"}),
    "budget": ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {
        "metadata": {"name": "b"}, "spec": {"minAvailable": "50%", "selector": {
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
    }),
    "claim": (f"{NAMESPACE}/persistentvolumeclaims", {
        "metadata": {"name": "c"}, "spec": {"storageClassName": "standard", "accessModes": ["ReadWriteOnce"],
                                            "resources": {"requests": {"storage": "1Gi"}}},
    }),
    "binding": (f"{PODS}/p/binding", {
        "metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "gpu-00000"},
    }),
    "eviction": (f"{PODS}/p/eviction", {
        "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 3, "preconditions": {"uid": "u"}},
    }),
    "role binding": ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "u"}],
        "roleRef": {"kind": "ClusterRole", "name": "r"},
    }),
    "definition": ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "metadata": {"name": "things.x.dev"}, "spec": {
            "group": "x.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "required": ["a"],
                                                          "properties": {"a": {"type": "integer"}}}}}}}]},
    }),
    "lease": ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3},
    }),
    "event": (f"{NAMESPACE}/events", {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }),
    "review": ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }),
}  # fmt: skip


def spoil(body: Json, draw: Random) -> Json:
    """The body with one to three places changed, dropped or added."""
    spoilt = copy.deepcopy(body)
    for _ in range(draw.randint(1, 3)):
        place: Any = spoilt
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(place[key], dict | list) and draw.random() < 0.75:
                place = place[key]
                continue
            if draw.random() < 0.3:
                del place[key]
            else:
                place[key] = copy.deepcopy(draw.choice(WRONG))
            break
    return spoilt


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_spoilt_bodies_are_refused_or_taken_and_never_break_the_server(kind: str) -> None:
    address, body = BODIES[kind]
    draw = Random(f"spoil {kind}")
    api = Direct(SimCluster(uniform_profile(2), clock=SteppedClock(), seed=1))
    refused = 0
    for number in range(150):
        api.ok("POST", PODS, pod("p", run_seconds="forever"))
        spoilt = spoil(body, draw)
        reply = api.call("POST", address, spoilt)
        assert reply.status in (200, 201, 400, 403, 404, 409, 422, 429), (number, reply.body)
        refused += reply.status >= 400
        api.call("GET", f"{address}")
        api.cluster.advance(7)
        clear(api)
    assert refused > 10


def clear(api: Direct) -> None:
    """Removes what the last round made, finalizers or not."""
    for collection in api.cluster.world.store.collections():
        if collection.resource.kind in ("Namespace", "Node", "Lease", "StorageClass", "Event"):
            continue
        for key in list(collection.objects):
            api.cluster.world.store.remove(collection.resource, key)
    if api.call("GET", "/api/v1/nodes/n").status == 200:
        api.ok("DELETE", "/api/v1/nodes/n")
    api.cluster.advance(1)


PATCHES = (
    "application/json-patch+json", "application/merge-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml",
)  # fmt: skip


@pytest.mark.parametrize("kind", PATCHES)
def test_spoilt_patches_are_refused_or_taken_and_never_break_the_server(kind: str) -> None:
    draw = Random(f"patch {kind}")
    api = Direct(SimCluster(uniform_profile(2), clock=SteppedClock(), seed=1))
    bases: list[Any] = [
        {
            "spec": {"containers": [{"name": "main", "image": "i:2"}]},
            "metadata": {"labels": {"a": "b"}},
        },
        {
            "metadata": {"name": "p", "finalizers": ["x.dev/a"]},
            "spec": {"tolerations": [{"key": "a"}]},
        },
    ]
    if kind.startswith("application/json-patch"):
        bases = [{"ops": [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
                          {"op": "replace", "path": "/spec/containers/0/image", "value": "i:3"}]}]  # fmt: skip
    for _ in range(200):
        api.ok("POST", PODS, pod("p", run_seconds="forever"))
        spoilt: Any = spoil(draw.choice(bases), draw)
        if kind.startswith("application/json-patch"):
            spoilt = spoilt.get("ops")
        reply = api.call("PATCH", f"{PODS}/p?fieldManager=x", spoilt, kind)
        assert reply.status in (200, 400, 409, 422), reply.body
        if reply.status == 200:
            assert json.loads(reply.body)["metadata"]["name"] == "p"
        api.cluster.advance(1)
        clear(api)
