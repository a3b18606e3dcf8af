"""The loop of the `health` process: a whole pass every so often, and at once the nodes of which something was heard.

A pod that fails, or a node whose allocatable falls, may be a dying GPU: such nodes are looked at within a second, and
closely for half a minute after, since an exporter collects only every so often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import connection

from controlplane.common.alive import sign_of_life
from controlplane.common.follow import follow_in_thread
from controlplane.common.models import Event
from queues.models import Attempt, Cluster, Placement
from scheduler.kube.errors import KubeError
from scheduler.models import Node
from scheduler.scraping.fetching import Scrapes, Source
from scheduler.services.health.scene import policy_of
from scheduler.services.health.work import LogTimes
from scheduler.services.health_tick import HealthTicker

logger = logging.getLogger(__name__)
T = TypeVar("T")

CLOSELY = timedelta(seconds=30)
CLOSE_SECONDS = 1.0
PAUSE_SECONDS = 2.0
# Whose logs are looked at: attempts whose GPUs have been idle for at least that long.
QUIET_SECONDS = 60.0
MOST_LOGS = 64


def utc_now() -> datetime:
    """The clock of a running process."""
    return datetime.now(UTC)


class LastLines:
    """When the log of a pod last grew; asks Kubernetes, so only of few pods."""

    async def times(self, placements: Collection[Placement]) -> dict[int, datetime]:
        """By placement; missing where nobody can say."""
        return {}


@dataclass(slots=True)
class Closely:
    """Nodes to be looked at now, and those to be watched closely until when. Used in the event loop alone."""

    until: dict[str, datetime] = field(default_factory=dict)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, nodes: Iterable[str], now: datetime) -> None:
        """Look at these at once, and for a while."""
        for node in nodes:
            self.until[node] = now + CLOSELY
        if self.until:
            self.bell.set()

    def due(self, now: datetime) -> list[str]:
        """Those to look at now; forgets whose time is over."""
        self.until = {node: until for node, until in self.until.items() if until > now}
        return sorted(self.until)


class HealthProcess:
    """Watches the health of one cluster until cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        *,
        refresh: Callable[[], object] | None = None,
        last_lines: LastLines | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._cluster, self._source, self._clock = cluster, source, clock
        self._refresh = refresh
        self._last_lines = last_lines or LastLines()
        self._ticker = HealthTicker(cluster)
        self._closely = Closely()
        self._database = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._seq = 0

    async def run(self) -> None:
        """Scrape and judge until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._database.shutdown, wait=False)
            stack.push_async_callback(self._close)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._passes())
                group.create_task(self._looks())
                group.create_task(self._follow_log())

    async def _passes(self) -> None:
        """The whole cluster, again and again."""
        spread = 0.0
        while True:
            began = self._clock()
            seconds = await self._guarded(partial(self._whole_pass, spread)) or PAUSE_SECONDS
            # From the second pass on, fetches are spread over a quarter of the interval.
            spread = seconds / 4
            left = seconds - (self._clock() - began).total_seconds()
            await asyncio.sleep(max(left, 0.5))

    async def _whole_pass(self, spread: float) -> float:
        if self._refresh is not None:
            await _awaited(self._refresh())
        nodes, seconds = await self._in_database(self._all_nodes)
        log_times = await self._log_times()
        seen_at = self._clock()
        scrapes = await self._source.read(nodes, min(spread, seconds / 4))
        await self._in_database(partial(self._judge, scrapes, log_times, seen_at))
        sign_of_life("health")
        return float(seconds)

    def _all_nodes(self) -> tuple[list[str], int]:
        rows = Node.objects.filter(
            cluster=self._cluster, gone_at__isnull=True, flavor__isnull=False
        )
        names = list(rows.order_by("name").values_list("name", flat=True))
        return names, policy_of(self._cluster).scrape_seconds

    async def _looks(self) -> None:
        """The nodes that something was heard of."""
        while True:
            await self._closely.bell.wait()
            self._closely.bell.clear()
            while nodes := self._closely.due(self._clock()):
                await self._guarded(partial(self._look, nodes))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._closely.bell.wait()
                self._closely.bell.clear()

    async def _look(self, nodes: list[str]) -> float:
        seen_at = self._clock()
        scrapes = await self._source.read(nodes, 0.0)
        await self._in_database(partial(self._judge, scrapes, {}, seen_at))
        return 0.0

    def _judge(self, scrapes: Scrapes, log_times: LogTimes, seen_at: datetime) -> None:
        """In the database's thread."""
        try:
            self._ticker.judge(scrapes, self._clock(), log_times, seen_at)
        except DatabaseError:
            connection.close()
            raise

    async def _log_times(self) -> LogTimes:
        quiet = self._ticker.work.quiet_attempts(QUIET_SECONDS, self._clock())
        if not quiet:
            return {}
        placements = await self._in_database(partial(_quiet_placements, quiet))
        try:
            return await self._last_lines.times(placements)
        except KubeError as error:
            logger.info("logs cannot be looked at: %s", error)
            return {}

    async def _guarded(self, work: Callable[[], object]) -> float:
        """A round that fails is told and tried again: the edge of the process."""
        try:
            return await _awaited(work())
        except DatabaseError as error:
            logger.warning("the database is away: %s", error)
        except Exception:
            logger.exception("a round failed")
        await asyncio.sleep(PAUSE_SECONDS)
        return 0.0

    # The log tells which nodes are worth a look at once.

    async def _follow_log(self) -> None:
        loop = asyncio.get_running_loop()

        def look(before: int) -> None:
            nodes = self._heard_of(before)
            if nodes:
                with contextlib.suppress(RuntimeError):  # the loop has just closed
                    loop.call_soon_threadsafe(self._closely.watch, nodes, self._clock())

        await follow_in_thread(look)

    def _heard_of(self, before: int) -> set[str]:
        """In the thread that follows the log."""
        try:
            return worth_a_look(self._cluster, before) if before else set()
        except DatabaseError as error:
            logger.warning("the event log cannot be read: %s", error)
            connection.close()
            return set()

    async def _in_database(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._database, work)

    async def _close(self) -> None:
        await self._in_database(_close_connection)


