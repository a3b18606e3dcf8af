"""How a simulated pod behaves, read from its annotations (listed in docs/simcluster.md)."""

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from scheduler.simcluster.profiles.model import Profile

Json = dict[str, Any]
PREFIX = "sim.muster.dev/"
FAULTS = ("image-pull", "image-name", "config", "run", "oom", "hang", "none")
SIGTERM_WAYS = ("exit", "ignore", "checkpoint")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the containers of a pod do. Times in seconds of the cluster's clock."""

    run_seconds: float
    exit_code: int
    log_lines: int
    pull_seconds: float
    start_seconds: float
    init_seconds: float
    pull_error: str
    pull_failures: float
    """How many pulls fail before one works; infinity for all."""
    fault: str
    fault_after_seconds: float
    on_sigterm: str
    sigterm_seconds: float
    sigterm_exit_code: int
    utilisation: float

    @property
    def endless(self) -> bool:
        """Whether it runs until it is deleted."""
        return math.isinf(self.run_seconds)


def behaviour_of(body: Json, profile: Profile, draw: Random) -> Behaviour:
    """Reads annotations; a value that cannot be read counts as not given."""
    notes: dict[str, str] = body["metadata"].get("annotations") or {}
    run = _number(notes, "run-seconds", profile.default_run_seconds)
    way = notes.get(f"{PREFIX}on-sigterm", "exit")
    way = way if way in SIGTERM_WAYS else "exit"
    fault = notes.get(f"{PREFIX}fault", "none")
    pull_error = notes.get(f"{PREFIX}pull-error", "not found" if fault == "image-pull" else "")
    return Behaviour(
        run_seconds=run,
        exit_code=int(_number(notes, "exit-code", 0)),
        log_lines=int(_number(notes, "log-lines", 20)),
        pull_seconds=_number(notes, "pull-seconds", draw.uniform(*profile.pull_seconds)),
        start_seconds=_number(notes, "start-seconds", draw.uniform(*profile.start_seconds)),
        init_seconds=_number(notes, "init-seconds", 0.2),
        pull_error=pull_error,
        pull_failures=_number(notes, "pull-failures", math.inf if pull_error else 0),
        fault=fault if fault in FAULTS else "none",
        fault_after_seconds=_number(notes, "fault-after-seconds", 1.0),
        on_sigterm=way,
        sigterm_seconds=_number(notes, "sigterm-seconds", draw.uniform(0.1, 0.5)),
        sigterm_exit_code=int(
            _number(notes, "sigterm-exit-code", 0 if way == "checkpoint" else 143)
        ),
        utilisation=_number(notes, "utilisation", draw.uniform(88, 99)),
    )


def _number(notes: dict[str, str], name: str, default: float) -> float:
    text = notes.get(PREFIX + name)
    if text is None:
        return default
    if text == "forever":
        return math.inf
    try:
        value = float(text)
    except ValueError:
        return default
    return value if value >= 0 else default
