"""Bodies of requests: from bytes to objects that fit their kind, with field validation."""

import json
from dataclasses import dataclass
from typing import Any

import yaml

from scheduler.simcluster.api import protobuf
from scheduler.simcluster.api.errors import ApiError, bad_request
from scheduler.simcluster.schemas.tables import WrongTypeError, clean
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
_BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object as sent, without `kind` and `apiVersion`, and the warnings about it."""

    body: Json
    warnings: list[str]


def media_type(content_type: str) -> str:
    """`application/json` of `application/json; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


def unsupported_media_type(accepted: tuple[str, ...]) -> ApiError:
    """415, naming what is accepted."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def parse_object(raw: bytes, content_type: str, kind: str) -> Json:
    """A JSON or YAML object of a body. Raises ApiError 400 or 415."""
    kind_of_body = media_type(content_type) or JSON_TYPE
    if kind_of_body in YAML_TYPES:
        parsed = parse_yaml(raw)
    elif kind_of_body == JSON_TYPE:
        parsed = _parse_json(raw, kind)
    elif kind_of_body == PROTOBUF_TYPE:
        parsed = _parse_protobuf(raw)
    else:
        raise unsupported_media_type(_BODY_TYPES)
    if not isinstance(parsed, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: json: cannot unmarshal {_json_name(parsed)} into "
            "Go value of type struct { APIVersion string; Kind string }"
        )
    return parsed


def parse_yaml(raw: bytes) -> Any:
    """YAML or JSON of a body. Raises ApiError 400."""
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def _parse_protobuf(raw: bytes) -> Json:
    try:
        found = protobuf.decode(raw)
    except ValueError as error:
        raise bad_request(f"error decoding protobuf: {error}") from None
    if found is None:
        raise unsupported_media_type((JSON_TYPE, "application/yaml"))
    return found


def _json_name(value: Any) -> str:
    return {list: "array", str: "string", bool: "bool"}.get(type(value), "number")


def _parse_json(raw: bytes, kind: str) -> Any:
    try:
        return json.loads(raw)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: {_go_json_error(error, raw)} "
            f"({raw[:64].decode(errors='replace')})"
        ) from None


def _go_json_error(error: ValueError, raw: bytes) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return "invalid UTF-8"
    if error.pos >= len(error.doc.rstrip()):
        return "unexpected end of JSON input"
    place = "looking for beginning of value"
    if "property name" in error.msg:
        place = "looking for beginning of object key string"
    elif "',' delimiter" in error.msg:
        place = "after object key:value pair"
    return f"invalid character '{error.doc[error.pos]}' {place}"


def parse_typed(raw: bytes, content_type: str, type_name: str) -> Json:
    """The object of a body that is not stored (a binding, options), checked against its table.

    Raises ApiError 400 or 415.
    """
    parsed = parse_object(raw, content_type, type_name)
    try:
        clean(parsed, type_name)
    except ValueError as error:
        raise bad_request(f"{type_name} cannot be handled: {error}") from None
    return parsed


def check_kind(parsed: Json, resource: ResourceType) -> None:
    """Takes `kind` and `apiVersion` off an object; they must be the resource's if present.

    Raises ApiError 400.
    """
    kind = parsed.pop("kind", None) or resource.kind
    version = parsed.pop("apiVersion", None) or resource.api_version
    if kind == resource.kind and version == resource.api_version:
        return
    short = version.rpartition("/")[2]
    if kind == resource.kind:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if resource.custom:
        raise bad_request(
            f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})"
        )
    group = resource.group.partition(".")[0] or "core"
    raise bad_request(
        f'{kind} in version "{short}" cannot be handled as a {resource.kind}: converting '
        f"({short}.{kind}) to ({group}.{resource.kind}): unknown conversion"
    )


def check_fields(body: Json, resource: ResourceType, validation: str) -> list[str]:
    """Checks a built-in object against its table, in place. Returns warnings.

    `validation` is Strict (unknown fields are 400), Warn or Ignore. Raises ApiError 400.
    """
    try:
        unknown = clean(body, resource.kind)
    except (WrongTypeError, ValueError) as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: {error}"
        ) from None
    return judge_unknown(unknown, resource, validation)


def check_metadata(body: Json, resource: ResourceType) -> list[str]:
    """Checks the metadata of a custom object, in place; returns unknown fields in it.

    Raises ApiError 400.
    """
    holder = {"metadata": body.get("metadata")}
    try:
        unknown = clean(holder, "ConfigMap")
    except ValueError as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled: {error}'
        ) from None
    return unknown


def judge_unknown(unknown: list[str], resource: ResourceType, validation: str) -> list[str]:
    """Warnings for unknown fields, or ApiError 400 when validation is Strict."""
    found = [f'unknown field "{path}"' for path in unknown]
    if not found or validation == "Ignore":
        return []
    if validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {', '.join(found)}"
        )
    return found
