"""Watches processes: restarts a dead one, stops all of them together, leaves none behind.

async with Supervisor(folder) as supervisor:
    supervisor.add(spec)
    await supervisor.until_stopped()
"""

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from controlplane.processes import child
from controlplane.processes.child import Child
from controlplane.processes.logs import ProcessLog
from controlplane.processes.spec import STEADY_SECONDS, ProcessSpec, pause_before_restart


@dataclass(slots=True)
class Watched:
    """A process being kept alive. quick_deaths: in a row, each soon after its start."""

    spec: ProcessSpec
    log: ProcessLog
    process: asyncio.subprocess.Process | None = None
    quick_deaths: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Supervisor:
    """log_folder: one file a process. echo: also print their lines. pid_file: where tests find the pids."""

    log_folder: Path
    echo: bool = False
    pid_file: Path | None = None
    watched: dict[str, Watched] = field(default_factory=dict)
    _keepers: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.request_stop)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def add(self, spec: ProcessSpec) -> None:
        """Start a process and keep it running until `stop`."""
        entry = Watched(spec, ProcessLog(self.log_folder, spec.name, self.echo))
        self.watched[spec.name] = entry
        self._keepers.append(asyncio.create_task(self._keep(entry), name=f"keep {spec.name}"))

    async def run_once(self, spec: ProcessSpec) -> int:
        """Run a step to its end and answer its exit code; a stop request ends it early (-SIGTERM)."""
        log = ProcessLog(self.log_folder, spec.name, self.echo)
        started = await child.start(spec)
        await self._until_ended(started, spec.grace_seconds, log)
        log.close()
        return started.process.returncode or 0

    def request_stop(self) -> None:
        """What SIGINT and SIGTERM do; the second time, nobody is asked politely."""
        if self._stopping.is_set():
            for entry in self.watched.values():
                if entry.process is not None:
                    child.kill_group(entry.process.pid)
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stopping.is_set()

    async def until_stopped(self, timeout_seconds: float | None = None) -> bool:
        """Wait for a stop request; False at the time-out."""
        try:
            await asyncio.wait_for(self._stopping.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End all processes at once and wait until each is gone."""
        self._stopping.set()
        await asyncio.gather(*self._keepers)
        if self.pid_file is not None:
            self.pid_file.unlink(missing_ok=True)

    async def _keep(self, entry: Watched) -> None:
        """Start, watch, start again: until the supervisor stops."""
        while not self._stopping.is_set():
            lived = await self._one_life(entry)
            if self._stopping.is_set():
                break
            entry.quick_deaths = 0 if lived > STEADY_SECONDS else entry.quick_deaths + 1
            entry.restarts += 1
            pause = pause_before_restart(entry.quick_deaths)
            entry.log.note(f"{entry.spec.name} ended; starting it again in {pause:.1f} s")
            await self.until_stopped(pause)
        entry.log.close()

    async def _one_life(self, entry: Watched) -> float:
        """Run the process until it ends or we stop. Answers how many seconds it lived."""
        began = time.monotonic()
        try:
            started = await child.start(entry.spec)
        except OSError as error:
            entry.log.note(f"{entry.spec.name} cannot be started: {error}")
            return 0.0
        entry.process = process = started.process
        self._write_pids()
        await self._until_ended(started, entry.spec.grace_seconds, entry.log)
        entry.log.note(f"{entry.spec.name} (pid {process.pid}) ended with {process.returncode}")
        entry.process = None
        return time.monotonic() - began

    async def _until_ended(self, started: Child, grace_seconds: float, log: ProcessLog) -> None:
        """Copy what it says until it ends by itself or a stop request ends it."""
        reading = asyncio.create_task(_read_lines(started.output, log))
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(started.process.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await child.stop(started.process, grace_seconds)
        await asyncio.gather(ended, reading)

    def _write_pids(self) -> None:
        """Tell others who is who. Written whole, then renamed, so that nobody reads half."""
        if self.pid_file is None:
            return
        pids = {e.spec.name: e.process.pid for e in self.watched.values() if e.process is not None}
        fresh = self.pid_file.with_suffix(".new")
        fresh.write_text(json.dumps({"supervisor": os.getpid(), **pids}))
        fresh.replace(self.pid_file)


async def _read_lines(output: asyncio.StreamReader, log: ProcessLog) -> None:
    """Copy what a process says into its log until its pipe closes."""
    while True:
        try:
            line = await output.readline()
        except ValueError:  # longer than the reader's limit: what was read of it is dropped
            log.note("a line longer than 1 MiB was left out")
            continue
        if not line:
            return
        log.write(line)
