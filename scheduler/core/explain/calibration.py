"""From a limit-based start to a range: what became of earlier estimates.

Pure arithmetic on pairs kept by the caller: at each submission the plan's estimated wait, and the
wait that really came. Only pairs of jobs that have started count, so that a range never uses what
was not known.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

KEPT = 1_000
"""How many of the latest pairs count."""

_LEAST = 20
"""With fewer pairs the range is [half the bound, the bound]."""


@dataclass(frozen=True, slots=True)
class Range:
    """A start estimate: float seconds since the epoch."""

    p50: float
    p90: float


class Calibration:
    """The ratios of real to planned waits of jobs that had to wait, the latest `KEPT` of them."""

    def __init__(self, pairs: Iterable[tuple[float, float]] = ()) -> None:
        """`pairs` are (planned wait, real wait) in seconds, in order of start."""
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        for planned, real in pairs:
            self.learn(planned, real)

    def learn(self, planned_seconds: float, real_seconds: float) -> None:
        """A job has started: what was planned at its submission, and what came."""
        if planned_seconds <= 0:
            return
        ratio = max(0.0, real_seconds / planned_seconds)
        self._latest.append(ratio)
        insort(self._sorted, ratio)
        if len(self._latest) > KEPT:
            old = self._latest.popleft()
            del self._sorted[bisect_left(self._sorted, old)]

    def range_for(self, now: float, starts_at: float) -> Range:
        """The range of a start that the plan puts at `starts_at`."""
        planned = max(0.0, starts_at - now)
        if len(self._sorted) < _LEAST:
            return Range(now + planned / 2, now + planned)
        return Range(
            now + planned * self._quantile(0.50),
            now + planned * self._quantile(0.90),
        )

    def _quantile(self, share: float) -> float:
        place = math.ceil(share * (len(self._sorted) + 1)) - 1
        return self._sorted[min(max(place, 0), len(self._sorted) - 1)]
