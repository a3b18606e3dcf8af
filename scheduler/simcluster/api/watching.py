"""Watches: a subscription to one kind's changes, and the bytes that go to the client.

Every change is encoded once, however many watchers it goes to. A watcher that does not keep up is
cut off, as the real server does.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from scheduler.simcluster.api.errors import ApiError, bad_request, expired
from scheduler.simcluster.api.reading import Choice, choice_of
from scheduler.simcluster.api.request import Call, whole_body, whole_raw
from scheduler.simcluster.api.tables import MetadataMaker, TableMaker
from scheduler.simcluster.store.store import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Collection,
    HistoryGone,
    Store,
    Stored,
    encode,
)

Json = dict[str, Any]
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""How long before its time-out a watch gets its last bookmark."""
MAX_PENDING = 50_000
DEFAULT_TIMEOUT_SECONDS = 1800.0
INITIAL_END = {"k8s.io/initial-events-end": "true"}


def seen_as(change: Change, choice: Choice) -> str | None:
    """What a change is to a watcher with selectors: leaving the selection is DELETED."""
    now = choice.takes(change.now)
    if change.type == ADDED:
        return ADDED if now else None
    before = change.before is not None and choice.takes(change.before)
    if change.type == DELETED:
        return DELETED if before else None
    if now:
        return MODIFIED if before else ADDED
    return DELETED if before else None


def event_line(change: Change, type_: str) -> bytes:
    """One line of a watch, around the JSON that the change has been encoded to once."""
    return b'{"type":"%b","object":%b}\n' % (
        type_.encode(), whole_raw(change.resource, change.now.raw),
    )  # fmt: skip


class Watch:
    """One open watch. `lines()` yields bytes until time-out, error or cut."""

    def __init__(
        self, call: Call, store: Store, speed: float, tables: TableMaker | MetadataMaker | None
    ) -> None:
        self.call = call
        self.silent = False
        self._store = store
        self._collection: Collection = store.collection(call.resource)
        self._choice = choice_of(call)
        self._tables = tables
        self._speed = speed
        self._pending: deque[tuple[Change, str]] = deque()
        self._wake = asyncio.Event()
        self._cut = False
        self.aborted = False
        """Whether the connection is to be reset, not ended."""
        self._first: list[bytes] = []
        self._after = 0
        self._bookmarks = call.query.get("allowWatchBookmarks") in ("true", "1")
        self._timeout = _timeout(call) / speed
        self._start()

    def _start(self) -> None:
        asked = self.call.query.get("resourceVersion") or ""
        initial = self.call.query.get("sendInitialEvents") in ("true", "1")
        if asked and not asked.isdigit():
            raise bad_request(f'strconv.ParseUint: parsing "{asked}": invalid syntax')
        if initial or asked in ("", "0"):
            self._replay_present(mark_end=initial and self._bookmarks)
        else:
            self._replay_since(int(asked))
        self._collection.listeners.append(self._on_change)

    def _replay_present(self, *, mark_end: bool) -> None:
        collection = self._collection
        for key in collection.sorted_keys():
            stored = collection.objects[key]
            if self._choice.takes(stored):
                self._first.append(self._present_line(stored))
        if mark_end:
            self._first.append(self._bookmark(INITIAL_END))

    def _present_line(self, stored: Stored) -> bytes:
        change = Change(self.call.resource, stored.version, ADDED, stored, None)
        return self._line(change, ADDED)

    def _replay_since(self, version: int) -> None:
        self._after = version
        for change in self._collection.since(version):
            self._offer(change)

    def _on_change(self, change: Change) -> None:
        if change.version > self._after:
            self._offer(change)
            if len(self._pending) > MAX_PENDING:
                self.cut()

    def _offer(self, change: Change) -> None:
        type_ = seen_as(change, self._choice)
        if type_ is not None:
            self._pending.append((change, type_))
            self._wake.set()

    def cut(self, *, reset: bool = False) -> None:
        """Ends the watch, or with `reset` breaks its connection."""
        self._cut = True
        self.aborted = reset
        self._wake.set()

    def hush(self, *, silent: bool) -> None:
        """Stops sending, though open; or sends again, with all that was held back."""
        self.silent = silent
        self._wake.set()

    def close(self) -> None:
        """Takes the watch off the collection."""
        if self._on_change in self._collection.listeners:
            self._collection.listeners.remove(self._on_change)

    def fail_expired(self) -> None:
        """Ends the watch with the 410 that a compacted history gives."""
        self._pending.clear()
        self._first.append(error_line(expired(self._after, self._store.version)))
        self.cut()

    def _line(self, change: Change, type_: str) -> bytes:
        if self._tables is None:
            return event_line(change, type_)
        table = self._tables.event(self.call.resource, whole_body(change.resource, change.now.body))
        return encode({"type": type_, "object": table}) + b"\n"

    def _bookmark(self, annotations: Json | None = None) -> bytes:
        resource = self.call.resource
        metadata: Json = {"resourceVersion": str(self._store.version)}
        if annotations:
            metadata["annotations"] = annotations
        body: Json = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
        }
        body |= _EMPTY_PARTS.get(resource.kind, {})
        if self._tables is not None:
            body = self._tables.bookmark(metadata)
        return encode({"type": "BOOKMARK", "object": body}) + b"\n"

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Bytes to send, as they come up."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        next_mark = loop.time() + BOOKMARK_SECONDS / self._speed
        last_mark = ends - LAST_BOOKMARK_SECONDS / self._speed
        if last_mark <= loop.time():
            last_mark = math.inf  # a short watch ends without one
        try:
            while True:
                if self._first:
                    first, self._first = self._first, []
                    yield b"".join(first)
                if self._pending and not self.silent:
                    yield b"".join(self._drain())
                if self._cut:
                    return
                now = loop.time()
                if now >= ends:
                    return
                if self._pending and not self.silent:
                    continue  # a bookmark must not run ahead of events that are not out yet
                if now >= min(next_mark, last_mark):
                    last_mark = math.inf if now >= last_mark else last_mark
                    next_mark = now + BOOKMARK_SECONDS / self._speed
                    if self._bookmarks and not self.silent:
                        yield self._bookmark()
                await self._pause(min(ends, next_mark, last_mark) - now)
        finally:
            self.close()

    def _drain(self) -> list[bytes]:
        drained = [self._line(change, type_) for change, type_ in self._pending]
        self._pending.clear()
        return drained

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        if self._cut or (self._pending and not self.silent) or self._first:
            return
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return


_EMPTY_PARTS: dict[str, Json] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Node": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(
                ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage",
                 "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion",
                 "operatingSystem", "architecture"), ""),
        },
    },
}  # fmt: skip
"""What Go writes for the fields of a bookmark's empty object that are never left out."""


def _timeout(call: Call) -> float:
    text = call.query.get("timeoutSeconds") or ""
    return float(text) if text.isdigit() and int(text) > 0 else DEFAULT_TIMEOUT_SECONDS


def open_watch(
    call: Call, store: Store, speed: float, tables: TableMaker | MetadataMaker | None
) -> Watch | ApiError:
    """A watch, or the 410 that it must answer with as an event. Raises ApiError 400."""
    try:
        return Watch(call, store, speed, tables)
    except HistoryGone:
        asked = int(call.query.get("resourceVersion") or 0)
        return expired(asked, store.version)


def error_line(error: ApiError) -> bytes:
    """An ERROR event."""
    return encode({"type": "ERROR", "object": error.status()}) + b"\n"
