"""Keeps a defect that one attempt brings out from holding up all others. Called by `tick`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from scheduler.reconcile.results import Result
from scheduler.reconcile.view import AttemptKey

LEFT_ALONE_SECONDS = 60.0
# So many ticks look at a single attempt each, once a defect was met.
TICKS_ONE_BY_ONE = 200


@dataclass(slots=True)
class Suspicion:
    """Which attempts a tick looks at.

    `one_by_one` is how many ticks more look at a single attempt; `left_alone` until when.
    """

    one_by_one: int = 0
    chosen: AttemptKey | None = None
    left_alone: dict[AttemptKey, datetime] = field(default_factory=dict)

    def choose(self, keys: dict[AttemptKey, None], now: datetime, most: int) -> list[AttemptKey]:
        """Which attempts to look at in this tick, at most so many."""
        for key, until in list(self.left_alone.items()):
            if now >= until:
                del self.left_alone[key]
            else:
                keys.pop(key, None)
        chosen = list(islice(keys, 1 if self.one_by_one else most))
        self.chosen = chosen[0] if self.one_by_one and chosen else None
        if self.chosen is not None:
            # Should this tick fail, it is this attempt that is left alone.
            self.left_alone[self.chosen] = now + timedelta(seconds=LEFT_ALONE_SECONDS)
        return chosen

    def went_well(self) -> None:
        """The tick did no harm."""
        if self.chosen is not None:
            self.left_alone.pop(self.chosen, None)
        self.chosen = None
        self.one_by_one = max(0, self.one_by_one - 1)

    def narrow_down(self, given: list[Result]) -> list[Result]:
        """After a defect: look at one attempt a tick; the results to keep for the next."""
        known = self.one_by_one > 0
        self.one_by_one = TICKS_ONE_BY_ONE
        # A result that brings it out again would do so for ever: what it told is seen again.
        return [] if known else given
