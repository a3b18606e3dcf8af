"""An event loop on virtual time: when nothing is ready, time jumps to the next timer.

Everything that runs in it, the simulated API server, its kubelets, the watches and time-outs of
the cluster process, waits by this loop's clock, so that minutes pass in a moment. Work for threads
is done at once and in place: one thread, one order, the same every time. Sockets must be Unix
sockets, on which what was written is there to be read at the same instant.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

START = 1_767_225_600.0
"""When every run begins: 2026-01-01."""


class _Jumper(Protocol):
    def jump(self, seconds: float) -> None: ...


class NothingLeftError(RuntimeError):
    """No timer and no socket will ever wake anything again."""


class _JumpingSelector(selectors.BaseSelector):
    """Asks the system what is ready; instead of waiting it lets time pass."""

    def __init__(self, owner: _Jumper) -> None:
        self._owner = owner
        self._inner = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise NothingLeftError("nothing is ready and no timer is set")
        self._owner.jump(timeout)
        return []

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0 and moves only when everybody waits."""

    def __init__(self) -> None:
        self._moment = 0.0
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._moment

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._moment += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do it here and now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - handed on, as a thread pool does
            done.set_exception(error)
        return done


class LoopClock:
    """A loop's time as the simulated cluster's clock and as everybody's `now`."""

    speed = 1.0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Seconds since 1970."""
        return START + self._loop.time()

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)
