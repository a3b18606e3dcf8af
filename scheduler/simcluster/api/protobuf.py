"""The protobuf bodies that kubectl sends: evictions, access reviews, and what `kubectl create` makes.

Everything else in protobuf is refused with 415. The wire format is `k8s\\0` and a `runtime.Unknown`
(type meta in field 1, the object in field 2); numbers are from Kubernetes' generated.proto files.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
MAGIC = b"k8s\x00"
TEXT, NUMBER, TEXTS = "text", "number", "texts"
TEXT_MAP, BYTES_MAP, QUANTITY_MAP = "text map", "bytes map", "quantity map"


@dataclass(frozen=True, slots=True)
class Message:
    """Field numbers to names and how to read them; `repeated` ones are lists of messages."""

    fields: dict[int, tuple[str, "str | Message"]] = field(default_factory=dict)
    repeated: bool = False


_META = Message(
    {1: ("name", TEXT), 2: ("generateName", TEXT), 3: ("namespace", TEXT), 5: ("uid", TEXT),
     11: ("labels", TEXT_MAP), 12: ("annotations", TEXT_MAP)}
)  # fmt: skip
_PRECONDITIONS = Message({1: ("uid", TEXT), 2: ("resourceVersion", TEXT)})
_DELETE_OPTIONS = Message(
    {1: ("gracePeriodSeconds", NUMBER), 2: ("preconditions", _PRECONDITIONS),
     4: ("propagationPolicy", TEXT), 5: ("dryRun", TEXTS)}
)  # fmt: skip
_ATTRIBUTES = Message(
    {1: ("namespace", TEXT), 2: ("verb", TEXT), 3: ("group", TEXT), 4: ("version", TEXT),
     5: ("resource", TEXT), 6: ("subresource", TEXT), 7: ("name", TEXT)}
)  # fmt: skip
_PATHS = Message({1: ("path", TEXT), 2: ("verb", TEXT)})
_REVIEW = Message({1: ("resourceAttributes", _ATTRIBUTES), 2: ("nonResourceAttributes", _PATHS)})
_HARD = Message({1: ("hard", QUANTITY_MAP), 2: ("scopes", TEXTS)})
_RULES = Message(
    {1: ("verbs", TEXTS), 2: ("apiGroups", TEXTS), 3: ("resources", TEXTS),
     4: ("resourceNames", TEXTS), 5: ("nonResourceURLs", TEXTS)}, repeated=True,
)  # fmt: skip
_SUBJECTS = Message(
    {1: ("kind", TEXT), 2: ("apiGroup", TEXT), 3: ("name", TEXT), 4: ("namespace", TEXT)},
    repeated=True,
)
_ROLE_REFERENCE = Message({1: ("apiGroup", TEXT), 2: ("kind", TEXT), 3: ("name", TEXT)})
_ROLE = Message({1: ("metadata", _META), 2: ("rules", _RULES)})
_BINDING = Message(
    {1: ("metadata", _META), 2: ("subjects", _SUBJECTS), 3: ("roleRef", _ROLE_REFERENCE)}
)
MESSAGES = {
    "Eviction": Message({1: ("metadata", _META), 2: ("deleteOptions", _DELETE_OPTIONS)}),
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": Message({1: ("metadata", _META), 2: ("spec", _REVIEW)}),
    "SelfSubjectRulesReview": Message(
        {1: ("metadata", _META), 2: ("spec", Message({1: ("namespace", TEXT)}))}
    ),
    "SelfSubjectReview": Message({1: ("metadata", _META)}),
    "Namespace": Message({1: ("metadata", _META)}),
    "ServiceAccount": Message({1: ("metadata", _META)}),
    "ConfigMap": Message(
        {1: ("metadata", _META), 2: ("data", TEXT_MAP), 3: ("binaryData", BYTES_MAP)}
    ),
    "Secret": Message({1: ("metadata", _META), 2: ("data", BYTES_MAP), 3: ("type", TEXT)}),
    "ResourceQuota": Message({1: ("metadata", _META), 2: ("spec", _HARD)}),
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
}
_TYPE_META = Message({1: ("apiVersion", TEXT), 2: ("kind", TEXT)})


def decode(raw: bytes) -> Json | None:
    """The object of a protobuf body with kind and apiVersion; None when it is not one of ours.

    Raises ValueError for bytes that are no protobuf.
    """
    if not raw.startswith(MAGIC):
        raise ValueError("the body does not begin with the protobuf prefix")
    parts = dict(wire_parts(raw[len(MAGIC) :]))
    meta = _read(bytes(parts.get(1, b"")), _TYPE_META)
    message = MESSAGES.get(meta.get("kind", ""))
    return None if message is None else {**meta, **_read(bytes(parts.get(2, b"")), message)}


def _read(raw: bytes, message: Message) -> Json:
    found: Json = {}
    for number, value in wire_parts(raw):
        known = message.fields.get(number)
        if known is None:
            continue
        name, kind = known
        if kind == NUMBER:
            found[name] = value
        elif isinstance(value, bytes):
            _put(found, name, kind, value)
    return found


def _put(found: Json, name: str, kind: str | Message, value: bytes) -> None:
    if isinstance(kind, Message):
        inner = _read(value, kind)
        if kind.repeated:
            found.setdefault(name, []).append(inner)
        else:
            found[name] = inner
    elif kind == TEXTS:
        found.setdefault(name, []).append(value.decode())
    elif kind == TEXT:
        if value:
            found[name] = value.decode()
    else:
        key, entry = _entry(value, kind)
        found.setdefault(name, {})[key] = entry


def _entry(raw: bytes, kind: str) -> tuple[str, str]:
    """One entry of a map: key in field 1, value in field 2."""
    parts = dict(wire_parts(raw))
    value = bytes(parts.get(2, b""))
    if kind == BYTES_MAP:
        text = base64.b64encode(value).decode()
    elif kind == QUANTITY_MAP:
        text = bytes(dict(wire_parts(value)).get(1, b"0")).decode()
    else:
        text = value.decode()
    return bytes(parts.get(1, b"")).decode(), text


def wire_parts(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message as sent: number and value. Raises ValueError."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(raw, place)
            yield number, value
        elif wire == 2:
            length, place = _varint(raw, place)
            yield number, raw[place : place + length]
            place += length
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(raw):
            raise ValueError("the body ends in the middle of a number")
        byte = raw[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
