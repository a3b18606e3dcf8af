"""What the server says of itself: versions, groups, resources, health."""

from typing import Any

from scheduler.simcluster.api.request import Reply, json_reply
from scheduler.simcluster.store.resources import Registry, ResourceType
from scheduler.simcluster.store.store import encode

Json = dict[str, Any]

VERSION = {
    "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
    "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.0+sim",
    "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64",
}  # fmt: skip
AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_HEALTH = ("/healthz", "/livez", "/readyz")


class Discovery:
    """Answers the paths that name no object."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(self, path: str, server: str, accept: str = "") -> Reply | None:
        """The reply for a path, or None when there is nothing. `server` is host and port."""
        path = path.rstrip("/") or "/"
        if path in ("/api", "/apis") and AGGREGATED in accept:
            return self._aggregated(core=path == "/api")
        if path in _HEALTH or path.startswith(tuple(f"{item}/" for item in _HEALTH)):
            return Reply(200, b"ok", "text/plain; charset=utf-8")
        if path == "/version":
            return json_reply(200, VERSION)
        if path == "/":
            return json_reply(200, {"paths": self._paths()})
        if path == "/api":
            return json_reply(200, _api_versions(server))
        if path == "/apis":
            return json_reply(200, self._group_list())
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._resources("", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            return self._group(parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return self._resources(parts[1], parts[2])
        return None

    def _aggregated(self, *, core: bool) -> Reply:
        """All groups with all their resources in one answer, which spares kubectl many calls."""
        groups = {"": ["v1"]} if core else dict(sorted(self._registry.groups().items()))
        items = [
            {
                "metadata": {"name": group},
                "versions": [
                    {"version": version, "freshness": "Current", "resources": [
                        _aggregated_entry(r) for r in self._registry.of_group(group, version)]}
                    for version in versions
                ],
            }
            for group, versions in groups.items()
        ]  # fmt: skip
        body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {}, "items": items}  # fmt: skip
        return Reply(200, encode(body), f"application/json;{AGGREGATED}")

    def _paths(self) -> list[str]:
        groups = [
            f"/apis/{group}/{version}"
            for group, versions in self._registry.groups().items()
            for version in versions
        ]
        return ["/api", "/api/v1", "/apis", *sorted(groups), "/healthz", "/livez",
                "/openapi/v2", "/openapi/v3", "/readyz", "/version"]  # fmt: skip

    def _group_list(self) -> Json:
        groups = [
            _group_entry(name, versions)
            for name, versions in sorted(self._registry.groups().items())
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _group(self, name: str) -> Reply | None:
        versions = self._registry.groups().get(name)
        if versions is None:
            return None
        return json_reply(
            200, {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(name, versions)}
        )

    def _resources(self, group: str, version: str) -> Reply | None:
        found = self._registry.of_group(group, version)
        if not found:
            return None
        entries: list[Json] = []
        for resource in found:
            entries.append(_resource_entry(resource))
            entries += _subresource_entries(resource)
        name = f"{group}/{version}" if group else version
        body = {"kind": "APIResourceList", "groupVersion": name, "resources": entries}
        if group:
            body = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": name,
                "resources": entries,
            }
        return json_reply(200, body)


def _aggregated_entry(resource: ResourceType) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: Json = {
        "resource": resource.plural, "responseKind": kind, "verbs": list(resource.verbs),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
    }  # fmt: skip
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": item.name, "verbs": list(item.verbs),
                "responseKind": {"group": item.group or resource.group,
                                 "version": item.version or resource.version, "kind": item.kind},
            }
            for item in resource.subresources
        ]  # fmt: skip
    return entry


def _api_versions(server: str) -> Json:
    return {
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }  # fmt: skip


def _group_entry(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_entry(resource: ResourceType) -> Json:
    entry: Json = {
        "name": resource.plural, "singularName": resource.singular,
        "namespaced": resource.namespaced, "kind": resource.kind, "verbs": list(resource.verbs),
    }  # fmt: skip
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.stored:
        entry["storageVersionHash"] = resource.version_hash
    return entry


def _subresource_entries(resource: ResourceType) -> list[Json]:
    entries = []
    for item in resource.subresources:
        entry: Json = {
            "name": f"{resource.plural}/{item.name}", "singularName": "",
            "namespaced": resource.namespaced,
        }  # fmt: skip
        if item.group:
            entry |= {"group": item.group, "version": item.version}
        entries.append(entry | {"kind": item.kind, "verbs": list(item.verbs)})
    return entries
