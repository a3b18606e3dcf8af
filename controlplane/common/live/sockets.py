"""The open sockets of one web process: collects what changed for each, renders once per scope, pushes.

A socket is pushed to at most once a second. Each has its own outbox and sender, so that a slow one holds up
nobody: when its outbox is full it is emptied and the page is told to load itself again.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from django.db import close_old_connections, connections
from django.utils import timezone, translation

from controlplane.common.live.feed import Feed, Heard
from controlplane.common.live.topic import EVERY, Rendered, Topic, Viewer, split
from controlplane.common.log import latest_seq
from controlplane.common.metrics import live_messages_total, live_renders_total, live_sockets

logger = logging.getLogger(__name__)

PUSH_SECONDS = 1.0
# Events come in bursts (a gang of 64 is 64 pods): a moment's wait makes one render of them.
GATHER_SECONDS = 0.05
PING_SECONDS = 15.0
SEND_SECONDS = 10.0
OUTBOX = 8

RESYNC = json.dumps({"type": "resync"})
CLOSE_SLOW = 4408

T = TypeVar("T")
Key = tuple[Topic, str]
Scope = tuple[str, str, Hashable, str, str, frozenset[str]]
Send = Callable[[str], Awaitable[None]]
Close = Callable[[int], Awaitable[None]]


@dataclass(eq=False, slots=True)
class Socket:
    """One page's socket. send and close speak to the browser; close may be called twice."""

    viewer: Viewer
    send: Send
    close: Close
    subscribed: dict[str, tuple[Topic, str, Hashable]] = field(default_factory=dict)
    pending: dict[str, set[str]] = field(default_factory=dict)
    pushed_at: float = float("-inf")
    seq: int = 0
    wants_resync: bool = False
    outbox: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(OUTBOX))
    sender: asyncio.Task[None] | None = None

    @property
    def has_news(self) -> bool:
        """Whether there is something to push."""
        return bool(self.pending) or self.wants_resync

    def put(self, message: str, kind: str) -> None:
        """Queue a message. A full outbox is emptied: the page will load what it misses."""
        if self.outbox.full():
            while not self.outbox.empty():
                self.outbox.get_nowait()
            message, kind = RESYNC, "resync"
        self.outbox.put_nowait(message)
        live_messages_total.labels(kind).inc()


