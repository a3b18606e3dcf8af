"""OpenAPI, as far as kubectl reads it: field validation and merge keys on apply and create, server-side
dry run, and `explain`.

Version 3, a document per group, is what kubectl reads from 1.27 on; version 2, one document of
everything, in protobuf, is what older ones read.
"""

import hashlib
from typing import Any

from scheduler.simcluster.api.openapi_wire import encode_document
from scheduler.simcluster.api.request import Reply, json_reply
from scheduler.simcluster.controllers.definitions import CustomTypes
from scheduler.simcluster.schemas.tables import Shape, shape_of
from scheduler.simcluster.store.resources import Registry, ResourceType

Json = dict[str, Any]
ROOT = "/openapi/v3"
ROOT_V2 = "/openapi/v2"
WIRE_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_WIRE_V2_SENT = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO = {"title": "Kubernetes (simulated)", "version": "v1.36.0"}
_STRATEGIC = "application/strategic-merge-patch+json"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
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
    """Serves one document per group and version, and one of everything in version 2."""

    def __init__(self, registry: Registry, custom: CustomTypes) -> None:
        self._registry, self._custom = registry, custom

    def answer(self, path: str, accept: str = "") -> Reply | None:
        """The reply for a path under /openapi, or None."""
        path = path.rstrip("/")
        if path == ROOT_V2:
            return self._version_2(accept)
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
                "openapi": "3.0.0", "info": _INFO, "paths": paths,
                "components": {"schemas": schemas},
            },
        )  # fmt: skip

    def _version_2(self, accept: str) -> Reply:
        schemas: Json = {}
        paths: Json = {}
        for group, versions in {"": ["v1"], **self._registry.groups()}.items():
            for version in versions:
                for resource in self._registry.of_group(group, version):
                    paths.update(_paths_v2(resource, self._add_kind(resource, schemas)))
        definitions = {name: _schema_v2(schema) for name, schema in schemas.items()}
        document = {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}
        if WIRE_V2 in accept or _WIRE_V2_SENT in accept:
            return Reply(200, encode_document(document), _WIRE_V2_SENT)
        return json_reply(200, document)

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
        return {"type": "array", "items": _element(shape, schemas), **_merging(shape)}
    if shape.kind == "map":
        return {"type": "object", "additionalProperties": _element(shape, schemas)}
    return dict(_SCALARS[shape.kind])


def _merging(shape: Shape) -> Json:
    """How a strategic merge patch treats a list: kubectl builds its patches by this."""
    if shape.merge_key:
        strategy = "merge,retainKeys" if _holds_one_of(shape) else "merge"
        return {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [shape.merge_key],
            "x-kubernetes-patch-merge-key": shape.merge_key, "x-kubernetes-patch-strategy": strategy,
        }  # fmt: skip
    if shape.merged_set:
        return {"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}
    return {}


def _holds_one_of(shape: Shape) -> bool:
    """Volumes are a union: a new kind of volume under an old name must drop the old kind."""
    return shape.element is not None and shape.element.name == "Volume"


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
        taken = {
            media_type: {"schema": {"type": "object"}} for media_type in _patch_types(resource)
        }
        patch = {**operation, "requestBody": {"content": taken}}
        paths[f"{collection}/{{name}}"] = {
            "get": operation, "put": operation, "patch": patch, "delete": operation,
        }  # fmt: skip
    return paths


def _patch_types(resource: ResourceType) -> list[str]:
    """The patches that a kind takes; kubectl chooses by it. Custom kinds have no strategic merge."""
    return [*_PATCH_TYPES] if resource.custom else [*_PATCH_TYPES, _STRATEGIC]


def _operation(resource: ResourceType, name: str) -> Json:
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": item, "in": "query", "schema": {"type": "string"}} for item in _QUERY]
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {
        "parameters": parameters, "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": gvk,
    }  # fmt: skip


_KEPT_V2 = ("type", "format", "description", "required")


def _schema_v2(schema: Json) -> Json:
    """A schema without what version 2 cannot say: defaults, unions, nullable."""
    for reference in schema.get("allOf", ()):
        if "$ref" in reference:
            name = reference["$ref"].rpartition("/")[2]
            return {"$ref": f"#/definitions/{name}"}
    kept = {
        name: value
        for name, value in schema.items()
        if name in _KEPT_V2 or name.startswith("x-kubernetes-")
    }
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        kept.pop("type", None)
        return kept
    if "properties" in schema:
        properties = schema["properties"].items()
        kept["properties"] = {name: _schema_v2(inner) for name, inner in properties}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            kept[name] = _schema_v2(schema[name])
    return kept


def _paths_v2(resource: ResourceType, name: str) -> Json:
    found: Json = {}
    for path, operations in _paths(resource, name).items():
        found[path] = {
            method: _operation_v2(method, operation, name)
            for method, operation in operations.items()
        }
    return found


def _operation_v2(method: str, operation: Json, name: str) -> Json:
    sent = operation.get("requestBody", {"content": ["application/json"]})
    query = [{"name": item, "in": "query", "type": "string"} for item in _QUERY]
    response = {"description": "OK", "schema": {"$ref": f"#/definitions/{name}"}}
    return {
        "consumes": list(sent["content"]), "produces": ["application/json"], "parameters": query,
        "responses": {"200": response}, "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
    }  # fmt: skip
