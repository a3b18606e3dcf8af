"""Calls the API of a cluster that does not listen, for tests in stepped time: same verbs, no HTTP."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import Reply, error_reply, parse_path
from scheduler.simcluster.api.verbs import Stream
from scheduler.simcluster.cluster import SimCluster

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


class Direct:
    """GET, POST, PUT, PATCH and DELETE on a cluster in this process."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    def call(
        self, method: str, address: str, body: Any = None, kind: str = "application/json"
    ) -> Reply:
        """One call; refusals come back as replies."""
        parts = urlsplit(address)
        found = parse_path(parts.path.strip("/").split("/"), self.cluster.world.registry)
        assert found is not None, address
        found.method, found.query = method, dict(parse_qsl(parts.query))
        found.headers = {"Content-Type": kind, "User-Agent": "test/1"}
        found.raw = b"" if body is None else json.dumps(body).encode()
        try:
            reply = self.cluster.verbs.run(found)
        except ApiError as error:
            reply = error_reply(error)
        self.cluster.world.timers.settle()
        assert not isinstance(reply, Stream), "streams need the HTTP door"
        return reply

    def ok(
        self, method: str, address: str, body: Any = None, kind: str = "application/json"
    ) -> Json:
        """One call that must work; its JSON."""
        reply = self.call(method, address, body, kind)
        assert reply.status < 300, reply.body
        found: Json = json.loads(reply.body or b"{}")
        return found

    def refused(
        self, method: str, address: str, body: Any = None, kind: str = "application/json"
    ) -> Json:
        """One call that must be refused; its Status."""
        reply = self.call(method, address, body, kind)
        assert reply.status >= 400, reply.body
        found: Json = json.loads(reply.body)
        return found

    def pod(self, name: str, namespace: str = "default") -> Json:
        """A pod."""
        return self.ok("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def node(self, name: str) -> Json:
        """A node."""
        return self.ok("GET", f"/api/v1/nodes/{name}")

    def gone(self, name: str) -> bool:
        """Whether a pod is no longer there."""
        return self.call("GET", f"{PODS}/{name}").status == 404

    def run_pod(
        self, name: str, node: str, *, gpus: int = 8, spec: Json | None = None, **notes: str
    ) -> Json:
        """Creates a pod with annotations and binds it to a node."""
        self.ok("POST", PODS, pod(name, gpus=gpus, spec=spec, **notes))
        self.bind(name, node)
        return self.pod(name)

    def bind(self, name: str, node: str) -> None:
        """Binds a pod."""
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.ok("POST", f"{PODS}/{name}/binding", target)

    def events(self, name: str) -> list[str]:
        """The reasons of the events about an object, in order."""
        listed = self.ok("GET", "/api/v1/events")["items"]
        return [item["reason"] for item in listed if item["involvedObject"]["name"] == name]


def pod(name: str, *, gpus: int = 8, spec: Json | None = None, **notes: str) -> Json:
    """A pod of one container; notes become sim.muster.dev annotations (`_` for `-`)."""
    annotations = {f"sim.muster.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    container: Json = {"name": "main", "image": "registry.example/train:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    body = {"restartPolicy": "Never", "schedulerName": "muster", "containers": [container]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": body | (spec or {})}


def condition(body: Json, type_: str) -> Json | None:
    """A condition of an object by type."""
    found = body["status"].get("conditions") or []
    return next((item for item in found if item["type"] == type_), None)


def ended(body: Json) -> Json:
    """The terminated state of a pod's only container."""
    state: Json = body["status"]["containerStatuses"][0]["state"]
    return state["terminated"]  # type: ignore[no-any-return]
