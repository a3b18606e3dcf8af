"""A cluster of which nothing is heard is unreachable, whatever its process said last. Called by `cycle`.

The process that watches a cluster may have died, or hang: nothing would start then, and jobs would wait
as placed for pods that nobody creates.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from controlplane.common import log
from scheduler.models import ClusterState
from scheduler.snapshot.policy import REACHABLE_WATCHES

# The cluster process says every ten seconds that it is there (scheduler.reconcile.tick).
SILENT_AFTER = timedelta(seconds=30)
MESSAGE = "the cluster process has not been heard"


def note_silence(cluster_id: int, cluster: str, now: datetime) -> bool:
    """Count the cluster as unreachable once it was silent for 30 s; True when that is news.

    In the caller's transaction, opened by `log.writing`. The process that is back writes what it sees.
    """
    until = now - SILENT_AFTER
    silent = Q(heard_at__lt=until) | Q(heard_at=None, watch_since__lt=until)
    rows = ClusterState.objects.filter(silent, cluster_id=cluster_id, watch__in=REACHABLE_WATCHES)
    if not rows.update(watch="unreachable", watch_since=now, watch_error=MESSAGE):
        return False
    log.record(
        log.NewEvent(
            kind="cluster.watch",
            at=now,
            cluster=cluster,
            actor="scheduler",
            message=MESSAGE,
            numbers={"state": "unreachable"},
        )
    )
    return True
