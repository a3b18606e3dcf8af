"""Defaults and validation of custom resource definitions."""

from typing import Any

from scheduler.simcluster.api.errors import invalid_value, required

Json = dict[str, Any]


def fill_definition(body: Json) -> None:
    """Defaults of a new definition, in place."""
    spec = body.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    storage = [v.get("name", "") for v in spec.get("versions") or [] if v.get("storage")]
    body["status"] = {
        "conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage,
    }  # fmt: skip


def definition_causes(body: Json) -> list[Json]:
    """What is wrong with a definition."""
    spec = body.get("spec") or {}
    causes: list[Json] = []
    for name in ("group", "scope"):
        if not spec.get(name):
            causes.append(required(f"spec.{name}"))
    if not spec.get("versions"):
        causes.append(required("spec.versions"))
    for index, version in enumerate(spec.get("versions") or []):
        if not version.get("name"):
            causes.append(required(f"spec.versions[{index}].name"))
    names = spec.get("names") or {}
    for name in ("plural", "kind"):
        if not names.get(name):
            causes.append(required(f"spec.names.{name}"))
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if not causes and body["metadata"].get("name") != expected:
        causes.append(
            invalid_value("metadata.name", f'"{body["metadata"].get("name")}"',
                          'must be spec.names.plural+"."+spec.group')
        )  # fmt: skip
    return causes
