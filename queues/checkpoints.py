"""When a job last saved, and when it is to save next: as it reported, else as its interval promises. Pure.

Called by `services.attempts` (what an end has cost) and by `scheduler`, which stops jobs where it costs least.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Saves:
    """What is known of an attempt's checkpoints. interval_seconds None or 0: it promises none.

    grace_seconds: how long writing one takes.
    """

    started_at: datetime | None
    reported_at: datetime | None = None
    interval_seconds: int | None = None
    grace_seconds: int = 0

    def last(self, now: datetime) -> datetime | None:
        """The last save before `now`; the start where none was made, None before the start."""
        if self.started_at is None:
            return None
        if self.reported_at is not None:
            return max(self.reported_at, self.started_at)
        if not self.interval_seconds:
            return self.started_at
        done = int((now - self.started_at).total_seconds()) // self.interval_seconds
        return self.started_at + timedelta(seconds=max(0, done) * self.interval_seconds)

    def lost_seconds(self, now: datetime) -> float:
        """How much work stopping at `now` throws away."""
        last = self.last(now)
        return 0.0 if last is None else max(0.0, (now - last).total_seconds())

    def written_by(self, now: datetime) -> datetime | None:
        """When the save after `now` is written, the time for writing it included; None if none is promised."""
        last = self.last(now)
        if last is None or not self.interval_seconds:
            return None
        step = timedelta(seconds=self.interval_seconds)
        ahead = max(1, -(-(now - last) // step))
        return last + ahead * step + timedelta(seconds=self.grace_seconds)
