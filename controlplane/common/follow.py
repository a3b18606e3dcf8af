"""Follow the event log: LISTEN/NOTIFY on PostgreSQL, a poll on SQLite (rule 5).

The pacemaker, the cluster, health and what-if processes and the web's hub each keep one follower in a thread of
their own. `wait` never raises for a lost database: it reports what it knows and tries again, so that a
follower outlives a restart of PostgreSQL.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from django.db import DatabaseError, connection

from controlplane.common.log import LOG_CHANNEL, latest_seq

logger = logging.getLogger(__name__)

# SQLite has no notification: this is the poll, well under the 500 ms that rule 5 allows.
POLL_SECONDS = 0.1
# How long a thread waits before it looks whether it is to end; the longest that its end is waited for.
FOLLOW_SECONDS = 5.0


@dataclass(slots=True)
class LogFollower:
    """Waits for the log to grow past `seq`. One thread uses it; `interrupt` may come from any.

    seq: number of the newest event that `wait` has reported.
    """

    seq: int = 0
    _interrupted: threading.Event = field(default_factory=threading.Event)
    _listener: "psycopg.Connection[tuple[object, ...]] | None" = None

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as the log has grown or `interrupt` was called, False at the time-out."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            if self._interrupted.is_set():
                self._interrupted.clear()
                return True
            if self._has_grown():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._pause(left)

    def interrupt(self) -> None:
        """Make the running or the next `wait` return at once."""
        self._interrupted.set()

    def close(self) -> None:
        """Give back the listening connection, if there is one."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _has_grown(self) -> bool:
        try:
            newest = latest_seq()
        except DatabaseError as error:
            logger.warning("the event log cannot be read: %s", error)
            connection.close()
            return False
        grown = newest > self.seq
        self.seq = max(newest, self.seq)
        return grown

    def _pause(self, seconds: float) -> None:
        """Sleep until a notification, an interruption or `seconds`, whichever is first."""
        if connection.vendor != "postgresql":
            self._interrupted.wait(min(seconds, POLL_SECONDS))
            return
        try:
            listener = self._listening()
            # Notifications end the loop early; the slice bounds how late an interruption is seen.
            for _notice in listener.notifies(timeout=min(seconds, POLL_SECONDS * 2), stop_after=1):
                return
        except (psycopg.Error, OSError) as error:
            logger.warning("listening for log notifications failed: %s", error)
            self.close()
            self._interrupted.wait(min(seconds, 0.5))

    def _listening(self) -> "psycopg.Connection[tuple[object, ...]]":
        if self._listener is None or self._listener.closed:
            settings = connection.settings_dict
            self._listener = psycopg.connect(
                host=settings["HOST"] or None,
                port=settings["PORT"] or None,
                user=settings["USER"] or None,
                password=settings["PASSWORD"] or None,
                dbname=settings["NAME"],
                autocommit=True,
                connect_timeout=5,
            )
            self._listener.execute(f"LISTEN {LOG_CHANNEL}")
        return self._listener


async def follow_in_thread(on_growth: Callable[[int], None]) -> None:
    """Until cancelled, a thread calls `on_growth` with the number of the newest event before, whenever the log grows.

    For processes that live in an event loop; `on_growth` runs in the thread and must not raise.
    """
    follower, stopping = LogFollower(), threading.Event()
    thread = threading.Thread(
        target=_follow, args=(follower, stopping, on_growth), name="follow", daemon=True
    )
    thread.start()
    try:
        await asyncio.Event().wait()
    finally:
        stopping.set()
        follower.interrupt()
        await asyncio.to_thread(thread.join, FOLLOW_SECONDS)


def _follow(
    follower: LogFollower, stopping: threading.Event, on_growth: Callable[[int], None]
) -> None:
    while not stopping.is_set():
        before = follower.seq
        if follower.wait(FOLLOW_SECONDS) and not stopping.is_set():
            on_growth(before)
    follower.close()
    connection.close()