def _close_connection() -> None:
    """Each thread has a connection of its own: looked up in the thread that closes it."""
    connection.close()


async def _awaited(found: object) -> float:
    result = await found if asyncio.iscoroutine(found) else found
    return float(result) if isinstance(result, (int, float)) else 0.0


def _quiet_placements(attempts: list[int]) -> list[Placement]:
    rows = Placement.objects.filter(attempt__in=attempts[:MOST_LOGS], ended_at__isnull=True)
    rows = rows.filter(attempt__job__stall_timeout_seconds__isnull=False)
    return list(rows.select_related("attempt__job__tenant").order_by("attempt", "rank")[:MOST_LOGS])


def worth_a_look(cluster: Cluster, seq: int) -> set[str]:
    """Nodes of which events since `seq` tell that a GPU may be dying, or that they wait for a verdict."""
    events = Event.objects.filter(seq__gt=seq, cluster=cluster.name).filter(
        kind__in=("node.changed", "attempt.stopping", "node.health")
    )
    nodes: set[str] = set()
    attempts: set[tuple[str, int]] = set()
    for kind, node, job, numbers in events.values_list("kind", "node", "job", "numbers"):
        if kind == "attempt.stopping":
            if numbers.get("cause") == "failed":
                attempts.add((job, int(numbers.get("attempt", 0))))
        elif kind == "node.changed" or numbers.get("what") in ("burn_in", "return"):
            nodes.add(node)
    for job, number in attempts:
        rows = Attempt.objects.filter(job=job, number=number)
        nodes |= set(rows.values_list("placements__node", flat=True)) - {None}
    return nodes
