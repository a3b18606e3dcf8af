"""Maintenance windows and reservations for the snapshot, read again when they change and once an hour.

Owned by `scheduler.snapshot.warm`. Occurrences are laid out from the full hour, so that a warm reader and a cold one
hold the same ones.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from queues.models import Cluster
from scheduler.core.inputs.cluster import Window
from scheduler.selectors.windows import windows_of

READ_AGAIN_SECONDS = 3_600


@dataclass(slots=True)
class WindowReader:
    """The windows of one cluster."""

    cluster_id: int
    _hour: int | None = None
    _read: tuple[Window, ...] = ()
    _told: tuple[Window, ...] = ()

    def forget(self) -> None:
        """They may have changed: read them again before the next answer."""
        self._hour = None

    def at(self, now: float) -> tuple[Window, ...]:
        """What is not over at `now`; the same objects as before where nothing changed. Raises DatabaseError."""
        hour = int(now // READ_AGAIN_SECONDS)
        if hour != self._hour:
            since = datetime.fromtimestamp(hour * READ_AGAIN_SECONDS, UTC)
            found = windows_of(Cluster(pk=self.cluster_id), since)
            known = {window.id: window for window in self._read}
            self._read = tuple(_kept(window, known) for window in found)
            self._hour = hour
        ahead = tuple(window for window in self._read if window.ends_at > now)
        if ahead != self._told:
            self._told = ahead
        return self._told


def _kept(window: Window, known: dict[str, Window]) -> Window:
    before = known.get(window.id)
    return before if before == window and before is not None else window
