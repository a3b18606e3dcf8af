"""List, then watch: a stream of typed observations of one kind, with its state made visible.

Called by scheduler.reconcile, one `Watch` per kind and cluster. Handles pages, bookmarks, 410,
dropped connections and silent stalls. Unknown is not absent: only a complete list yields
`Listed`, the one observation that says what is not there; a failed list yields nothing.
"""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import aiohttp

from scheduler.kube.connection import Connection
from scheduler.kube.errors import Expired, KubeError, error_from_status
from scheduler.kube.parse import parse_node, parse_node_event, parse_pod
from scheduler.kube.seen import NodeEvent, NodeSeen, PodSeen

Seen = TypeVar("Seen")
LARGEST_LINE_BYTES = 16 * 1024 * 1024


class WatchState(enum.Enum):
    """What a reader may believe of the observations so far."""

    LIVE = "live"  # a watch is open and speaks
    CATCHING_UP = "catching_up"  # listing, or between two watches
    UNREACHABLE = "unreachable"  # the server does not answer, or refuses us


@dataclass(frozen=True, slots=True)
class Listed(Generic[Seen]):
    """Everything there is at one moment, not before `began_at`; what is not in it is gone."""

    items: tuple[Seen, ...]
    began_at: datetime


@dataclass(frozen=True, slots=True)
class Changed(Generic[Seen]):
    """An object as it is now, new or changed."""

    item: Seen


@dataclass(frozen=True, slots=True)
class Gone(Generic[Seen]):
    """An object as it was last; it exists no longer."""

    item: Seen


Observation = Listed[Seen] | Changed[Seen] | Gone[Seen]


@dataclass(frozen=True, slots=True)
class Kind(Generic[Seen]):
    """What to watch: a collection's path, how to read an object, an optional selection."""

    path: str
    parse: Callable[[Mapping[str, Any]], Seen]
    selection: Mapping[str, str] = field(default_factory=dict)


NODES: Kind[NodeSeen] = Kind("/api/v1/nodes", parse_node)
PODS: Kind[PodSeen] = Kind("/api/v1/pods", parse_pod)
NODE_EVENTS: Kind[NodeEvent] = Kind(
    "/api/v1/events", parse_node_event, {"fieldSelector": "involvedObject.kind=Node"}
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds. The server sends a bookmark about once a minute: silence beyond
    `stall_seconds` means a connection that is dead without saying so."""

    stall_seconds: float = 90.0
    watch_seconds: int = 290
    page_items: int = 500


@dataclass(slots=True)
class Standing:
    """How a watch stands, since when, and what went wrong last."""

    state: WatchState
    since: datetime
    last_heard: datetime | None = None
    problem: str = ""


class _StalledError(Exception):
    """The open watch has said nothing, not even a bookmark, for too long."""


# Beside what the network and the server do: an object that cannot be read (ValueError, KeyError)
# must not end the watch of all others.
_FAILURES = (
    KubeError,
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    ValueError,
    KeyError,
    _StalledError,
)


class Watch(Generic[Seen]):
    """One kind on one cluster; iterate `observations()` for as long as the process lives."""

    def __init__(
        self,
        connection: Connection,
        kind: Kind[Seen],
        *,
        pace: Pace | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_standing: Callable[[Standing], None] = lambda standing: None,
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._pace = pace or Pace()
        self._clock = clock
        self._on_standing = on_standing
        self._version = ""
        self._failures = 0
        self.standing = Standing(WatchState.CATCHING_UP, clock())

    async def observations(self) -> AsyncIterator[Observation[Seen]]:
        """A list, then its changes, then, after whatever went wrong, a list again. Never ends."""
        while True:
            try:
                if not self._version:
                    began_at = self._clock()
                    yield Listed(await self._list(), began_at)
                async for observation in self._changes():
                    yield observation
            except _FAILURES as error:
                self._note_failure(error)
                await asyncio.sleep(self._connection.delay_seconds(self._failures))

    async def _list(self) -> tuple[Seen, ...]:
        """The whole collection, page by page; raises rather than answer in part."""
        self._stand(WatchState.CATCHING_UP)
        items: list[Seen] = []
        params: dict[str, str | int] = {**self._kind.selection, "limit": self._pace.page_items}
        while True:
            # One try: the loop around it repeats, and shows meanwhile how the cluster stands.
            page = await self._connection.get(self._kind.path, params, tries=1)
            items.extend(self._kind.parse(raw) for raw in page.get("items") or ())
            token = page["metadata"].get("continue")
            if not token:
                self._version = page["metadata"]["resourceVersion"]
                return tuple(items)
            params["continue"] = token

    async def _changes(self) -> AsyncIterator[Observation[Seen]]:
        """One watch, from the version reached to its end; a normal end raises nothing."""
        params: dict[str, str | int] = {
            **self._kind.selection,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._pace.watch_seconds,
        }
        heard = False
        async with self._connection.stream(self._kind.path, params) as reader:
            self._stand(WatchState.LIVE)
            async for line in self._lines(reader):
                heard = True
                observation = self._read(json.loads(line))
                if observation is not None:
                    yield observation
        if not heard:
            # A server that closes every watch at once must not be asked in a tight circle.
            await asyncio.sleep(self._connection.delay_seconds(1))

    async def _lines(self, reader: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        # readline() of aiohttp refuses long lines, and a pod may be long.
        rest = b""
        while True:
            try:
                async with asyncio.timeout(self._pace.stall_seconds):
                    chunk = await reader.readany()
            except TimeoutError as error:
                raise _StalledError(f"silent for {self._pace.stall_seconds:.0f} s") from error
            if not chunk:
                return
            self.standing.last_heard = self._clock()
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LARGEST_LINE_BYTES:
                raise _StalledError("a line without end")
            for line in lines:
                if line.strip():
                    yield line

    def _read(self, event: Mapping[str, Any]) -> Observation[Seen] | None:
        kind, raw = event["type"], event["object"]
        if kind == "ERROR":
            raise error_from_status(int(raw.get("code") or 0), raw)
        # Only an event that was understood moves the version: a bad one is met again.
        seen = None if kind == "BOOKMARK" else self._kind.parse(raw)
        self._version = raw["metadata"]["resourceVersion"]
        self._failures = 0
        if seen is None:
            return None
        return Gone(seen) if kind == "DELETED" else Changed(seen)

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, Expired) or self._failures > 1:
            # Too far behind, or no progress from here: begin again with a list.
            self._version = ""
        refused = isinstance(error, KubeError) and not isinstance(error, Expired)
        self._stand(
            WatchState.UNREACHABLE if refused else WatchState.CATCHING_UP,
            f"{type(error).__name__}: {error}",
        )

    def _stand(self, state: WatchState, problem: str = "") -> None:
        now = self._clock()
        same = self.standing.state is state
        # A list that is tried while the server is away does not make it reachable.
        if state is WatchState.CATCHING_UP and self.standing.state is WatchState.UNREACHABLE:
            return
        heard = now if state is WatchState.LIVE else self.standing.last_heard
        since = self.standing.since if same else now
        self.standing = Standing(state, since, heard, problem)
        self._on_standing(self.standing)
