"""Custom resource definitions: serving their kinds, and checking objects against their schemas."""

import re
from typing import Any

from scheduler.simcluster.api.decoding import check_metadata, judge_unknown
from scheduler.simcluster.api.errors import (
    cause,
    invalid,
    invalid_value,
    required,
    unsupported,
)
from scheduler.simcluster.store.resources import (
    DEFINITIONS,
    PODS,
    ResourceType,
    Subresource,
)
from scheduler.simcluster.store.store import Change
from scheduler.simcluster.world import World

Json = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_NAMES = {"object": dict, "array": list, "string": str, "boolean": bool}


class CustomTypes:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schemas: dict[tuple[str, str, str], Json] = {}
        world.store.listen(DEFINITIONS, self._on_change)

    def _on_change(self, change: Change) -> None:
        self._world.timers.after(0, lambda: self._serve(change.now.key[1]))

    def _serve(self, name: str) -> None:
        world = self._world
        stored = world.store.get(DEFINITIONS, "", name)
        if stored is None:
            self._withdraw(name)
            return
        body = stored.body
        for version in body["spec"].get("versions") or []:
            resource = resource_of(body, version)
            world.registry.add(resource)
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            self._schemas[(resource.group, resource.version, resource.plural)] = schema
        if not any(item.get("type") == "Established" for item in _conditions(body)):
            world.store.put(DEFINITIONS, _established(body, world.now_text()))

    def _withdraw(self, name: str) -> None:
        registry = self._world.registry
        gone = [
            r for r in registry.by_path.values() if r.custom and f"{r.plural}.{r.group}" == name
        ]
        for resource in gone:
            for key in list(self._world.store.collection(resource).objects):
                self._world.store.remove(resource, key)
            registry.drop(resource)
            self._schemas.pop((resource.group, resource.version, resource.plural), None)

    def schema(self, resource: ResourceType) -> Json:
        """The OpenAPI schema of a custom kind."""
        return self._schemas.get((resource.group, resource.version, resource.plural), {})

    def check(self, body: Json, resource: ResourceType, validation: str) -> list[str]:
        """Prunes unknown fields in place, then validates. Returns warnings.

        Raises ApiError 400 (strict validation) or 422.
        """
        schema = self.schema(resource)
        unknown = check_metadata(body, resource)
        properties = {**schema.get("properties", {})}
        for name in ("kind", "apiVersion", "metadata"):
            properties[name] = {PRESERVE: True}
        prune(body, {**schema, "properties": properties}, "", unknown)
        warnings = judge_unknown(unknown, resource, validation)
        causes = schema_causes(body, schema, "")
        if causes:
            raise invalid(resource, (body.get("metadata") or {}).get("name", ""), causes)
        return warnings


def resource_of(definition: Json, version: Json) -> ResourceType:
    """The kind that one version of a definition serves."""
    spec, names = definition["spec"], definition["spec"]["names"]
    kind = names["kind"]
    has_status = "status" in (version.get("subresources") or {})
    subresources = (Subresource("status", kind, ("get", "patch", "update")),) if has_status else ()
    return ResourceType(
        spec["group"], version["name"], names["plural"],
        names.get("singular") or kind.lower(), kind,
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status=has_status, keeps_generation=True, custom=True, subresources=subresources,
        list_kind=names.get("listKind") or f"{kind}List",
        verbs=PODS.verbs,
    )  # fmt: skip


def _conditions(body: Json) -> list[Json]:
    return (body.get("status") or {}).get("conditions") or []


def _established(body: Json, now: str) -> Json:
    names = body["spec"]["names"]
    conditions = [
        {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now,
         "reason": "NoConflicts", "message": "no conflicts found"},
        {"type": "Established", "status": "True", "lastTransitionTime": now,
         "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
    ]  # fmt: skip
    status = {**(body.get("status") or {}), "conditions": conditions, "acceptedNames": names}
    return {**body, "status": status}


def prune(value: Any, schema: Json, path: str, unknown: list[str]) -> None:
    """Drops fields that a structural schema does not know, in place."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        for name in list(value):
            inner = properties.get(name)
            inner_path = f"{path}.{name}" if path else name
            if inner is None and isinstance(extra, dict):
                inner = extra
            if inner is not None:
                if not (inner.get(PRESERVE) and not inner.get("properties")):
                    prune(value[name], inner, inner_path, unknown)
            elif not schema.get(PRESERVE) and not extra:
                unknown.append(inner_path)
                del value[name]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            prune(item, schema["items"], f"{path}[{index}]", unknown)


def schema_causes(value: Any, schema: Json, path: str) -> list[Json]:
    """What is wrong with a value by its OpenAPI schema, in the server's words."""
    wanted = schema.get("type")
    if value is None and schema.get("nullable"):
        return []
    if schema.get("x-kubernetes-int-or-string"):
        wanted = None
    if wanted and not _is(value, wanted):
        text = f'{path} in body must be of type {wanted}: "{_json_type(value)}"'
        return [
            cause("FieldValueTypeInvalid", f'Invalid value: "{_json_type(value)}": {text}', path)
        ]
    causes = _scalar_causes(value, schema, path)
    if isinstance(value, dict):
        causes += _object_causes(value, schema, path)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            causes += schema_causes(item, schema["items"], f"{path}[{index}]")
    return causes


def _is(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _NAMES.get(wanted, object))


def _json_type(value: Any) -> str:
    for name, kind in (("boolean", bool), ("object", dict), ("array", list), ("string", str),
                       ("integer", int), ("number", float)):  # fmt: skip
        if isinstance(value, kind):
            return name
    return "null"


def _scalar_causes(value: Any, schema: Json, path: str) -> list[Json]:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    causes: list[Json] = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            text = f"{path} in body should be greater than or equal to {schema['minimum']}"
            causes.append(invalid_value(path, shown, text))
        if "maximum" in schema and value > schema["maximum"]:
            text = f"{path} in body should be less than or equal to {schema['maximum']}"
            causes.append(invalid_value(path, shown, text))
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            text = f"{path} in body should match '{schema['pattern']}'"
            causes.append(invalid_value(path, shown, text))
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            text = f"{path} in body should be at most {schema['maxLength']} chars long"
            causes.append(cause("FieldValueTooLong", f"Too long: {text}", path))
    if "enum" in schema and value not in schema["enum"]:
        causes.append(unsupported(path, str(value), tuple(map(str, schema["enum"]))))
    return causes


def _object_causes(value: Json, schema: Json, path: str) -> list[Json]:
    causes: list[Json] = []
    for name in schema.get("required") or []:
        if name not in value:
            causes.append(required(f"{path}.{name}" if path else name))
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, inner in value.items():
        known = properties.get(name) or (extra if isinstance(extra, dict) else None)
        if known is not None and not (path == "" and name == "metadata"):
            causes += schema_causes(inner, known, f"{path}.{name}" if path else name)
    return causes
