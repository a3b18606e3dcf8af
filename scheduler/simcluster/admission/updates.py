"""Which changes to an existing object are refused: immutable fields, above all of pods."""

import json
from typing import Any

from scheduler.simcluster.api.errors import forbidden_field, invalid_value
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]

_MUTABLE = (
    "activeDeadlineSeconds",
    "tolerations",
    "terminationGracePeriodSeconds",
    "schedulingGates",
)
_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def update_causes(old: Json, new: Json, resource: ResourceType) -> list[Json]:
    """Everything that may not change so."""
    if resource.custom:
        return []
    if resource.kind == "Pod":
        return _pod_causes(old.get("spec") or {}, new.get("spec") or {})
    if resource.kind == "PriorityClass" and old.get("value") != new.get("value"):
        return [forbidden_field("value", "may not be changed in an update.")]
    if resource.kind in ("RoleBinding", "ClusterRoleBinding") and old["roleRef"] != new["roleRef"]:
        return [invalid_value("roleRef", json.dumps(new["roleRef"]), "cannot change roleRef")]
    if resource.kind in ("ConfigMap", "Secret") and old.get("immutable") is True:
        if any(old.get(part) != new.get(part) for part in ("data", "binaryData", "immutable")):
            return [forbidden_field("data", "field is immutable when `immutable` is set")]
        return []
    if resource.kind == "Secret" and old.get("type") != new.get("type"):
        return [invalid_value("type", f'"{new.get("type")}"', "field is immutable")]
    return []


def _pod_causes(old: Json, new: Json) -> list[Json]:
    if old is new or old == new:
        return []
    gated = bool(old.get("schedulingGates"))
    before, after = _comparable(old, gated=gated), _comparable(new, gated=gated)
    causes: list[Json] = []
    if before != after:
        causes.append(forbidden_field("spec", f"{_RULE}\n{_difference(before, after)}"))
    gates = {gate["name"] for gate in old.get("schedulingGates") or []}
    added = [gate for gate in new.get("schedulingGates") or [] if gate["name"] not in gates]
    if added:
        causes.append(
            forbidden_field(
                "spec.schedulingGates",
                f"only deletion is allowed, but found new scheduling gate '{added[0]['name']}'",
            )
        )
    if any(kept not in (new.get("tolerations") or []) for kept in _firm_tolerations(old)):
        causes.append(
            forbidden_field(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    return causes


def _firm_tolerations(spec: Json) -> list[Json]:
    return [item for item in spec.get("tolerations") or [] if "tolerationSeconds" not in item]


def _comparable(spec: Json, *, gated: bool) -> Json:
    kept = {name: value for name, value in spec.items() if name not in _MUTABLE}
    if gated:
        # While gates hold a pod, its node selector may be tightened.
        kept.pop("nodeSelector", None)
        kept.pop("affinity", None)
    for part in ("containers", "initContainers"):
        if kept.get(part):
            kept[part] = [{**container, "image": ""} for container in kept[part]]
    return kept


def _difference(before: Json, after: Json) -> str:
    """The changed top-level fields, in the manner of the server's diff."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            shown = name[:1].upper() + name[1:]
            lines.append(f'- "{shown}": {json.dumps(old)},')
            lines.append(f'+ "{shown}": {json.dumps(new)},')
    return "\n".join(lines) + "\n"
