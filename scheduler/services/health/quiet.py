"""Nodes that were well when their rows were last read: judged from their pages alone until something happens.

A thousand nodes of which nothing is new are looked at every quarter of a minute. Their rows are read again when a page
shows anything, when the log tells of the node, and otherwise about once a minute.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zlib import crc32

from scheduler.health.readings import GpuReading
from scheduler.health.rules import Rules
from scheduler.services.health.scene import NodeScene
from scheduler.services.health.signs import Early, Readings, Signs

ROWS_EVERY = timedelta(seconds=60)
# Not all at once: so many seconds later, by name.
SPREAD_SECONDS = 30


@dataclass(slots=True)
class Quiet:
    """A node that was well: its row's number, its GPUs, until when no row need be read."""

    node_id: int
    uuids: frozenset[str]
    until: datetime
    noted_at: datetime | None


@dataclass(slots=True)
class QuietNodes:
    """Quiet nodes by name."""

    _nodes: dict[str, Quiet] = field(default_factory=dict)

    def names(self) -> set[str]:
        """Which they are."""
        return set(self._nodes)

    def get(self, name: str) -> Quiet | None:
        """What is known of a quiet node."""
        return self._nodes.get(name)

    def disturb(self, names: Iterable[str]) -> None:
        """Something was heard of these: their rows are read the next time."""
        for name in names:
            self._nodes.pop(name, None)

    def keep_only(self, names: Iterable[str]) -> None:
        """Others are gone."""
        kept = set(names)
        self._nodes = {name: quiet for name, quiet in self._nodes.items() if name in kept}

    def note(self, node: NodeScene, readings: Readings | None, now: datetime) -> None:
        """The node's rows were just judged, and nothing was found."""
        if readings is None or readings.keys() != node.gpus.keys():
            self.disturb([node.name])
            return
        later = timedelta(seconds=crc32(node.name.encode()) % SPREAD_SECONDS)
        self._nodes[node.name] = Quiet(
            node.row.pk, frozenset(node.gpus), now + ROWS_EVERY + later, node.row.health_judged_at
        )

    def look(
        self,
        pages: Mapping[str, Mapping[str, GpuReading] | None],
        signs: Signs,
        rules: Rules,
        now: datetime,
    ) -> dict[str, Early]:
        """Judge quiet nodes from their pages; those that are not any more go back to be judged with their rows.

        Answers what the pages of the latter have shown meanwhile, by node.
        """
        shown: dict[str, Early] = {}
        for name, readings in pages.items():
            quiet = self._nodes.get(name)
            if quiet is None:
                continue
            early = None
            if readings is not None and readings.keys() == quiet.uuids and now < quiet.until:
                early = signs.early(readings, rules, now)
            if early is not None:
                shown[name] = early
            if early is None or readings is None or not _is_nothing(early, readings, signs):
                del self._nodes[name]
        return shown


def _is_nothing(early: Early, readings: Readings, signs: Signs) -> bool:
    if any(early.values()):
        return False
    return all(signs.is_written(uuid, reading) for uuid, reading in readings.items())
