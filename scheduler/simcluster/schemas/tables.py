"""Field tables of the built-in types: unknown fields, wrong types, quantities, merge keys.

Read by decoding (field validation), by strategic merge and server-side apply (which lists merge by
which key) and by OpenAPI.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from scheduler.simcluster.quantities import canonical

Json = dict[str, Any]

_QUANTITY_MAPS = {
    "ResourceRequirements": ("limits", "requests"),
    "VolumeResourceRequirements": ("limits", "requests"),
    "ResourceQuotaSpec": ("hard",),
    "ResourceQuotaStatus": ("hard", "used"),
    "NodeStatus": ("capacity", "allocatable"),
    "LimitRangeItem": ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"),
    "PodSpec": ("overhead",),
    "PersistentVolumeSpec": ("capacity",),
    "PersistentVolumeClaimStatus": ("capacity", "allocatedResources"),
    "ContainerStatus": ("allocatedResources",),
}
_QUANTITIES = {("EmptyDirVolumeSource", "sizeLimit"), ("ResourceFieldSelector", "divisor")}

_MERGE_KEYS: dict[tuple[str, str], str] = {
    ("PodSpec", "containers"): "name",
    ("PodSpec", "initContainers"): "name",
    ("PodSpec", "ephemeralContainers"): "name",
    ("PodSpec", "volumes"): "name",
    ("PodSpec", "imagePullSecrets"): "name",
    ("PodSpec", "hostAliases"): "ip",
    ("PodSpec", "topologySpreadConstraints"): "topologyKey",
    ("PodSpec", "schedulingGates"): "name",
    ("PodSpec", "resourceClaims"): "name",
    ("Container", "env"): "name",
    ("Container", "ports"): "containerPort",
    ("Container", "volumeMounts"): "mountPath",
    ("Container", "volumeDevices"): "devicePath",
    ("PodStatus", "conditions"): "type",
    ("PodStatus", "podIPs"): "ip",
    ("PodStatus", "hostIPs"): "ip",
    ("NodeStatus", "conditions"): "type",
    ("NodeStatus", "addresses"): "type",
    ("NamespaceStatus", "conditions"): "type",
    ("ObjectMeta", "ownerReferences"): "uid",
    ("ServiceSpec", "ports"): "port",
    ("ServiceStatus", "conditions"): "type",
    ("ServiceAccount", "secrets"): "name",
    ("PodDisruptionBudgetStatus", "conditions"): "type",
    ("PersistentVolumeClaimStatus", "conditions"): "type",
    ("DaemonSetStatus", "conditions"): "type",
}
_MERGED_SETS = {("ObjectMeta", "finalizers"), ("NodeSpec", "podCIDRs")}


@dataclass(slots=True, eq=False)
class Shape:
    """How one value looks: `kind` is a scalar's name, `object`, `list`, `map` or `any`."""

    kind: str
    name: str = ""
    fields: dict[str, "Shape"] = field(default_factory=dict)
    element: "Shape | None" = None
    merge_key: str = ""
    merged_set: bool = False


class WrongTypeError(ValueError):
    """A value of the wrong JSON type; the text is what Go's decoder says of it."""


ANY = Shape("any")
_GO = {"str": "string", "bytes": "string", "datetime": "string", "int": "int64", "bool": "bool"}
_GO |= {"float": "float64"}
_EXACT_TYPES: dict[str, type] = {
    "str": str, "datetime": str, "bytes": str, "bool": bool, "int": int, "float": float,
}  # fmt: skip
_JSON_TYPES: dict[str, Any] = {
    "object": dict, "list": list, "map": dict, "str": str, "datetime": str, "bytes": str,
    "bool": bool, "int": (int, float), "float": (int, float),
}  # fmt: skip


