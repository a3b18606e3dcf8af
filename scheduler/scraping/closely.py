"""Which nodes are looked at beside the passes, and when: what the log tells, and how long it stays worth a look."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import F, Q

from controlplane.common.models import Event
from queues.models import Attempt, Cluster
from scheduler.models import Node

# An exporter collects every so often (1 to 30 seconds): after a sign of trouble its page is read again and again.
AGAIN_AFTER_SECONDS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 25.0, 32.0)
# When more than so many are watched, the passes have to do.
MOST_WATCHED = 256


@dataclass(frozen=True, slots=True)
class Heard:
    """Nodes that events tell of; `troubled`: where a GPU may be dying, or somebody waits for a verdict."""

    nodes: frozenset[str] = frozenset()
    troubled: frozenset[str] = frozenset()


@dataclass(slots=True)
class Closely:
    """Nodes to be looked at, and when. Used in the event loop alone."""

    # By node: the moments that are left, the next one first.
    moments: dict[str, list[datetime]] = field(default_factory=dict)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, heard: Heard, now: datetime) -> None:
        """Look at these at once; at the troubled ones again for half a minute."""
        for node in sorted(heard.nodes):
            troubled = node in heard.troubled
            if node not in self.moments and len(self.moments) >= MOST_WATCHED:
                continue
            if troubled or node not in self.moments:
                seconds = AGAIN_AFTER_SECONDS if troubled else AGAIN_AFTER_SECONDS[:1]
                self.moments[node] = [now + timedelta(seconds=each) for each in seconds]
            else:
                self.moments[node].insert(0, now)
        if self.moments:
            self.bell.set()

    def due(self, now: datetime, busy: Collection[str]) -> list[str]:
        """Those to look at now, but for the ones that are being read: these are due again a moment later."""
        found = []
        for node, moments in list(self.moments.items()):
            if node in busy or moments[0] > now:
                continue
            found.append(node)
            left = [moment for moment in moments if moment > now]
            if left:
                self.moments[node] = left
            else:
                del self.moments[node]
        return sorted(found)

    def pause_seconds(self, now: datetime) -> float | None:
        """How long until the next one is due; None: nothing is watched."""
        if not self.moments:
            return None
        first = min(moments[0] for moments in self.moments.values())
        return max((first - now).total_seconds(), 0.1)


def heard_since(cluster: Cluster, seq: int) -> Heard:
    """What events after number `seq` tell of the nodes of a cluster."""
    events = Event.objects.filter(
        seq__gt=seq,
        cluster=cluster.name,
        kind__in=("node.changed", "node.health", "attempt.stopping"),
    )
    changed: set[str] = set()
    spoken_of: set[str] = set()
    attempts: set[tuple[str, int]] = set()
    for kind, node, job, numbers in events.values_list("kind", "node", "job", "numbers"):
        if kind == "node.changed":
            changed.add(node)
        elif kind == "node.health":
            spoken_of.add(node)
        elif numbers.get("cause") == "failed":
            attempts.add((job, int(numbers.get("attempt", 0))))
    troubled = _with_trouble(cluster, changed) | _nodes_of(attempts)
    return Heard(frozenset(changed | spoken_of | troubled), frozenset(troubled))


def _with_trouble(cluster: Cluster, changed: set[str]) -> set[str]:
    """Of nodes that changed: those that have fewer GPUs to offer than there are, or are not ready."""
    if not changed:
        return set()
    rows = Node.objects.filter(cluster=cluster, name__in=changed)
    trouble = Q(ready=False) | Q(gpus_allocatable__lt=F("gpus_capacity"))
    return set(rows.filter(trouble).values_list("name", flat=True))


def _nodes_of(attempts: set[tuple[str, int]]) -> set[str]:
    found: set[str] = set()
    for job, number in attempts:
        rows = Attempt.objects.filter(job=job, number=number)
        found |= {node for node in rows.values_list("placements__node", flat=True) if node}
    return found
