"""A `HealthProcess` in a thread with an event loop of its own, reading a simulated cluster's exporters."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path

from queues.models import Cluster
from scheduler.kube.connection import Connection
from scheduler.kube.credentials import load_credentials
from scheduler.management.commands.run_health import LastLinesOfPods
from scheduler.scraping.fetching import Source, through_api_server
from scheduler.scraping.process import HealthProcess
from tests.reconcile.world import ShiftedClock


class RunningHealth:
    """Started like `run_health`; `source` instead of the API server's proxy where given."""

    def __init__(
        self, cluster: Cluster, kubeconfig: str, clock: ShiftedClock, source: Source | None = None
    ) -> None:
        self._cluster, self._kubeconfig, self._clock = cluster, Path(kubeconfig), clock
        self._source = source
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="health-process", daemon=True)

    def start(self) -> RunningHealth:
        self._thread.start()
        return self

    def stop(self) -> None:
        """As SIGTERM does; raises what the process died of."""
        if self._loop is not None and self._task is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._ended.result(20)
        self._thread.join(20)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._ended.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            kube = await stack.enter_async_context(Connection(load_credentials(self._kubeconfig)))
            source = self._source or through_api_server(kube)
            process = HealthProcess(
                self._cluster, source, clock=self._clock, last_lines=LastLinesOfPods(kube)
            )
            self._task = asyncio.create_task(process.run())
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
