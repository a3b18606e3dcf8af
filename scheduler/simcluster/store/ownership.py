"""Which field manager owns which field: `metadata.managedFields`.

Kept for kinds that people and controllers share; for pods, nodes, events and leases only once they
were applied server-side (see docs/simcluster.md). A field is named by its path: map keys and, in
lists that merge by key, `k:{"name":"main"}`.
"""

import json
from collections.abc import Iterator
from typing import Any

from scheduler.simcluster.schemas.tables import ANY, Shape, shape_of
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
Path = tuple[str, ...]
_UNTRACKED = ("Pod", "Node", "Event", "Lease")
_OWN_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


def tracks(resource: ResourceType) -> bool:
    """Whether ownership is kept from creation on."""
    return resource.kind not in _UNTRACKED


def leaves(body: Json, shape: Shape) -> dict[Path, Any]:
    """Every field of an object that can be owned, with its value."""
    found: dict[Path, Any] = {}
    for name, value in body.items():
        if name == "metadata":
            meta = {key: value[key] for key in _OWN_METADATA if key in value}
            found.update(_walk(meta, ("metadata",), shape.fields.get("metadata", ANY)))
        elif name not in ("kind", "apiVersion"):
            child = shape.fields.get(name, ANY) if shape.kind == "object" else ANY
            found.update(_walk(value, (name,), child))
    return found


def _walk(value: Any, path: Path, shape: Shape) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if shape.kind == "object":
                child = shape.fields.get(name, ANY)
            else:
                child = shape.element or ANY if shape.kind == "map" else ANY
            yield from _walk(inner, (*path, name), child)
    elif isinstance(value, list) and shape.merge_key:
        for item in value:
            key = json.dumps({shape.merge_key: item.get(shape.merge_key)}, separators=(",", ":"))
            yield from _walk(item, (*path, f"k:{key}"), shape.element or ANY)
    else:
        yield path, value


def kind_shape(resource: ResourceType) -> Shape:
    """The shape of a kind; custom kinds have none, so that their lists are owned whole."""
    return ANY if resource.custom else shape_of(resource.kind)


class Owners:
    """Managers and what they own, read from and written to `managedFields`."""

    def __init__(self, entries: list[Json]) -> None:
        self.entries = [dict(entry) for entry in entries]
        self.paths = [set(_from_fields(entry.get("fieldsV1") or {})) for entry in self.entries]

    def of(self, manager: str, operation: str, subresource: str = "") -> int:
        """The place of a manager's entry; made when it is not there."""
        for place, entry in enumerate(self.entries):
            same = (entry["manager"], entry["operation"], entry.get("subresource", ""))
            if same == (manager, operation, subresource):
                return place
        entry = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1"}
        if subresource:
            entry["subresource"] = subresource
        self.entries.append(entry)
        self.paths.append(set())
        return len(self.entries) - 1

    def disown(self, paths: set[Path], *, keep: int) -> None:
        """Takes fields from everyone but the manager at `keep`."""
        for place, owned in enumerate(self.paths):
            if place != keep:
                owned -= paths

    def dump(self) -> list[Json]:
        """`managedFields`: managers that own something."""
        dumped = []
        for entry, owned in zip(self.entries, self.paths, strict=True):
            if owned:
                dumped.append({**entry, "fieldsV1": _to_fields(owned)})
        return dumped


def _from_fields(fields: Json, path: Path = ()) -> Iterator[Path]:
    for name, inner in fields.items():
        if name == ".":
            continue
        part = name[2:] if name.startswith("f:") else name
        if inner and set(inner) != {"."}:
            yield from _from_fields(inner, (*path, part))
        else:
            yield (*path, part)


def _to_fields(paths: set[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        place = root
        for part in path:
            place = place.setdefault(part if part.startswith("k:") else f"f:{part}", {})
    return root


def update_ownership(
    old: Json | None, new: Json, resource: ResourceType, manager: str, now_text: str
) -> None:
    """Gives what a write changed to its manager, in `new`'s metadata, in place."""
    shape = kind_shape(resource)
    before = {} if old is None else leaves(old, shape)
    after = leaves(new, shape)
    changed = {
        path for path, value in after.items()
        if path[0] != "status" and (path not in before or before[path] != value)
    }  # fmt: skip
    gone = {path for path in before if path not in after}
    entries = ((old or {}).get("metadata") or {}).get("managedFields") or []
    if not changed and not gone:
        if entries:
            new["metadata"]["managedFields"] = entries
        return
    owners = Owners(entries)
    place = owners.of(manager, "Update")
    owners.disown(gone, keep=-1)
    owners.disown(changed, keep=place)
    owners.paths[place] |= changed
    owners.entries[place]["apiVersion"] = resource.api_version
    owners.entries[place]["time"] = now_text
    new["metadata"]["managedFields"] = owners.dump()
