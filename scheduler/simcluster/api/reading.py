"""The verbs that read: get and list, with selectors, paging and old versions."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.api.errors import ApiError, bad_request, expired, not_found
from scheduler.simcluster.api.request import Call, Reply, whole_raw
from scheduler.simcluster.store.resources import ResourceType
from scheduler.simcluster.store.selectors import (
    Predicate,
    SelectorError,
    field_predicate,
    label_predicate,
)
from scheduler.simcluster.store.store import HistoryGone, Key, Store, Stored, encode

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a list or watch is limited to."""

    namespace: str
    labels: Predicate | None
    fields: Predicate | None
    name: str = ""

    def takes(self, stored: Stored) -> bool:
        """Whether an object belongs."""
        if self.namespace and stored.key[0] != self.namespace:
            return False
        if self.name and stored.key[1] != self.name:
            return False
        if self.labels is not None and not self.labels(stored.body):
            return False
        return self.fields is None or self.fields(stored.body)


def choice_of(call: Call) -> Choice:
    """The selectors of a call, compiled. Raises ApiError 400."""
    query: Mapping[str, str] = call.query
    try:
        labels = label_predicate(query.get("labelSelector", ""))
        fields = field_predicate(query.get("fieldSelector", ""), call.resource)
    except SelectorError as error:
        raise bad_request(str(error)) from None
    return Choice(call.namespace, labels, fields, call.name)


@dataclass(frozen=True, slots=True)
class Page:
    """The objects of one list answer and its metadata."""

    items: list[Stored]
    metadata: Json


class Reader:
    """Answers get and list from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, call: Call) -> Stored:
        """One object. Raises ApiError 404."""
        found = self._store.get(call.resource, call.namespace, call.name)
        if found is None:
            raise not_found(call.resource, call.name)
        return found

    def select(self, call: Call) -> list[Stored]:
        """All objects that the call's selectors choose, in order."""
        choice = choice_of(call)
        return [item for item in self._current(call.resource) if choice.takes(item)]

    def _current(self, resource: ResourceType) -> list[Stored]:
        collection = self._store.collection(resource)
        return [collection.objects[key] for key in collection.sorted_keys()]

    def page(self, call: Call) -> Page:
        """What a list answers. Raises ApiError 400 or 410."""
        choice = choice_of(call)
        limit = _whole_number(call.query, "limit")
        token = call.query.get("continue", "")
        version, start = self._place(call, token)
        if call.query.get("resourceVersion") == "0" and not token:
            limit = 0
        found = [item for item in self._at(call.resource, version) if choice.takes(item)]
        metadata: Json = {"resourceVersion": str(version)}
        if start:
            found = [item for item in found if item.key > start]
        if limit and len(found) > limit:
            metadata["continue"] = _token(version, found[limit - 1])
            if choice.labels is None and choice.fields is None:
                metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        return Page(found, metadata)

    def _place(self, call: Call, token: str) -> tuple[int, Key | None]:
        if token:
            return _read_token(token)
        if call.query.get("resourceVersionMatch") == "Exact":
            return _whole_number(call.query, "resourceVersion"), None
        asked = _whole_number(call.query, "resourceVersion")
        if asked > self._store.version:
            causes = [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
            raise ApiError(
                504, "Timeout",
                f"Too large resource version: {asked}, current: {self._store.version}",
                {"causes": causes, "retryAfterSeconds": 1}, {"Retry-After": "1"},
            )  # fmt: skip
        return self._store.version, None

    def _at(self, resource: ResourceType, version: int) -> list[Stored]:
        try:
            return self._store.collection(resource).at(version)
        except HistoryGone as gone:
            raise expired(version, gone.oldest) from None

    def list_reply(self, call: Call) -> Reply:
        """A list as JSON, put together from the stored bytes."""
        page = self.page(call)
        resource = call.resource
        head = encode(
            {"kind": resource.kind_of_list, "apiVersion": resource.api_version,
             "metadata": page.metadata}
        )  # fmt: skip
        body = b'%b,"items":[%b]}' % (head[:-1], b",".join([item.raw for item in page.items]))
        return Reply(200, body)

    def get_reply(self, call: Call) -> Reply:
        """One object as JSON."""
        return Reply(200, whole_raw(call.resource, self.get(call).raw))


def _path_of(stored: Stored) -> str:
    namespace, name = stored.key
    return f"/{namespace}/{name}" if namespace else f"/{name}"


def _whole_number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _token(version: int, last: Stored) -> str:
    text = json.dumps(
        {"v": "meta.k8s.io/v1", "rv": version, "start": _path_of(last) + "\u0000"},
        separators=(",", ":"),
    )
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    padded = token + "=" * (-len(token) % 4)
    try:
        parsed = json.loads(base64.urlsafe_b64decode(padded))
        namespace, _, name = str(parsed["start"]).strip("/\u0000").rpartition("/")
        return int(parsed["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError) as error:
        first = (
            base64.urlsafe_b64decode(padded)[:1].decode("latin-1") if token.isalnum() else token[:1]
        )
        raise bad_request(
            "invalid continue token: continue key is not valid: invalid character "
            f"'{first}' looking for beginning of value"
        ) from error
