"""How good are the start estimates? A replay that tells each waiting job its range and keeps what came.

Causal: at each submission only what was known then is used, that is the plan at that moment and the
waits of jobs that have started by then. Used by tests and benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.core.explain.calibration import Calibration, Range
from scheduler.core.outputs import Plan
from scheduler.core.planner import plan
from scheduler.replay.engine import Replay

_EVERY_JOB = 1 << 30


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a job that did not start at once was told: the start if all run to their limits
    (`bound`), the calibrated range, and the start that came. Seconds."""

    job: str
    told_at: float
    bound: float
    told: Range
    started_at: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of starts not later than told, and the mean pinball losses of both quantiles together:
    of the range, and of the bound taken for both."""

    forecasts: int
    p50_covers: float
    p90_covers: float
    pinball_seconds: float
    pinball_of_bound_seconds: float


@dataclass(slots=True)
class ForecastingReplay(Replay):
    """A replay that also tells starts; decisions are those of a plain replay. Read `forecasts` after."""

    forecasts: list[Forecast] = field(default_factory=list)
    unknown: int = 0
    """Jobs to which no start could be told (something that never ends was in the way)."""
    _calibration: Calibration = field(default_factory=Calibration)
    _told: dict[str, tuple[float, float, Range]] = field(default_factory=dict)

    def asks_at(self, now: float) -> bool:
        """Also where somebody new waits: it is told its start."""
        return Replay.asks_at(self, now) or bool(self._fresh(now))

    def _fresh(self, now: float) -> list[str]:
        fresh: list[str] = []
        for job in reversed(self._waiting.values()):
            # Jobs wait in the order in which they came.
            if job.submitted_at != now:
                break
            fresh.append(job.id)
        return fresh[::-1]

    def plan_at(self, now: float) -> Plan:
        """The plan, with estimates where somebody new waits."""
        fresh = self._fresh(now)
        if not fresh:
            made = Replay.plan_at(self, now)
            self._learn(now, made)
            return made
        self.plans += 1
        wanted = replace(self.options, estimates=_EVERY_JOB)
        made = plan(self.snapshot_at(now), wanted, self._memo)
        self._learn(now, made)
        self._tell(now, made, fresh)
        return made

    def _learn(self, now: float, made: Plan) -> None:
        for start in made.starts:
            told = self._told.pop(start.job, None)
            if told is not None:
                told_at, bound, range_told = told
                self._calibration.learn(bound - told_at, now - told_at)
                self.forecasts.append(Forecast(start.job, told_at, bound, range_told, now))

    def _tell(self, now: float, made: Plan, fresh: Sequence[str]) -> None:
        bounds = {estimate.job: estimate.starts_at for estimate in made.estimates}
        starting = {start.job for start in made.starts}
        for job in fresh:
            bound = bounds.get(job)
            if job in starting:
                continue
            if bound is None:
                self.unknown += 1
            else:
                self._told[job] = (now, bound, self._calibration.range_for(now, bound))


def accuracy(forecasts: Sequence[Forecast]) -> Accuracy:
    """The figures over the second half of the forecasts, by the time at which they were told."""
    told = sorted(forecasts, key=lambda forecast: (forecast.told_at, forecast.job))
    told = told[len(told) // 2 :]
    count = max(1, len(told))
    return Accuracy(
        forecasts=len(told),
        p50_covers=sum(f.started_at <= f.told.p50 for f in told) / count,
        p90_covers=sum(f.started_at <= f.told.p90 for f in told) / count,
        pinball_seconds=sum(_losses(f.started_at, f.told.p50, f.told.p90) for f in told) / count,
        pinball_of_bound_seconds=sum(_losses(f.started_at, f.bound, f.bound) for f in told) / count,
    )


def _losses(real: float, p50: float, p90: float) -> float:
    return _pinball(real, p50, 0.5) + _pinball(real, p90, 0.9)


def _pinball(real: float, told: float, quantile: float) -> float:
    late = real - told
    return max(quantile * late, (quantile - 1.0) * late)
