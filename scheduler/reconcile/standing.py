"""How the cluster's watch stands, into the row that others read. Called by `tick`, inside its transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.common import log
from queues.models import Cluster
from scheduler.kube.watching import Standing, WatchState
from scheduler.models import ClusterState
from scheduler.reconcile.books import ACTOR

# Others take a cluster for unreachable when nothing is heard of it for 30 s (scheduler.loop.silence).
HEARD_SECONDS = 10.0


@dataclass(slots=True)
class StandingBook:
    """`standing`: as the watches stand now. `caught_up`: all that they listed is in the rows."""

    standing: Standing | None = None
    caught_up: bool = False
    _written: tuple[str, datetime | None] | None = None

    def write(self, cluster: Cluster, now: datetime) -> None:
        """The watch's state when it changes, and every ten seconds that it is still so.

        A live watch may have nothing to tell; that the process looks after it is what `heard_at` says.
        The loop writes `unreachable` over the state of a process that has fallen silent: that row, not
        our memory, says whether there is news.
        """
        standing = self.standing
        if standing is None:
            return
        if standing.state is not WatchState.UNREACHABLE and not self.caught_up:
            # Nobody may plan with rows that do not have yet what runs already: a cluster of which nothing
            # was heard lately, as in a restored database, stays so until then.
            return
        heard = now if standing.state is WatchState.LIVE else standing.last_heard
        shown = _shown(standing)
        before = self._written
        if before and before[0] == shown and not _is_newer(heard, before[1]):
            return
        # Locked: were the loop to write `unreachable` between this look and our writing, nobody would tell it
        # that the cluster is live again, and it would go on planning nothing.
        locked = ClusterState.objects.select_for_update().filter(cluster=cluster)
        was = locked.values_list("watch", flat=True).first()
        ClusterState.objects.update_or_create(
            cluster=cluster,
            defaults={
                "watch": standing.state.value,
                "watch_since": standing.since,
                "watch_error": standing.problem,
                "heard_at": heard,
            },
        )
        self._written = (shown, heard)
        if before is None or before[0] != shown or was != standing.state.value:
            _tell(cluster, standing, now)


def _tell(cluster: Cluster, standing: Standing, now: datetime) -> None:
    log.record(
        log.NewEvent(
            kind="cluster.watch",
            at=now,
            cluster=cluster.name,
            actor=ACTOR,
            message=standing.problem,
            numbers={"state": standing.state.value},
        )
    )


def _shown(standing: Standing) -> str:
    return f"{standing.state.value} {standing.since.isoformat()} {standing.problem}"


def _is_newer(heard: datetime | None, before: datetime | None) -> bool:
    if heard is None:
        return False
    return before is None or heard >= before + timedelta(seconds=HEARD_SECONDS)
