"""OpenAPI v3, as far as kubectl reads it: field validation on apply and create, and `explain`."""

import hashlib
from typing import Any

from scheduler.simcluster.api.request import Reply, json_reply
from scheduler.simcluster.controllers.definitions import CustomTypes
from scheduler.simcluster.schemas.tables import Shape, shape_of
from scheduler.simcluster.store.resources import Registry, ResourceType

Json = dict[str, Any]
ROOT = "/openapi/v3"
_SCALARS: dict[str, Json] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "datetime": {"type": "string", "format": "date-time"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "quantity": {"type": "string"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_QUERY = ("pretty", "dryRun", "fieldManager", "fieldValidation", "force")


class OpenApi:
    """Serves one document per group and version."""

    def __init__(self, registry: Registry, custom: CustomTypes) -> None:
        self._registry, self._custom = registry, custom

    def answer(self, path: str) -> Reply | None:
        """The reply for a path under /openapi/v3, or None."""
        path = path.rstrip("/")
        if path == ROOT:
            return json_reply(200, {"paths": self._index()})
        parts = path.removeprefix(f"{ROOT}/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._document("", parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return self._document(parts[1], parts[2])
        return None

    def _index(self) -> Json:
        index: Json = {}
        for group, versions in {"": ["v1"], **self._registry.groups()}.items():
            for version in versions:
                place = f"apis/{group}/{version}" if group else f"api/{version}"
                kinds = ",".join(r.kind for r in self._registry.of_group(group, version))
                digest = hashlib.sha256(kinds.encode()).hexdigest()[:32].upper()
                index[place] = {"serverRelativeURL": f"{ROOT}/{place}?hash={digest}"}
        return index

    def _document(self, group: str, version: str) -> Reply | None:
        found = self._registry.of_group(group, version)
        if not found:
            return None
        schemas: Json = {}
        paths: Json = {}
        for resource in found:
            name = self._add_kind(resource, schemas)
            paths.update(_paths(resource, name))
        return json_reply(
            200,
            {
                "openapi": "3.0.0", "info": {"title": "Kubernetes (simulated)", "version": "v1.36.0"},
                "paths": paths, "components": {"schemas": schemas},
            },
        )  # fmt: skip

    def _add_kind(self, resource: ResourceType, schemas: Json) -> str:
        name = f"io.k8s.{resource.group or 'core'}.{resource.version}.{resource.kind}"
        schema = (
            self._custom_schema(resource)
            if resource.custom
            else _object(shape_of(resource.kind), schemas)
        )
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [gvk]}
        return name

    def _custom_schema(self, resource: ResourceType) -> Json:
        schema = dict(self._custom.schema(resource)) or {"type": "object"}
        properties = dict(schema.get("properties") or {})
        for name in ("apiVersion", "kind"):
            properties.setdefault(name, {"type": "string"})
        properties.setdefault(
            "metadata", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        )
        return {**schema, "properties": properties}


def _object(shape: Shape, schemas: Json) -> Json:
    properties = {name: _schema(inner, schemas) for name, inner in shape.fields.items()}
    return {"type": "object", "properties": properties}


def _schema(shape: Shape, schemas: Json) -> Json:
    if shape.kind == "object":
        name = f"io.k8s.types.{shape.name}"
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = _object(shape, schemas)
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}
    if shape.kind == "list":
        return {"type": "array", "items": _element(shape, schemas)}
    if shape.kind == "map":
        return {"type": "object", "additionalProperties": _element(shape, schemas)}
    return dict(_SCALARS[shape.kind])


def _element(shape: Shape, schemas: Json) -> Json:
    return dict(_SCALARS["any"]) if shape.element is None else _schema(shape.element, schemas)


def _paths(resource: ResourceType, name: str) -> Json:
    base = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    if resource.namespaced:
        base += "/namespaces/{namespace}"
    collection = f"{base}/{resource.plural}"
    operation = _operation(resource, name)
    paths: Json = {collection: {"get": operation, "post": operation}}
    if resource.stored:
        paths[f"{collection}/{{name}}"] = {
            "get": operation, "put": operation, "patch": operation, "delete": operation,
        }  # fmt: skip
    return paths


def _operation(resource: ResourceType, name: str) -> Json:
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": item, "in": "query", "schema": {"type": "string"}} for item in _QUERY]
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {
        "parameters": parameters, "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": gvk,
    }  # fmt: skip
