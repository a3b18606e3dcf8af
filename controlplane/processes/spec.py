"""What a supervised process is, and how long it may be dead. Used by the supervisor and by the lists of processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# A process that lived this long was not in a crash loop: its next death is its first.
STEADY_SECONDS = 10.0
# Deaths in a row that are answered at once; `kill -9` now and then never waits longer than that.
PATIENCE = 5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process. environment: added to the supervisor's own. grace_seconds: from SIGTERM to SIGKILL."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 8.0


def pause_before_restart(quick_deaths: int) -> float:
    """Seconds to wait after the given number of deaths in a row, each soon after its start."""
    if quick_deaths <= PATIENCE:
        return FIRST_PAUSE_SECONDS
    doubled: float = FIRST_PAUSE_SECONDS * 2.0 ** (quick_deaths - PATIENCE)
    return min(LONGEST_PAUSE_SECONDS, doubled)
