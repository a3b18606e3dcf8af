"""Follows the event log in a thread and hands what it reads to whoever listens, in the order of the log.

The thread lives while somebody listens and a little longer, so that a web process that nobody watches polls
nothing. What was read last is kept, so that a page that was rendered a moment ago can be told what it missed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, connection

from controlplane.common.follow import LogFollower
from controlplane.common.log import latest_seq
from controlplane.common.metrics import live_log_seq
from controlplane.common.models import Event

logger = logging.getLogger(__name__)

KEPT_EVENTS = 5000
READ_AT_START = 1000
READ_AT_ONCE = 1000
LOOK_SECONDS = 2.0
LINGER_SECONDS = 20.0
# The follower answers at least every LOOK_SECONDS; three missed in a row and its news are old.
STALE_SECONDS = 3 * LOOK_SECONDS

Listener = Callable[[Sequence["Heard"]], None]


@dataclass(frozen=True, slots=True)
class Heard:
    """What an event is about: enough to decide whom it concerns; rows are read anew by whoever shows them."""

    seq: int
    kind: str
    tenant: str
    job: str
    cluster: str
    node: str
    user: int | None


FIELDS = ("seq", "kind", "tenant", "job", "cluster", "node", "numbers")


def read_after(seq: int, limit: int = READ_AT_ONCE) -> list[Heard]:
    """Events after `seq`, oldest first."""
    rows = Event.objects.filter(seq__gt=seq).order_by("seq")[:limit].values_list(*FIELDS)
    return [_heard(row) for row in rows]


def _heard(row: tuple[Any, ...]) -> Heard:
    seq, kind, tenant, job, cluster, node, numbers = row
    user = numbers.get("user") if isinstance(numbers, dict) else None
    return Heard(seq, kind, tenant, job, cluster, node, user if isinstance(user, int) else None)


@dataclass(slots=True)
class Feed:
    """The newest events and those who want to hear of them.

    Listeners are called in the feed's thread and must be quick: they hand over to their own loop.
    """

    _lock: threading.RLock = field(default_factory=threading.RLock)
    _listeners: dict[int, Listener] = field(default_factory=dict)
    _next_listener: int = 0
    _thread: threading.Thread | None = None
    _follower: LogFollower = field(default_factory=LogFollower)
    _kept: deque[Heard] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    _started: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    # Every event with a number from `_since` (exclusive) to `_seq` is in `_kept`.
    _since: int = 0
    _seq: int = 0
    _looked_at: float = 0.0
    _wanted_until: float = 0.0

    def listen(self, listener: Listener) -> int:
        """Add a listener; returns its number for `unlisten`. Nothing is known before `wait_until_ready`."""
        with self._lock:
            self._next_listener += 1
            number = self._next_listener
            self._listeners[number] = listener
            self._start()
        return number

    def wait_until_ready(self) -> None:
        """Block until the thread has read the end of the log, at most five seconds."""
        self._started.wait(timeout=5)

    def unlisten(self, number: int) -> None:
        """Take a listener off. The thread ends when nobody came back for a while."""
        with self._lock:
            self._listeners.pop(number, None)
            self._wanted_until = time.monotonic() + LINGER_SECONDS

    def since(self, seq: int) -> list[Heard] | None:
        """Events after `seq` that are kept; None where some of them are not.

        Nothing for a number ahead of what was read: a page may be rendered before the feed has looked.
        """
        with self._lock:
            if seq < self._since:
                return None
            return _newer(self._kept, seq)

    @property
    def is_ready(self) -> bool:
        """Whether the end of the log has been read."""
        return self._thread is not None and self._started.is_set()

    @property
    def seq(self) -> int:
        """Number of the newest event read."""
        return self._seq

    def is_current(self) -> bool:
        """Whether the follower, where one is wanted, has looked at the log of late."""
        with self._lock:
            if self._thread is None:
                return True
            return time.monotonic() - self._looked_at < STALE_SECONDS

    def stop(self) -> None:
        """End the thread and forget what was kept. For the end of the process, and for tests."""
        with self._lock:
            thread, self._stopping = self._thread, True
            self._listeners.clear()
        self._follower.interrupt()
        if thread is not None:
            thread.join(timeout=10)

    def _start(self) -> None:
        if self._thread is not None:
            return
        self._stopping = False
        self._started.clear()
        self._looked_at = time.monotonic()
        self._follower = LogFollower()
        self._thread = threading.Thread(
            target=self._run, args=(self._follower,), name="live-feed", daemon=True
        )
        self._thread.start()

    def _run(self, follower: LogFollower) -> None:
        try:
            while not self._done():
                try:
                    self._look(follower)
                except DatabaseError as error:
                    logger.warning("the event log cannot be read: %s", error)
                    connection.close()
                    time.sleep(0.2)
        finally:
            follower.close()
            connection.close()

    def _done(self) -> bool:
        """Whether the thread is no longer wanted; decided under the lock, so that no listener is left alone."""
        with self._lock:
            idle = not self._listeners and time.monotonic() > self._wanted_until
            if self._stopping or idle:
                self._thread = None
                self._kept.clear()
                return True
            return False

    def _look(self, follower: LogFollower) -> None:
        if not self._started.is_set():
            self._begin(follower)
        elif follower.wait(LOOK_SECONDS):
            self._catch_up()
        self._looked_at = time.monotonic()

    def _begin(self, follower: LogFollower) -> None:
        """Read the end of the log, so that pages rendered before the thread began can catch up."""
        newest = latest_seq()
        recent = Event.objects.filter(seq__lte=newest).order_by("-seq")[:READ_AT_START]
        rows = [_heard(row) for row in recent.values_list(*FIELDS)]
        with self._lock:
            self._kept.clear()
            self._kept.extend(reversed(rows))
            self._since = rows[-1].seq - 1 if len(rows) == READ_AT_START else 0
            self._seq = follower.seq = newest
        self._started.set()

    def _catch_up(self) -> None:
        while True:
            heard = read_after(self._seq)
            if heard:
                self._tell(heard)
            if len(heard) < READ_AT_ONCE:
                return

    def _tell(self, heard: list[Heard]) -> None:
        with self._lock:
            overflow = len(self._kept) + len(heard) - KEPT_EVENTS
            if overflow > 0:
                self._since = self._kept[min(overflow, len(self._kept)) - 1].seq
            self._kept.extend(heard)
            self._seq = heard[-1].seq
            listeners = list(self._listeners.values())
        live_log_seq.set(self._seq)
        for listener in listeners:
            listener(heard)


def _newer(kept: deque[Heard], seq: int) -> list[Heard]:
    """The kept events after `seq`, oldest first; looks from the new end, since those are few as a rule."""
    found = []
    for heard in reversed(kept):
        if heard.seq <= seq:
            break
        found.append(heard)
    found.reverse()
    return found