class Hub:
    """All sockets and waiters of this process. One event loop uses the sockets; waiters may be in any."""

    def __init__(self, feed: Feed | None = None) -> None:
        self.feed = feed or Feed()
        self._sockets: set[Socket] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: int | None = None
        self._pump: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._joining = asyncio.Lock()
        self._seq = 0
        self._executor: ThreadPoolExecutor | None = None

    # Waiting requests

    async def wait_for(
        self, after_seq: int, predicate: Callable[[Heard], bool], timeout_seconds: float
    ) -> Heard | None:
        """The first event after `after_seq` that the predicate accepts; None at the time-out.

        Holds no thread while it waits. Where events after `after_seq` are no longer known it returns at once
        (with None), so that the caller looks for itself. The predicate runs in the feed's thread.
        """
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Heard | None] = loop.create_future()

        def settle(heard: Heard | None) -> None:
            if not found.done():
                found.set_result(heard)

        def listener(batch: Sequence[Heard]) -> None:
            hit = next((h for h in batch if h.seq > after_seq and predicate(h)), None)
            if hit is not None:
                loop.call_soon_threadsafe(settle, hit)

        number = self.feed.listen(listener)
        try:
            await self._ready()
            known = self.feed.since(after_seq)
            if known is None:
                return None
            listener(known)
            return await asyncio.wait_for(found, timeout_seconds)
        except TimeoutError:
            return None
        finally:
            self.feed.unlisten(number)

    async def _ready(self) -> None:
        """The feed knows the end of the log, which takes a moment when nobody listened before."""
        if not self.feed.is_ready:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.feed.wait_until_ready)

    def is_current(self) -> bool:
        """Whether this process knows the end of the log."""
        return self.feed.is_current()

    # Sockets

    @property
    def sockets(self) -> frozenset[Socket]:
        """Those that are open now."""
        return frozenset(self._sockets)

    async def join(self, socket: Socket) -> None:
        """Add a socket; from now on it is pushed to."""
        await self._ensure_running()
        self._sockets.add(socket)
        socket.seq = self._seq
        socket.sender = asyncio.create_task(self._send_all(socket), name="live-sender")
        live_sockets.set(len(self._sockets))

    async def leave(self, socket: Socket) -> None:
        """Take a socket off. The hub rests when none is left."""
        self._sockets.discard(socket)
        live_sockets.set(len(self._sockets))
        if socket.sender is not None and socket.sender is not asyncio.current_task():
            socket.sender.cancel()
        if not self._sockets:
            self._rest()

    async def subscribe(self, socket: Socket, names: Sequence[str], after: int) -> bool:
        """Subscribe to all of `names`, and catch up from `after`. False when one is not to be seen."""
        wanted = {}
        for name in names:
            found = split(name)
            if found is None:
                return False
            topic, argument = found
            scope = await self.in_thread(topic.scope_of, socket.viewer, argument)
            if scope is None:
                return False
            wanted[name] = (topic, argument, scope)
        socket.subscribed = wanted
        socket.pending.clear()
        known = self.feed.since(after)
        if known is None or await self._is_unheard_of(after):
            socket.wants_resync = True
        else:
            self._note(known, [socket])
        if socket.has_news:
            self._news.set()
        else:
            self._ping(socket)  # the page learns at once that it is live
        return True

    async def _is_unheard_of(self, seq: int) -> bool:
        """Whether a page speaks of an event that this log never had: the database was put back."""
        return seq > self.feed.seq and seq > await self.in_thread(latest_seq)

    async def stop(self) -> None:
        """Close everything; for the end of the process, and for tests."""
        for socket in self.sockets:
            await socket.close(1012)
            await self.leave(socket)
        self._rest()
        if self._executor is not None:
            await asyncio.wrap_future(self._executor.submit(connections.close_all))
            self._executor.shutdown()
            self._executor = None
        await asyncio.to_thread(self.feed.stop)

    async def _ensure_running(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._rest()
            self._sockets.clear()
            self._loop, self._news, self._joining = loop, asyncio.Event(), asyncio.Lock()

        def arrived(batch: Sequence[Heard]) -> None:
            loop.call_soon_threadsafe(self._arrived, list(batch))

        async with self._joining:
            if self._listener is None:
                self._listener = self.feed.listen(arrived)
                await self._ready()
                self._seq = self.feed.seq
                self._pump = asyncio.create_task(self._push_for_ever(), name="live-pump")

    def _rest(self) -> None:
        if self._listener is not None:
            self.feed.unlisten(self._listener)
            self._listener = None
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None

    # From events to pushes

    def _arrived(self, batch: list[Heard]) -> None:
        self._note(batch, list(self._sockets))
        self._seq = max(self._seq, batch[-1].seq)
        if any(socket.has_news for socket in self._sockets):
            self._news.set()

    def _note(self, batch: Sequence[Heard], sockets: Sequence[Socket]) -> None:
        """Mark the rows that each event changes on the sockets that it concerns."""
        used = {topic for socket in sockets for topic, _arg, _scope in socket.subscribed.values()}
        for heard in batch:
            changed: dict[tuple[str, str], set[str]] = {}
            for topic in used:
                for argument, row in topic.changes(heard):
                    changed.setdefault((topic.name, argument), set()).add(row)
            if changed:
                for socket in sockets:
                    _mark(socket, heard, changed)

    async def _push_for_ever(self) -> None:
        next_due: float | None = None
        while True:
            await self._news_or(next_due)
            await asyncio.sleep(GATHER_SECONDS)
            now = time.monotonic()
            due = [s for s in self._sockets if s.has_news and now - s.pushed_at >= PUSH_SECONDS]
            await self._push(due)
            waiting = [s.pushed_at + PUSH_SECONDS for s in self._sockets if s.has_news]
            next_due = min(waiting, default=None)

    async def _news_or(self, moment: float | None) -> None:
        """Wait for news, at most until a moment of the monotonic clock."""
        left = None if moment is None else max(0.0, moment - time.monotonic())
        try:
            await asyncio.wait_for(self._news.wait(), left)
        except TimeoutError:
            return
        self._news.clear()

    async def _push(self, due: Sequence[Socket]) -> None:
        """Render what each needs, once per scope, and put it in the outboxes."""
        seq = self._seq
        takes = [(socket, socket.pending, socket.wants_resync) for socket in due]
        for socket in due:
            socket.pending, socket.wants_resync = {}, False
        done: dict[Scope, Pieces] = {}
        for socket, pending, wants_resync in takes:
            pieces = []
            for name, rows in pending.items():
                scope = _scope(socket, name, rows)
                if scope is not None and scope not in done:
                    done[scope] = await self._pieces(socket, name, frozenset(rows))
                if scope is not None:
                    pieces.append(done[scope])
            _deliver(socket, pieces, seq, wants_resync=wants_resync)

    async def _pieces(self, socket: Socket, name: str, rows: frozenset[str]) -> "Pieces":
        topic, argument, _scope = socket.subscribed[name]
        live_renders_total.labels(topic.name).inc()
        try:
            return Pieces(await self.in_thread(_render, topic, socket.viewer, argument, rows))
        except Exception:  # one broken topic must not silence the others
            logger.exception("topic %s:%s could not be rendered", topic.name, argument)
            return Pieces(Rendered(resync=True))

    async def _send_all(self, socket: Socket) -> None:
        """The socket's sender: its outbox one by one, and a ping when there was nothing for a while."""
        try:
            while True:
                try:
                    message = await asyncio.wait_for(socket.outbox.get(), PING_SECONDS)
                except TimeoutError:
                    self._ping(socket)
                    continue
                await asyncio.wait_for(socket.send(message), SEND_SECONDS)
        except TimeoutError:
            await self._drop(socket)
        except (OSError, RuntimeError):  # gone while we wrote
            await self.leave(socket)

    async def _drop(self, socket: Socket) -> None:
        """Let go of a page that took nothing for SEND_SECONDS; it comes back by itself."""
        await self.leave(socket)
        try:
            await asyncio.wait_for(socket.close(CLOSE_SLOW), 1.0)
        except (TimeoutError, OSError, RuntimeError):
            return

    def _ping(self, socket: Socket) -> None:
        if not socket.has_news:
            socket.seq = max(socket.seq, self._seq)
        socket.put(json.dumps({"type": "ping", "seq": socket.seq}), "ping")

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function` in the hub's own thread, with a database connection that works."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="live-render")
        context = copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, lambda: context.run(_with_connection, function, *args)
        )


class Pieces:
    """A rendering, encoded once for all who see the same."""

    def __init__(self, rendered: Rendered) -> None:
        self.rendered = rendered
        self.has_variants = any(fragment.variants for fragment in rendered.fragments)
        self._shared = [fragment.encoded() for fragment in rendered.fragments]

    def fragments(self, viewer: Viewer) -> list[str]:
        """The encoded fragments for one viewer."""
        if not self.has_variants:
            return self._shared
        return [
            fragment.encoded(viewer) if viewer.key in fragment.variants else shared
            for fragment, shared in zip(self.rendered.fragments, self._shared, strict=True)
        ]


def _mark(socket: Socket, heard: Heard, changed: dict[tuple[str, str], set[str]]) -> None:
    for name, (topic, argument, _scope) in socket.subscribed.items():
        rows = changed.get((topic.name, argument), set()) | changed.get((topic.name, EVERY), set())
        if rows and topic.concerns(socket.viewer, heard):
            socket.pending.setdefault(name, set()).update(rows)


def _scope(socket: Socket, name: str, rows: set[str]) -> Scope | None:
    found = socket.subscribed.get(name)
    if found is None:
        return None
    topic, argument, scope = found
    viewer = socket.viewer
    return topic.name, argument, scope, viewer.language, viewer.zone, frozenset(rows)


def _deliver(socket: Socket, pieces: Sequence[Pieces], seq: int, *, wants_resync: bool) -> None:
    """Put one push into the outbox: at most one message of each type."""
    rendered = [piece.rendered for piece in pieces]
    socket.seq = max(socket.seq, seq)
    if wants_resync or any(r.resync for r in rendered):
        socket.pushed_at = time.monotonic() + PUSH_SECONDS  # loading a page is dearer than a push
        socket.put(RESYNC, "resync")
        return
    fragments = [text for piece in pieces for text in piece.fragments(socket.viewer)]
    svg = [change for r in rendered for change in r.svg]
    counts = {name: number for r in rendered for name, number in r.counts.items()}
    if fragments or any(r.nudge for r in rendered):
        socket.put(
            f'{{"type":"patch","seq":{socket.seq},"fragments":[{",".join(fragments)}]}}', "patch"
        )
    if svg:
        socket.put(json.dumps({"type": "svg", "seq": socket.seq, "changes": svg}), "svg")
    if counts:
        socket.put(json.dumps({"type": "count", "seq": socket.seq, "counts": counts}), "count")
    if fragments or svg or counts or any(r.nudge for r in rendered):
        socket.pushed_at = time.monotonic()


def _render(topic: Topic, viewer: Viewer, argument: str, rows: frozenset[str]) -> Rendered:
    with translation.override(viewer.language), timezone.override(ZoneInfo(viewer.zone)):
        return topic.render(viewer, argument, rows)


def _with_connection(function: Callable[..., T], *args: Any) -> T:
    close_old_connections()
    try:
        return function(*args)
    finally:
        close_old_connections()


hub = Hub()
