"""The processes of a run: scheduler workers and the cluster process, each dying and coming back as a supervisor
would bring it back, all in one virtual-time event loop and one thread."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from django.db import DatabaseError, connection

from queues.models import Cluster
from scheduler.apply.fence import LeaseLostError
from scheduler.kube.connection import Connection, Params
from scheduler.kube.credentials import Credentials
from scheduler.logstore import LogStore
from scheduler.loop.cycle import ClusterLoop
from scheduler.reconcile.process import ClusterProcess
from scheduler.reconcile.tick import Given, Orders
from scheduler.reconcile.view import AttemptKey
from tests.chaos.crashes import Crash, CrashPoints
from tests.chaos.virtual import LoopClock
from tests.deploy.roles import token_of

logger = logging.getLogger(__name__)
RESTART_SECONDS = 2.0
BEAT_SECONDS = 1.0
QUIET_BEAT_SECONDS = 5.0
"""Where hours have to pass: what is due by the clock alone comes a little later, what the log tells as soon."""
RETRY_SECONDS = 0.5
PAUSE_SECONDS = 25.0


class Paused(BaseException):
    """A leader stands still with a plan in its hands; `finish` is what it will do when it goes on."""

    def __init__(self, finish: Callable[[], Any]) -> None:
        super().__init__()
        self.finish = finish


@dataclass(slots=True)
class Backstage:
    """What all processes of a run share. `acting` says whose statements those are that run now."""

    cluster: Cluster
    clock: LoopClock
    points: CrashPoints
    socket: Path
    store: LogStore
    jitter: Callable[[], float]
    bells: list[Callable[[], None]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    old_plans_refused: int = 0

    def ring(self) -> None:
        """The log has grown: everybody who follows it wakes up."""
        for bell in self.bells:
            bell()

    @contextmanager
    def acting(self, who: str) -> Iterator[None]:
        """Statements run until the block ends are those of `who`."""
        self.points.actor = who
        try:
            yield
        finally:
            self.points.actor = ""


class Worker:
    """A scheduler worker: a loop that ticks each second and on the bell, as `scheduler.loop.pulse` does."""

    def __init__(self, name: str, stage: Backstage, beat_seconds: float) -> None:
        self.name, self._stage, self._beat_seconds = name, stage, beat_seconds
        self.loop: ClusterLoop | None = None
        self._bell = asyncio.Event()
        self._life = 0

    async def run(self) -> None:
        """Live, die, and be started again, until cancelled."""
        self._stage.bells.append(self._bell.set)
        while True:
            try:
                await self._live()
            except Crash:
                self.loop = None
                await asyncio.sleep(RESTART_SECONDS)

    async def _live(self) -> None:
        cluster = self._stage.cluster
        self._life += 1
        loop = asyncio.get_running_loop()
        holder = f"{self.name}/{self._life}"
        self.loop = ClusterLoop(cluster.pk, cluster.name, holder, clock=loop.time)
        while True:
            try:
                with self._stage.acting("worker"):
                    self.loop.tick(self._stage.clock())
            except DatabaseError:
                self.loop.forget()
                connection.close()
                await asyncio.sleep(RETRY_SECONDS)
            except Paused as paused:
                await self._stand_still(paused)
            else:
                await self._wait(0.0 if self.loop.wants_more else self._beat_seconds)

    async def _stand_still(self, paused: Paused) -> None:
        """As a process that was stopped and goes on: it still believes that it leads."""
        await asyncio.sleep(PAUSE_SECONDS)
        try:
            with self._stage.acting("worker"):
                paused.finish()
        except LeaseLostError:
            self._stage.old_plans_refused += 1
        except DatabaseError:
            connection.close()
        # Without a new leader the plan is as good as it was: applying it is right.

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()


class SocketConnection(Connection):
    """The adapter's connection over a Unix socket, as the shipped service account; passes a crash point before
    and after each call."""

    def __init__(self, stage: Backstage, die: Callable[[], None]) -> None:
        credentials = Credentials("http://kubernetes", None)
        super().__init__(credentials, jitter=stage.jitter)
        self._stage, self._die = stage, die

    async def __aenter__(self) -> "SocketConnection":
        await super().__aenter__()
        assert self._session is not None
        await self._session.close()
        limits = self._limits
        timeout = aiohttp.ClientTimeout(total=limits.call_seconds, connect=limits.connect_seconds)
        connector = aiohttp.UnixConnector(path=str(self._stage.socket), limit=0)
        headers = {
            "Accept": "application/json",
            "User-Agent": "muster",
            "Authorization": f"Bearer {token_of('muster-cluster')}",
        }
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)
        return self

    async def _once(
        self, method: str, path: str, params: Params | None, payload: bytes | None,
        content_type: str, *, renew: bool,
    ) -> bytes:  # fmt: skip
        step = _step_of(method, path)
        await self._pass(f"{step}.before")
        answer = await super()._once(method, path, params, payload, content_type, renew=renew)
        await self._pass(f"{step}.after")
        return answer

    async def _pass(self, step: str) -> None:
        if self._stage.points.strikes(f"cluster.{step}"):
            self._die()
            await asyncio.Event().wait()  # nothing more comes of this process


def _step_of(method: str, path: str) -> str:
    if method == "POST" and path.endswith("/pods"):
        return "create"
    if method == "POST" and path.endswith("/binding"):
        return "bind"
    if method == "DELETE" and "/pods/" in path:
        return "delete"
    return "other"


class _Process(ClusterProcess):
    """The cluster process, woken by the run's bell instead of a thread that follows the log."""

    stage: Backstage

    async def _follow_log(self) -> None:
        self.stage.bells.append(self.wake)
        try:
            await asyncio.Event().wait()
        finally:
            self.stage.bells.remove(self.wake)

    async def _tick(self) -> Orders:
        if self.stage.points.strikes("cluster.pause"):
            await asyncio.sleep(PAUSE_SECONDS)  # what it has begun goes on, and it looks at nothing
        return await super()._tick()

    def _tick_now(self, given: Given, busy: frozenset[AttemptKey]) -> Orders:
        with self.stage.acting("cluster"):
            self.stage.points.pass_("cluster.observe.before")
            orders = super()._tick_now(given, busy)
            self.stage.points.pass_("cluster.observe.after")
        return orders