@lru_cache(maxsize=1)
def type_texts() -> dict[str, dict[str, dict[str, str]]]:
    """The generated file: type to field to type text."""
    text = Path(__file__).with_name("types.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, dict[str, str]]] = json.loads(text)
    return loaded


_shapes: dict[str, Shape] = {}


def shape_of(type_name: str) -> Shape:
    """The shape of a type by name (`Pod`, `PodSpec`); ANY for one that is not known."""
    found = _shapes.get(type_name)
    if found is not None:
        return found
    entry = type_texts().get(type_name)
    if entry is None:
        return ANY
    shape = Shape("object", type_name)
    _shapes[type_name] = shape
    quantity_maps = _QUANTITY_MAPS.get(type_name, ())
    for name, text in entry["fields"].items():
        shape.fields[name] = _field_shape(type_name, name, text, quantity_maps)
    return shape


def _field_shape(type_name: str, name: str, text: str, quantity_maps: tuple[str, ...]) -> Shape:
    if name in quantity_maps:
        return Shape("map", element=Shape("quantity"))
    if (type_name, name) in _QUANTITIES:
        return Shape("quantity")
    shape = _parse(text)
    shape_key = _MERGE_KEYS.get((type_name, name), "")
    merged_set = (type_name, name) in _MERGED_SETS
    if shape_key or merged_set:
        return Shape("list", element=shape.element, merge_key=shape_key, merged_set=merged_set)
    return shape


def _parse(text: str) -> Shape:
    if text.startswith("List["):
        return Shape("list", element=_parse(text[5:-1]))
    if text.startswith("Dict[str, "):
        return Shape("map", element=_parse(text[10:-1]))
    if text in ("str", "int", "bool", "float", "datetime", "bytes"):
        return Shape(text)
    return ANY if text in ("object", "FieldsV1") else shape_of(text)


def clean(value: Json, type_name: str) -> list[str]:
    """Checks a decoded object in place: drops nulls and unknown fields, canonicalises
    quantities. Returns the paths of unknown fields. Raises WrongTypeError, ValueError."""
    unknown: list[str] = []
    _clean_object(value, shape_of(type_name), "", unknown)
    return unknown


def _clean_object(value: Json, shape: Shape, path: str, unknown: list[str]) -> None:
    fields = shape.fields
    dropped: list[str] = []
    for name, inner in value.items():
        known = fields.get(name)
        if known is None:
            unknown.append(f"{path}.{name}" if path else name)
            dropped.append(name)
        elif inner is None:
            dropped.append(name)
        elif type(inner) is not _EXACT_TYPES.get(known.kind) and known.kind != "any":
            # Scalars of the right type need no look; paths are only made for the others.
            changed = _clean_value(inner, known, f"{path}.{name}" if path else name, unknown)
            if changed is not inner:
                value[name] = changed
    for name in dropped:
        del value[name]


def _clean_value(value: Any, shape: Shape, path: str, unknown: list[str]) -> Any:
    if shape.kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong(value, path, "resource.Quantity")
        return canonical(value if isinstance(value, str) else repr(value))
    wanted = _JSON_TYPES[shape.kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise _wrong(value, path, _go_type(shape))
    if shape.kind == "object":
        _clean_object(value, shape, path, unknown)
    elif shape.kind == "list":
        _clean_list(value, shape, path, unknown)
    elif shape.kind == "map":
        _clean_map(value, shape, path, unknown)
    return value


def _clean_list(value: Any, shape: Shape, path: str, unknown: list[str]) -> None:
    element = shape.element or ANY
    if element.kind == "any":
        return
    for index, item in enumerate(value):
        changed = _clean_value(item, element, f"{path}[{index}]", unknown)
        if changed is not item:
            value[index] = changed


def _clean_map(value: Any, shape: Shape, path: str, unknown: list[str]) -> None:
    element = shape.element or ANY
    if element.kind == "any":
        return
    for name, item in value.items():
        if element.kind == "str" and type(item) is str:
            continue
        changed = _clean_value(item, element, f"{path}.{name}", unknown)
        if changed is not item:
            value[name] = changed


def _go_type(shape: Shape) -> str:
    if shape.kind == "list":
        return f"[]{_go_name(shape.element)}"
    if shape.kind == "map":
        return f"map[string]{_go_name(shape.element)}"
    return _go_name(shape)


def _go_name(shape: Shape | None) -> str:
    if shape is None:
        return "interface {}"
    return shape.name or _GO.get(shape.kind, "string")


def _wrong(value: Any, path: str, wanted: str) -> WrongTypeError:
    names = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
    found = names.get(type(value), "number")
    return WrongTypeError(
        f"json: cannot unmarshal {found} into Go struct field {path} of type {wanted}"
    )
