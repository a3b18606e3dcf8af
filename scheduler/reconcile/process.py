"""The loop of the `cluster` process: watches, follows the event log, ticks, enacts.

Started by the command `run_cluster`. The event loop speaks to Kubernetes; one thread of its own
does all database work, so that a slow statement never stalls a watch, nor a watch a statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import connection

from controlplane.common.alive import sign_of_life
from controlplane.common.follow import follow_in_thread
from queues.models import Cluster
from scheduler.kube.connection import Connection
from scheduler.kube.seen import NodeEvent, NodeSeen, PodSeen
from scheduler.kube.watching import (
    NODE_EVENTS,
    NODES,
    PODS,
    Gone,
    Kind,
    Listed,
    Observation,
    Pace,
    Standing,
    Watch,
    WatchState,
)
from scheduler.logstore import LogStore
from scheduler.reconcile.books import Books
from scheduler.reconcile.enact import Enactor, again_after, identity_of
from scheduler.reconcile.results import Result
from scheduler.reconcile.tick import Given, Orders, Ticker
from scheduler.reconcile.view import AttemptKey

logger = logging.getLogger(__name__)
T = TypeVar("T")
Identity = tuple[str, object]

# Many observations come at once: a tick a moment later takes them together. In a burst what comes in while a tick runs
# is worth a pause as long as the tick: fewer, larger ticks cost a fraction for each attempt.
GATHER_SECONDS = 0.01
LONGEST_GATHER_SECONDS = 0.5
# Often enough to say every ten seconds that the cluster is looked after (standing.HEARD_SECONDS).
LONGEST_WAIT_SECONDS = 10.0
# A process that is started again may have missed what was said meanwhile.
EVENTS_BEFORE_SECONDS = 60.0
XID = re.compile("xid", re.IGNORECASE)
FIRST_DATABASE_DELAY_SECONDS = 0.2
LONGEST_DATABASE_DELAY_SECONDS = 5.0


def utc_now() -> datetime:
    """The clock of a running process."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Inbox:
    """What came in since the last tick. Used in the event loop alone."""

    nodes: list[Observation[NodeSeen]] = field(default_factory=list)
    pods: list[Observation[PodSeen]] = field(default_factory=list)
    events: list[NodeEvent] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def empty(self, standing: Standing) -> Given:
        """Take everything out."""
        given = Given(
            tuple(self.nodes), tuple(self.pods), tuple(self.results), tuple(self.events), standing
        )
        self.nodes, self.pods, self.results, self.events = [], [], [], []
        self.bell.clear()
        return given