class Supervised:
    """The cluster process under a supervisor that starts it again two seconds after its death.

    Two of them at once are a process that nobody could stop, and its successor.
    """

    def __init__(self, stage: Backstage) -> None:
        self._stage = stage
        self._task: asyncio.Task[None] | None = None

    def die(self) -> None:
        """kill -9."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            async with SocketConnection(self._stage, self.die) as kube:
                process = _Process(
                    self._stage.cluster, kube, self._stage.store, clock=self._stage.clock
                )
                process.stage = self._stage
                self._task = asyncio.get_running_loop().create_task(process.run())
                try:
                    await asyncio.wait([self._task])
                finally:
                    self._task.cancel()
                    ends = await asyncio.gather(self._task, return_exceptions=True)
            self._complain_unless_killed(ends[0])
            await asyncio.sleep(RESTART_SECONDS)

    def _complain_unless_killed(self, end: BaseException | None) -> None:
        if isinstance(end, asyncio.CancelledError):
            return
        if isinstance(end, BaseExceptionGroup) and end.split(Crash)[1] is None:
            return
        self._stage.complaints.append(f"the cluster process ended by itself: {end!r}")


@dataclass(frozen=True, slots=True)
class Routine:
    """Something more that a run does every so often: a tick of health, of maintenance windows.

    wakes: asked whenever the log has grown; True has it done at once.
    """

    name: str
    every_seconds: float
    act: Callable[[datetime], None]
    wakes: Callable[[], bool] = lambda: False

    async def run(self, stage: Backstage) -> None:
        """Until cancelled; a database that is away is met again at the next turn."""
        bell = asyncio.Event()
        stage.bells.append(bell.set)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                with stage.acting(self.name):
                    if loop.time() >= due or self.wakes():
                        due = loop.time() + self.every_seconds
                        self.act(stage.clock())
            except DatabaseError:
                connection.close()
                due = loop.time() + RETRY_SECONDS
            except Crash:
                await asyncio.sleep(RESTART_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await bell.wait()
            bell.clear()
