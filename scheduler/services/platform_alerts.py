"""What Muster alerts of itself: clusters it cannot reach or hear, a loop that plans nothing, messages that stay.

Judged by the worker's postman, since what is dead cannot say so itself.
"""

from datetime import datetime, timedelta

from django.db.models import Count, Min

from queues.models import Cluster
from scheduler.models import ClusterState
from scheduler.services.alerts import AlertFacts, raise_alert, resolve_alert
from tenants.models import OutboxMessage

# The cluster process says every 10 s that it is there, the loop ends a cycle every second.
CLUSTER_SILENT = timedelta(seconds=45)
PLANNER_SILENT = timedelta(seconds=30)
UNREACHABLE = timedelta(seconds=30)
STUCK = timedelta(minutes=30)


def judge_platform(now: datetime) -> None:
    """Raise what is so and resolve what is over."""
    for cluster in Cluster.objects.select_related("state").order_by("pk"):
        state = getattr(cluster, "state", None)
        if state is not None:
            _judge(cluster, state, now)
    _judge_outbox(now)


def _judge(cluster: Cluster, state: ClusterState, now: datetime) -> None:
    lost = state.watch == "unreachable"
    _settle("cluster_unreachable", cluster, state.watch_since if lost else None, UNREACHABLE, now)
    _settle("cluster_silent", cluster, state.heard_at, CLUSTER_SILENT, now)
    _settle("planner_silent", cluster, state.considered_at, PLANNER_SILENT, now)


def _settle(
    kind: str, cluster: Cluster, since: datetime | None, limit: timedelta, now: datetime
) -> None:
    """since: None where there is nothing to wait for."""
    facts = AlertFacts(kind, cluster=cluster)
    if since is None or now - since < limit:
        resolve_alert(facts.key, now)
        return
    shown = since.isoformat(timespec="seconds").replace("+00:00", "Z")
    raise_alert(AlertFacts(kind, cluster=cluster, numbers={"since": shown}), now)


def _judge_outbox(now: datetime) -> None:
    waiting = OutboxMessage.objects.filter(
        next_attempt_at__isnull=False, created_at__lt=now - STUCK
    )
    found = waiting.aggregate(count=Count("pk"), since=Min("created_at"))
    facts = AlertFacts("outbox_stuck")
    if not found["count"]:
        resolve_alert(facts.key, now)
        return
    since = found["since"].isoformat(timespec="seconds").replace("+00:00", "Z")
    raise_alert(AlertFacts("outbox_stuck", numbers={"count": found["count"], "since": since}), now)
