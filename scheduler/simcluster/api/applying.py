"""Server-side apply: merging an applied configuration, with conflicts between field managers."""

from typing import Any

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import Call
from scheduler.simcluster.schemas.tables import ANY, Shape
from scheduler.simcluster.store.ownership import Owners, Path, kind_shape, leaves

Json = dict[str, Any]


class Applier:
    """Merges applied configurations into live objects."""

    def own_new(self, call: Call, body: Json, config: Json, *, now: str) -> Json:
        """A new object with the applied fields owned by the caller's Apply entry."""
        owners = Owners([])
        self._take(owners, call, set(leaves(config, kind_shape(call.resource))), now)
        metadata = {**body["metadata"], "managedFields": owners.dump()}
        return {**body, "metadata": metadata}

    def merge(self, call: Call, live: Json, config: Json, *, force: bool, now: str) -> Json:
        """The live object with the configuration merged in, and the new managedFields.

        Raises ApiError 409 when another manager owns a field with another value.
        """
        shape = kind_shape(call.resource)
        owners = Owners(live["metadata"].get("managedFields") or [])
        wanted, present = leaves(config, shape), leaves(live, shape)
        place = owners.of(call.manager, "Apply", call.subresource)
        before = set(owners.paths[place])
        contested = self._conflicts(owners, place, wanted, present)
        if contested and not force:
            raise _conflict_error(owners, contested)
        lost = {path for _, path in contested}
        owners.disown(lost, keep=place)
        dropped = before - set(wanted)
        owners.paths[place] = set()
        still_owned = set().union(*owners.paths) if owners.paths else set()
        merged: Json = _merge(live, config, shape, top=True)
        for path in sorted(dropped - still_owned):
            merged = _without(merged, path)
        self._take(owners, call, set(wanted), now)
        merged["metadata"] = {**merged["metadata"], "managedFields": owners.dump()}
        return merged

    def _take(self, owners: Owners, call: Call, paths: set[Path], now: str) -> None:
        place = owners.of(call.manager, "Apply", call.subresource)
        owners.paths[place] = paths
        owners.entries[place]["apiVersion"] = call.resource.api_version
        owners.entries[place]["time"] = now

    def _conflicts(
        self, owners: Owners, place: int, wanted: dict[Path, Any], present: dict[Path, Any]
    ) -> list[tuple[int, Path]]:
        contested: list[tuple[int, Path]] = []
        for other, owned in enumerate(owners.paths):
            if other == place:
                continue
            for path in sorted(owned & set(wanted)):
                if present.get(path) != wanted[path]:
                    contested.append((other, path))
        return contested


def _conflict_error(owners: Owners, contested: list[tuple[int, Path]]) -> ApiError:
    causes: list[Json] = []
    parts: list[str] = []
    for place, path in contested:
        entry = owners.entries[place]
        shown = _shown(path)
        text = f'conflict with "{entry["manager"]}" using {entry.get("apiVersion", "v1")}'
        causes.append({"reason": "FieldManagerConflict", "message": text, "field": shown})
        parts.append(f"{text}: {shown}")
    if len(parts) == 1:
        message = f"Apply failed with 1 conflict: {parts[0]}"
    else:
        message = f"Apply failed with {len(parts)} conflicts: " + "\n- ".join(
            ["conflicts:", *parts]
        )
    return ApiError(409, "Conflict", message, {"causes": causes})


def _shown(path: Path) -> str:
    shown = ""
    for part in path:
        if part.startswith("k:{"):
            key, value = part[3:-1].split(":", 1)
            shown += f"[{key.strip(chr(34))}={value}]"
        else:
            shown += f".{part}"
    return shown


def _merge(live: Any, config: Any, shape: Shape, *, top: bool = False) -> Any:
    if isinstance(config, dict) and isinstance(live, dict):
        merged = dict(live)
        for name, value in config.items():
            if top and name in ("kind", "apiVersion"):
                continue
            child = (
                shape.fields.get(name, ANY) if shape.kind == "object" else (shape.element or ANY)
            )
            merged[name] = _merge(live.get(name), value, child)
        return merged
    if isinstance(config, list) and isinstance(live, list) and shape.merge_key:
        return _merge_items(live, config, shape)
    return config


def _merge_items(live: list[Json], config: list[Json], shape: Shape) -> list[Json]:
    key = shape.merge_key
    merged = list(live)
    for item in config:
        place = next((i for i, old in enumerate(merged) if old.get(key) == item.get(key)), None)
        if place is None:
            merged.append(item)
        else:
            merged[place] = _merge(merged[place], item, shape.element or ANY)
    return merged


def _without(value: Any, path: Path) -> Any:
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        return _without_item(value, head, rest)
    if not isinstance(value, dict) or head not in value:
        return value
    copy = dict(value)
    if rest:
        copy[head] = _without(copy[head], rest)
        if copy[head] in ({}, []):
            del copy[head]
    else:
        del copy[head]
    return copy


def _without_item(items: list[Json], head: str, rest: Path) -> list[Json]:
    key, _, text = head[3:-1].partition(":")
    key, text = key.strip('"'), text.strip('"')
    kept: list[Json] = []
    for item in items:
        if str(item.get(key)) != text:
            kept.append(item)
        elif rest and rest != (key,):
            kept.append(_without(item, rest))
    return kept
