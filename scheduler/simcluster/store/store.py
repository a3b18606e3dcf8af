"""Versioned objects: one counter for the whole cluster, a collection and a history per kind.

Bodies in the store are never changed in place: whoever writes builds a new body and commits it.
Bodies of built-in kinds are kept without `kind` and `apiVersion`, as items of lists are sent.
Called by the API's verbs, kubelets and controllers; knows nothing of HTTP.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name."""
Listener = Callable[["Change"], None]

RAW_KEPT = 2_000
"""How many of the latest changes of a kind keep their JSON."""
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

_encode_text = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, check_circular=False
).encode


def encode(value: object) -> bytes:
    """Compact JSON."""
    return _encode_text(value).encode()


class HistoryGone(Exception):  # noqa: N818 - a state of the store, not a failure of it
    """The version asked for is older than what is kept; `oldest` is the oldest kept."""

    def __init__(self, oldest: int) -> None:
        super().__init__(oldest)
        self.oldest = oldest


@dataclass(slots=True, eq=False)
class Stored:
    """One version of one object."""

    key: Key
    version: int
    body: Json
    _raw: bytes | None = None

    def forget_raw(self) -> None:
        """Frees the JSON; it is encoded again when somebody asks."""
        self._raw = None

    @property
    def raw(self) -> bytes:
        """The body as JSON, encoded once."""
        if self._raw is None:
            self._raw = encode(self.body)
        return self._raw


@dataclass(slots=True, eq=False)
class Change:
    """One commit: what an object was and is. For a deletion `now` is its last state."""

    resource: ResourceType
    version: int
    type: str
    now: Stored
    before: Stored | None


@dataclass(slots=True, eq=False)
class Collection:
    """All objects of one kind, and their history."""

    resource: ResourceType
    objects: dict[Key, Stored] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    oldest_kept: int = 0
    """Lists and watches can go back to this version, not before."""
    oldest_watched: int = 0
    """Watches can start from this version (never below `oldest_kept`)."""
    listeners: list[Listener] = field(default_factory=list)
    _sorted: list[Key] | None = None
    _recent: deque[Stored] = field(default_factory=deque)

    def sorted_keys(self) -> list[Key]:
        """All keys in order of namespace and name. Not to be changed."""
        if self._sorted is None:
            self._sorted = sorted(self.objects)
        return self._sorted

    def record(self, change: Change) -> None:
        """Puts a change into effect and history, and tells the listeners."""
        if change.type == DELETED:
            del self.objects[change.now.key]
            self._sorted = None
        else:
            self.objects[change.now.key] = change.now
            if change.before is None:
                self._sorted = None
        self.history.append(change)
        self._keep_raw(change.now)
        while len(self.history) > self.resource.history_limit:
            self.oldest_kept = self.history.popleft().version
            self.oldest_watched = max(self.oldest_watched, self.oldest_kept)
        for listener in tuple(self.listeners):
            listener(change)

    def _keep_raw(self, stored: Stored) -> None:
        """The JSON of old versions is kept for the latest changes only: watchers want those."""
        self._recent.append(stored)
        if len(self._recent) > RAW_KEPT:
            old = self._recent.popleft()
            if self.objects.get(old.key) is not old:
                old.forget_raw()

    def since(self, version: int) -> list[Change]:
        """Changes after a version, oldest first. Raises HistoryGone."""
        if version < self.oldest_watched:
            raise HistoryGone(self.oldest_watched)
        newer = sum(1 for _ in _while_newer(reversed(self.history), version))
        return list(islice(self.history, len(self.history) - newer, None))

    def at(self, version: int) -> list[Stored]:
        """All objects as they were at a version, in order. Raises HistoryGone."""
        if version < self.oldest_kept:
            raise HistoryGone(self.oldest_kept)
        objects = None
        for change in _while_newer(reversed(self.history), version):
            objects = dict(self.objects) if objects is None else objects
            if change.before is None:
                objects.pop(change.now.key, None)
            else:
                objects[change.now.key] = change.before
        if objects is None:
            return [self.objects[key] for key in self.sorted_keys()]
        return [objects[key] for key in sorted(objects)]


def _while_newer(changes: Iterable[Change], version: int) -> Iterable[Change]:
    for change in changes:
        if change.version <= version:
            return
        yield change


class Store:
    """Every object of the cluster under one rising version number."""

    def __init__(self) -> None:
        self.version = 1
        self.journal: Callable[[Change], None] | None = None
        self._listeners: list[Listener] = []
        self._collections: dict[tuple[str, str], Collection] = {}

    def collection(self, resource: ResourceType) -> Collection:
        """The collection of a kind; made when first asked for."""
        place = (resource.group, resource.plural)
        found = self._collections.get(place)
        if found is None:
            found = Collection(resource, oldest_kept=0, oldest_watched=0)
            self._collections[place] = found
        return found

    def collections(self) -> list[Collection]:
        """All collections made so far."""
        return list(self._collections.values())

    def drop_collection(self, resource: ResourceType) -> None:
        """Forgets a kind that is no longer served."""
        self._collections.pop((resource.group, resource.plural), None)

    def get(self, resource: ResourceType, namespace: str, name: str) -> Stored | None:
        """One object, or None."""
        return self.collection(resource).objects.get((namespace, name))

    def put(self, resource: ResourceType, body: Json) -> Stored:
        """Creates or replaces an object; sets its resourceVersion. Returns the new version.

        `body` becomes the store's: the caller no longer touches it. Its metadata is copied.
        """
        collection = self.collection(resource)
        metadata = dict(body["metadata"])
        key = (metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        before = collection.objects.get(key)
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        body["metadata"] = metadata
        stored = Stored(key, self.version, body)
        kind = ADDED if before is None else MODIFIED
        self._commit(collection, Change(resource, self.version, kind, stored, before))
        return stored

    def remove(self, resource: ResourceType, key: Key, last: Json | None = None) -> Stored:
        """Deletes an object; `last` is its state at the end (default: as stored).

        Raises KeyError when it is not there.
        """
        collection = self.collection(resource)
        before = collection.objects[key]
        self.version += 1
        body = dict(before.body if last is None else last)
        body["metadata"] = {**body["metadata"], "resourceVersion": str(self.version)}
        stored = Stored(key, self.version, body)
        self._commit(collection, Change(resource, self.version, DELETED, stored, before))
        return stored

    def listen(self, resource: ResourceType, listener: Listener) -> None:
        """Calls `listener` right after every commit of a kind. It must not commit itself but
        set a timer for what it wants to do."""
        self.collection(resource).listeners.append(listener)

    def listen_all(self, listener: Listener) -> None:
        """Calls `listener` right after every commit of any kind."""
        self._listeners.append(listener)

    def unlisten(self, resource: ResourceType, listener: Listener) -> None:
        """No longer calls `listener`."""
        self.collection(resource).listeners.remove(listener)

    def compact(self, *, lists_too: bool = False) -> None:
        """Forgets history: watches from before now are answered with 410, and with `lists_too`
        lists at versions before now as well."""
        for collection in self._collections.values():
            collection.oldest_watched = self.version
            if lists_too:
                collection.oldest_kept = self.version
                collection.history.clear()

    def _commit(self, collection: Collection, change: Change) -> None:
        collection.record(change)
        for listener in self._listeners:
            listener(change)
        if self.journal is not None:
            self.journal(change)
