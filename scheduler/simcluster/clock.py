"""Simulated time and the one timer heap that everything which happens later hangs on.

A cluster runs on one of three clocks: real time, accelerated time (`speed` simulated seconds a
second), or stepped time, which stands still until `SteppedClock` is advanced. Kubelets, controllers,
faults and log followers all ask this module for the time and for timers, so that a run in stepped
time is the same run every time.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

MAX_RUN_SECONDS = 0.02
"""How long the timer heap may keep the event loop busy before it lets others in, in real seconds."""


class Clock(Protocol):
    """What tells the time: seconds since 1970 in the cluster's own time."""

    speed: float

    def now(self) -> float:
        """The cluster's time in seconds since 1970."""


class RunningClock:
    """Real time (speed 1) or accelerated time, from `start` (default: the real time now)."""

    def __init__(self, *, speed: float = 1.0, start: float | None = None) -> None:
        if speed <= 0:
            raise ValueError("speed must be above 0")
        self.speed = speed
        self._start = time.time() if start is None else start
        self._origin = time.monotonic()

    def now(self) -> float:
        """The cluster's time in seconds since 1970."""
        return self._start + (time.monotonic() - self._origin) * self.speed


class SteppedClock:
    """Time that stands still until `Timers.advance` moves it. Default start: 2026-01-01."""

    speed = 1.0

    def __init__(self, start: float = 1767225600.0) -> None:
        self.moment = start

    def now(self) -> float:
        """The cluster's time in seconds since 1970."""
        return self.moment


class Timer:
    """One thing that will happen; `cancel()` makes it not happen."""

    __slots__ = ("action", "due")

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Forgets the action; harmless when it has run."""
        self.action = None


class Timers:
    """The heap of all timers of a cluster. Same due time: first come, first run."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: asyncio.TimerHandle | None = None
        self._wakeup_due = float("inf")
        self._running = False

    def at(self, due: float, action: Callable[[], None]) -> Timer:
        """Runs `action` when the cluster's time reaches `due`."""
        timer = Timer(due, action)
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, timer))
        if self._loop is not None and due < self._wakeup_due and not self._running:
            self._arm()
        return timer

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Runs `action` in `seconds` of the cluster's time."""
        return self.at(self.clock.now() + seconds, action)

    def next_due(self) -> float | None:
        """When the next timer is due, or None when there is none."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self, *, budget_seconds: float = float("inf")) -> None:
        """Runs what is due now, in order of time, including what that adds."""
        if self._running:
            return
        self._running = True
        stop_at = time.monotonic() + budget_seconds
        try:
            now = self.clock.now()
            while (due := self.next_due()) is not None and due <= now:
                timer = heapq.heappop(self._heap)[2]
                action, timer.action = timer.action, None
                if action is not None:
                    action()
                if time.monotonic() > stop_at:
                    break
        finally:
            self._running = False

    def advance(self, seconds: float) -> None:
        """Moves a stepped clock forward, running every timer at its own time.

        Raises TypeError on a clock that runs by itself.
        """
        clock = self.clock
        if not isinstance(clock, SteppedClock):
            raise TypeError("only a stepped clock can be advanced")
        target = clock.moment + seconds
        self.run_due()
        while (due := self.next_due()) is not None and due <= target:
            clock.moment = max(clock.moment, due)
            self.run_due()
        clock.moment = target

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lets the event loop run the timers of a clock that runs by itself."""
        self._loop = loop
        self._arm()

    def detach(self) -> None:
        """Stops running timers."""
        self._loop = None
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None

    def settle(self) -> None:
        """After a request: what is due at this very moment happens now on a stepped clock."""
        if isinstance(self.clock, SteppedClock):
            self.run_due()

    def _arm(self) -> None:
        due = self.next_due()
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        self._wakeup_due = float("inf")
        if due is None or self._loop is None or isinstance(self.clock, SteppedClock):
            return
        self._wakeup_due = due
        delay = max(0.0, (due - self.clock.now()) / self.clock.speed)
        self._wakeup = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._wakeup = None
        self._wakeup_due = float("inf")
        try:
            self.run_due(budget_seconds=MAX_RUN_SECONDS)
        finally:
            self._arm()  # a defect in one action must not stop the others


_stamp_second = -1
_stamp_text = ""


def stamp(moment: float) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes `metav1.Time`."""
    global _stamp_second, _stamp_text
    second = int(moment)
    if second != _stamp_second:
        _stamp_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        _stamp_second = second
    return _stamp_text


def micro_stamp(moment: float) -> str:
    """RFC 3339 in microseconds, as Kubernetes writes `metav1.MicroTime`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nano_stamp(moment: float) -> str:
    """RFC 3339 in nanoseconds, as container runtimes stamp log lines."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def moment_of(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 stamp. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
