"""The three patch types: JSON patch, merge patch, strategic merge patch.

All of them return a new object and leave the old one as it is.
"""

import copy
from typing import Any

from scheduler.simcluster.api.errors import ApiError, bad_request
from scheduler.simcluster.schemas.tables import ANY, Shape, shape_of

Json = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Json, operations: Any) -> Json:
    """RFC 6902. Raises ApiError 400 for a patch that cannot be read, 422 for one that fails."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    patched: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            patched = _apply_operation(patched, operation)
        except (AttributeError, KeyError, IndexError, ValueError, TypeError) as error:
            raise ApiError(
                422, "Invalid",
                f"the server rejected our request due to an error in our request: {error}", {},
            ) from None  # fmt: skip
    if not isinstance(patched, dict):
        raise bad_request("the patch does not leave an object")
    return patched


def _apply_operation(document: Any, operation: Json) -> Any:
    op = operation["op"]
    path = _pointer(operation["path"])
    if op == "test":
        if _lookup(document, path) != operation["value"]:
            raise ValueError(f"testing value {operation['path']} failed")
        return document
    if op in ("add", "replace"):
        return _set(document, path, copy.deepcopy(operation["value"]), insert=op == "add")
    if op == "remove":
        _take(document, path)
        return document
    if op == "copy":
        value = copy.deepcopy(_lookup(document, _pointer(operation["from"])))
        return _set(document, path, value, insert=True)
    if op == "move":
        return _set(document, path, _take(document, _pointer(operation["from"])), insert=True)
    raise ValueError(f"Unexpected kind: {op}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _lookup(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _set(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    holder = _lookup(document, path[:-1])
    last = path[-1]
    if isinstance(holder, list):
        if last == "-":
            holder.append(value)
        elif insert:
            if int(last) > len(holder):
                raise IndexError(f"Unable to access invalid index: {last}")
            holder.insert(int(last), value)
        else:
            holder[int(last)] = value
    else:
        if not insert and last not in holder:
            raise KeyError(f"replace operation does not apply: doc is missing key: /{last}")
        holder[last] = value
    return document


def _take(document: Any, path: list[str]) -> Any:
    holder = _lookup(document, path[:-1])
    if isinstance(holder, list):
        return holder.pop(int(path[-1]))
    if path[-1] not in holder:
        raise KeyError(f"Unable to remove nonexistent key: {path[-1]}")
    return holder.pop(path[-1])


def strategic_merge(target: Json, patch: Any, type_name: str) -> Json:
    """Kubernetes' strategic merge patch, with the lists of the type that merge by key.

    Raises ApiError 400 when a list item has no merge key.
    """
    if not isinstance(patch, dict):
        raise bad_request("cannot unmarshal patch: the patch must be an object")
    return _merge_object(target, patch, shape_of(type_name))


def _merge_object(target: Json, patch: Json, shape: Shape) -> Json:
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target)
    for name, value in patch.items():
        if name.startswith("$"):
            _follow_directive(merged, name, value, shape)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(merged.get(name), value, _child(shape, name))
    _retain_keys(merged, patch)
    return merged


def _child(shape: Shape, name: str) -> Shape:
    if shape.kind == "object":
        return shape.fields.get(name, ANY)
    return shape.element or ANY if shape.kind == "map" else ANY


def _follow_directive(merged: Json, name: str, value: Any, shape: Shape) -> None:
    if name.startswith("$deleteFromPrimitiveList/"):
        field = name.partition("/")[2]
        merged[field] = [item for item in merged.get(field, []) if item not in value]
    elif name.startswith("$setElementOrder/"):
        field = name.partition("/")[2]
        key = _child(shape, field).merge_key
        order = {item[key] if key else item: place for place, item in enumerate(value)}
        current = merged.get(field)
        if current:
            merged[field] = sorted(
                current, key=lambda item: order.get(item[key] if key else item, len(order))
            )


def _retain_keys(merged: Json, patch: Json) -> None:
    kept = patch.get("$retainKeys")
    if kept is not None:
        for name in [name for name in merged if name not in kept]:
            del merged[name]


def _merge_value(target: Any, value: Any, shape: Shape) -> Any:
    if isinstance(value, dict):
        return _merge_object(target if isinstance(target, dict) else {}, value, shape)
    if isinstance(value, list) and shape.kind == "list":
        current = target if isinstance(target, list) else []
        if shape.merge_key:
            return _merge_list(current, value, shape)
        if shape.merged_set:
            return current + [item for item in value if item not in current]
    return value


def _merge_list(target: list[Json], patch: list[Json], shape: Shape) -> list[Json]:
    key = shape.merge_key
    if not all(isinstance(item, dict) for item in patch):
        raise bad_request("cannot unmarshal patch: items of a list that merges must be objects")
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = list(target)
    added: list[Json] = []
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = next((i for i, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            added.append(_merge_object({}, item, shape.element or ANY))
        else:
            merged[place] = _merge_object(merged[place], item, shape.element or ANY)
    return added + merged  # the server puts what is new in front
