"""OpenAPI v2 as protobuf: how kubectl asks for `/openapi/v2`, up to and beyond 1.20 (which reads nothing
else).

The numbers are those of the OpenAPIv2.proto that Kubernetes' clients are generated from. Only what
a document of `openapi` holds is encoded; extensions travel as YAML text, for which JSON serves.
"""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_BYTES = 2


def encode_document(document: Json) -> bytes:
    """A `Document` of an OpenAPI v2 document in JSON."""
    info = document["info"]
    paths = (_named(2, name, _path_item(item)) for name, item in document["paths"].items())
    definitions = (_named(1, name, _schema(item)) for name, item in document["definitions"].items())
    return b"".join(
        (
            _text(1, document["swagger"]),
            _message(2, (_text(1, info["title"]), _text(2, info["version"]))),
            _message(8, paths),
            _message(9, definitions),
        )
    )


def _path_item(item: Json) -> bytes:
    return b"".join(_message(_METHODS[name], _operation(value)) for name, value in item.items())


def _operation(operation: Json) -> Iterable[bytes]:
    for media_type in operation["produces"]:
        yield _text(6, media_type)
    for media_type in operation["consumes"]:
        yield _text(7, media_type)
    for parameter in operation["parameters"]:
        yield _message(8, [_message(1, [_message(2, [_message(3, _query(parameter))])])])
    for code, response in operation["responses"].items():
        shown = [_text(1, response["description"])]
        if "schema" in response:
            shown.append(_message(2, [_message(1, [_schema(response["schema"])])]))
        yield _message(9, [_named(1, code, _message(1, shown))])
    yield from _extensions(13, operation)


def _query(parameter: Json) -> Iterable[bytes]:
    yield _text(2, parameter["in"])
    yield _text(4, parameter["name"])
    yield _text(6, parameter["type"])


def _schema(schema: Json) -> bytes:
    parts: list[bytes] = []
    for name, number in (("$ref", 1), ("format", 2), ("description", 4)):
        if schema.get(name):
            parts.append(_text(number, schema[name]))
    parts += [_text(19, name) for name in schema.get("required", ())]
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        parts.append(_message(21, [_message(1, [_schema(more)])]))
    if "type" in schema:
        parts.append(_message(22, [_text(1, schema["type"])]))
    if "items" in schema:
        parts.append(_message(23, [_message(1, [_schema(schema["items"])])]))
    properties = schema.get("properties")
    if properties:
        named = (_named(1, name, _schema(inner)) for name, inner in properties.items())
        parts.append(_message(25, named))
    parts += _extensions(31, schema)
    return b"".join(parts)


def _extensions(number: int, holder: Json) -> list[bytes]:
    return [
        _named(number, name, _text(2, json.dumps(value)))
        for name, value in holder.items()
        if name.startswith("x-")
    ]


def _named(number: int, name: str, value: bytes) -> bytes:
    """An entry of a map: name in field 1, value in field 2."""
    return _message(number, (_text(1, name), _message(2, [value])))


def _text(number: int, value: str) -> bytes:
    return _message(number, [value.encode()])


def _message(number: int, parts: Iterable[bytes]) -> bytes:
    body = b"".join(parts)
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
