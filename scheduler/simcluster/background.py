"""A simulated cluster in a thread of its own, for tests and tools that are not asynchronous.

`with ThreadedSimCluster(profile="demo") as sim: … sim.url, sim.kubeconfig`
"""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from scheduler.simcluster.clock import Clock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import Profile

T = TypeVar("T")
START_SECONDS = 60.0


class ThreadedSimCluster:
    """Runs a `SimCluster` in a thread; `call` runs a function inside its event loop."""

    def __init__(
        self, profile: Profile | str = "demo", *, clock: Clock | None = None,
        options: Options | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        self._make: Callable[[], SimCluster] = lambda: SimCluster(
            profile, clock=clock, options=options, seed=seed
        )
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="simcluster", daemon=True)
        self.cluster: SimCluster

    @property
    def url(self) -> str:
        """The API server's address."""
        return self.cluster.url

    @property
    def kubeconfig(self) -> str:
        """Path of the kubeconfig."""
        return self.cluster.kubeconfig

    def start(self) -> None:
        """Returns when the cluster answers. Raises what kept it from starting."""
        self._thread.start()
        self._ready.wait(START_SECONDS)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stops the cluster and its thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def call(self, action: Callable[[SimCluster], T]) -> T:
        """Runs `action(cluster)` in the cluster's own thread and returns its result."""
        assert self._loop is not None

        async def inside() -> T:
            return action(self.cluster)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(START_SECONDS)

    def advance(self, seconds: float) -> None:
        """Moves a stepped clock."""
        self.call(lambda cluster: cluster.advance(seconds))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that started us
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.cluster = self._make()
        async with self.cluster:
            self._ready.set()
            await self._stop.wait()