class ClusterProcess:
    """Reconciles one cluster until cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        kube: Connection,
        store: LogStore,
        *,
        clock: Callable[[], datetime] = utc_now,
        pace: Pace | None = None,
    ) -> None:
        self._clock = clock
        self._kube = kube
        self._ticker = Ticker(Books.of(cluster, store))
        self._inbox = Inbox()
        self._enactor = Enactor(kube, store, self._report, clock, self._ticker.may_bind)
        self._watches: tuple[Watch[NodeSeen], Watch[PodSeen]] = (
            self._watch(NODES, pace),
            self._watch(PODS, pace),
        )
        self._events = Watch(kube, NODE_EVENTS, pace=pace, clock=clock)
        self._began_at = clock()
        self._under_way: dict[Identity, asyncio.Task[None]] = {}
        self._skipped: dict[Identity, Result | None] = {}
        self._database = ThreadPoolExecutor(1, thread_name_prefix="database")

    async def run(self) -> None:
        """Watch, tick and enact until cancelled. Nothing has to be undone then: all that is under
        way is begun again by the next process."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._database.shutdown, wait=False)
            stack.push_async_callback(self._close)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_nodes())
                group.create_task(self._read_pods())
                group.create_task(self._read_events())
                group.create_task(self._follow_log())
                group.create_task(self._tick_for_ever())

    def wake(self) -> None:
        """Tick now; to be called in the process's event loop."""
        self._inbox.bell.set()

    def _watch(self, kind: Kind[T], pace: Pace | None) -> Watch[T]:
        return Watch(
            self._kube, kind, pace=pace, clock=self._clock, on_standing=self._note_standing
        )

    async def _read_nodes(self) -> None:
        async for observation in self._watches[0].observations():
            self._inbox.nodes.append(observation)
            self._inbox.bell.set()

    async def _read_pods(self) -> None:
        async for observation in self._watches[1].observations():
            self._inbox.pods.append(observation)
            self._inbox.bell.set()

    async def _read_events(self) -> None:
        """What is said of nodes. How this watch stands says nothing of the cluster: what it tells is
        told by conditions and metrics, too, only later."""
        async for observation in self._events.observations():
            if isinstance(observation, Gone):
                continue
            items = observation.items if isinstance(observation, Listed) else (observation.item,)
            told = [event for event in items if self._is_news(event)]
            if told:
                self._inbox.events += told
                self._inbox.bell.set()

    def _is_news(self, event: NodeEvent) -> bool:
        """An event that tells of a GPU, and not of what was over when we began to look."""
        since = self._began_at - timedelta(seconds=EVENTS_BEFORE_SECONDS)
        told = XID.search(event.reason) or XID.search(event.message)
        return told is not None and event.at is not None and event.at >= since

    def _note_standing(self, standing: Standing) -> None:
        self._inbox.bell.set()

    def _report(self, result: Result) -> None:
        self._inbox.results.append(result)
        self._inbox.bell.set()

    async def _follow_log(self) -> None:
        """Rings when the log has grown."""
        loop = asyncio.get_running_loop()

        def ring(_before: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                loop.call_soon_threadsafe(self._inbox.bell.set)

        await follow_in_thread(ring)

    async def _tick_for_ever(self) -> None:
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            under_way = frozenset(self._under_way)
            began = clock()
            try:
                orders = await self._tick()
            except DatabaseError as error:
                failures += 1
                logger.warning("the database is away: %s", error)
                await asyncio.sleep(database_delay_seconds(failures))
                continue
            except Exception:
                failures += 1
                logger.exception("a tick failed")
                await asyncio.sleep(database_delay_seconds(failures))
                continue
            failures = 0
            sign_of_life("cluster")
            self._start(orders, under_way)
            if not orders.more:
                took = clock() - began
                await self._wait(orders.due, min(took, LONGEST_GATHER_SECONDS))

    async def _wait(self, due: datetime, gather_seconds: float) -> None:
        """Until something comes in, or a moment is due; and then for what comes with it."""
        seconds = (due - self._clock()).total_seconds()
        # Not wait_for: Python 3.11's loses a cancellation that comes together with the bell.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)):
                await self._inbox.bell.wait()
        await asyncio.sleep(max(GATHER_SECONDS, gather_seconds))

    async def _tick(self) -> Orders:
        given = self._inbox.empty(worse_of(watch.standing for watch in self._watches))
        busy = frozenset(self._busy())
        return await self._in_database(partial(self._tick_now, given, busy))

    def _tick_now(self, given: Given, busy: frozenset[AttemptKey]) -> Orders:
        """In the database's thread."""
        self._ticker.take_in(given)
        try:
            return self._ticker.run(self._clock(), busy)
        except DatabaseError:
            self._ticker.doubt()
            connection.close()
            raise
        except Exception:
            # The edge of the process: a defect that one attempt brings out must not end it for all.
            self._ticker.doubt(defect=True)
            raise

    def _busy(self) -> set[AttemptKey]:
        """Attempts of which pods are being created or bound."""
        keys: set[AttemptKey] = set()
        for kind, key in self._under_way:
            if kind == "start" and isinstance(key, tuple):
                keys.add(key)
        return keys

    async def _in_database(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._database, work)

    def _start(self, orders: Orders, under_way: frozenset[Identity]) -> None:
        """Begin what is not under way. What was when the tick began is not begun again, for the
        rows may not have known its outcome: it is looked at again once it is done."""
        for order in orders.actions:
            identity = identity_of(order)
            if identity in self._under_way:
                self._skipped[identity] = again_after(order)
            elif identity in under_way:
                self._look_again(again_after(order))
            else:
                self._begin(identity, partial(self._enactor.carry_out, order))
        for name, wanted in orders.namespaces.items():
            if self._enactor.applied.get(name) != wanted:
                self._begin(("namespace", name), partial(self._enactor.mirror, wanted))
            elif orders.inspect:
                self._begin(("inspect", name), partial(self._enactor.inspect, wanted))

    def _begin(self, identity: Identity, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if identity in self._under_way:
            return
        task = asyncio.get_running_loop().create_task(work())
        self._under_way[identity] = task
        task.add_done_callback(partial(self._done, identity))

    def _look_again(self, result: Result | None) -> None:
        if result is not None:
            self._report(result)

    def _done(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._under_way.pop(identity, None)
        self._look_again(self._skipped.pop(identity, None))
        if not task.cancelled() and (error := task.exception()) is not None:
            # A defect of ours, not a refusal: the attempt is met again by the next full pass.
            logger.error("%s %s failed", *identity, exc_info=error)

    async def _close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._in_database(_close_connection)


def _close_connection() -> None:
    """Each thread has a connection of its own: looked up in the thread that closes it."""
    connection.close()


def worse_of(standings: Iterable[Standing]) -> Standing:
    """How a cluster stands whose kinds are watched one by one: as the worst of them, and heard as
    long ago as the one that was heard last the longest ago."""
    listed = list(standings)
    worst = max(listed, key=lambda s: (_BADNESS[s.state], s.since))
    heard = [s.last_heard for s in listed]
    oldest = None if None in heard else min(h for h in heard if h is not None)
    return replace(worst, last_heard=oldest)


_BADNESS = {WatchState.LIVE: 0, WatchState.CATCHING_UP: 1, WatchState.UNREACHABLE: 2}


def database_delay_seconds(failures: int) -> float:
    """The pause after so many failures in a row."""
    doubled: float = FIRST_DATABASE_DELAY_SECONDS * 2.0 ** min(failures - 1, 10)
    return min(LONGEST_DATABASE_DELAY_SECONDS, doubled)
