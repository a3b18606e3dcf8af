"""The loop of the `health` process: pass after pass over the whole cluster, and at once the nodes of which something
was heard.

A pass is spread over its interval, some nodes at a time, so that it never takes the machine from those who start jobs.
A pod that fails, or a node whose allocatable falls, may be a dying GPU: such nodes are looked at within a second, and
again for half a minute after, since an exporter collects only every so often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import connection

from controlplane.common.alive import sign_of_life
from controlplane.common.follow import follow_in_thread
from queues.models import Cluster, Placement
from scheduler.kube.errors import KubeError
from scheduler.models import Node
from scheduler.scraping.closely import Closely, Heard, heard_since
from scheduler.scraping.fetching import Scrapes, Source
from scheduler.services.health.scene import policy_of
from scheduler.services.health.work import LogTimes
from scheduler.services.health_tick import HealthTicker

logger = logging.getLogger(__name__)
T = TypeVar("T")

PAUSE_SECONDS = 2.0
# Nodes a batch, at least; a pass has at most so many batches, over this share of its interval.
BATCH_NODES, MOST_BATCHES, SHARE = 16, 24, 0.8
MOST_LOGS = 256
# The log is read at most that often: a burst of starts is heard of in a few gulps.
LISTEN_EVERY_SECONDS = 0.25


def utc_now() -> datetime:
    """The clock of a running process."""
    return datetime.now(UTC)


class LastLines:
    """When the log of a pod last grew; asks Kubernetes, so only of few pods."""

    async def times(self, placements: Collection[Placement]) -> LogTimes:
        """By placement: None where it has no line; missing where nobody can say."""
        return {}


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
        # Nodes that are being read and judged: never twice at once, so that no older page is judged after a newer.
        self._busy: set[str] = set()
        self._disturbed: set[str] = set()
        self._database = ThreadPoolExecutor(1, thread_name_prefix="database")

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
        """The whole cluster, again and again. The first pass is in one go: it says who belongs to the cluster."""
        seconds = 0.0
        while True:
            began = self._clock()
            seconds = await self._guarded(partial(self._whole_pass, seconds)) or PAUSE_SECONDS
            left = seconds - (self._clock() - began).total_seconds()
            await asyncio.sleep(max(left, 0.5))

    async def _whole_pass(self, spread_over: float) -> float:
        """One pass, spread over so many seconds. Answers how long the next one may take."""
        if self._refresh is not None:
            await _awaited(self._refresh())
        names, seconds = await self._in_database(self._all_nodes)
        log_times = await self._log_times()
        batches = in_batches(names, whole=not spread_over or self._source.answers_for_all)
        for number, batch in enumerate(batches):
            began = time.monotonic()
            await self._read_and_judge(batch)
            sign_of_life("health")
            if number < len(batches) - 1:
                rest = spread_over * SHARE / len(batches) - (time.monotonic() - began)
                await asyncio.sleep(max(rest, 0.0))
        work = partial(self._ticker.conclude, names, log_times, self._clock())
        await self._in_database(partial(_closing_when_lost, work))
        return float(seconds)

    async def _read_and_judge(self, nodes: Collection[str], *, awaited: bool = False) -> None:
        mine = [node for node in nodes if node not in self._busy]
        self._busy.update(mine)
        try:
            seen_at = self._clock()
            scrapes = await self._source.read(mine)
            if scrapes:
                judge = partial(self._judge, scrapes, seen_at, awaited=awaited)
                await self._in_database(partial(_closing_when_lost, judge))
        finally:
            self._busy.difference_update(mine)

    def _all_nodes(self) -> tuple[list[str], int]:
        rows = Node.objects.filter(
            cluster=self._cluster, gone_at__isnull=True, flavor__isnull=False
        )
        names = list(rows.order_by("name").values_list("name", flat=True))
        return names, policy_of(self._cluster).scrape_seconds

    async def _looks(self) -> None:
        """The nodes that something was heard of."""
        while True:
            pause = self._closely.pause_seconds(self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closely.bell.wait()
            self._closely.bell.clear()
            if nodes := self._closely.due(self._clock(), self._busy):
                await self._guarded(partial(self._read_and_judge, nodes, awaited=True))

    def _judge(self, scrapes: Scrapes, seen_at: datetime, *, awaited: bool) -> None:
        """In the database's thread."""
        disturbed, self._disturbed = self._disturbed, set()
        self._ticker.disturb(disturbed)
        self._ticker.look(scrapes, self._clock(), seen_at, awaited=awaited)

    async def _log_times(self) -> LogTimes:
        wanted = self._ticker.work.logs_wanted[:MOST_LOGS]
        if not wanted:
            return {}
        placements = await self._in_database(partial(_placements, wanted))
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

        def listen(before: int) -> None:
            heard = self._heard_since(before)
            if heard.nodes:
                with contextlib.suppress(RuntimeError):  # the loop has just closed
                    loop.call_soon_threadsafe(self._take_heard, heard)
            time.sleep(LISTEN_EVERY_SECONDS)

        await follow_in_thread(listen)

    def _take_heard(self, heard: Heard) -> None:
        self._disturbed |= heard.nodes
        self._closely.watch(heard, self._clock())

    def _heard_since(self, before: int) -> Heard:
        """In the thread that follows the log."""
        try:
            return heard_since(self._cluster, before) if before else Heard()
        except DatabaseError as error:
            logger.warning("the event log cannot be read: %s", error)
            connection.close()
            return Heard()

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


def _closing_when_lost(work: Callable[[], None]) -> None:
    """A connection that the database has closed is given up, so that the next round opens another one."""
    try:
        work()
    except DatabaseError:
        connection.close()
        raise


def in_batches(names: list[str], *, whole: bool) -> list[list[str]]:
    """The nodes of a pass, some at a time; all at once where one answer tells of all of them."""
    if whole:
        return [names]
    size = max(BATCH_NODES, -(-len(names) // MOST_BATCHES))
    return [names[first : first + size] for first in range(0, len(names), size)] or [[]]


def _placements(numbers: list[int]) -> list[Placement]:
    rows = Placement.objects.filter(pk__in=numbers, ended_at__isnull=True)
    return list(rows.select_related("attempt__job__tenant"))
