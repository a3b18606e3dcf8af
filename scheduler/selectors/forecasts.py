"""How well start estimates come true: what the next ones learn from, and what people are shown.

Only the first estimate of each wait counts: by then least was known. Called by `scheduler.apply.estimates`, the
what-if process and the doors.
"""

from dataclasses import dataclass
from datetime import datetime

from queues.models import Cluster, Forecast
from scheduler.core.explain.calibration import KEPT, Calibration

LAST = 1_000


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of the last `starts` jobs that had to wait and had an estimate: shares that came true.

    before_p50 should be near 0.5, before_p90 near 0.9. None where nothing started yet. since: the oldest of the starts.
    """

    starts: int
    before_p50: float | None
    before_p90: float | None
    since: datetime | None


def calibration_of(cluster_id: int) -> Calibration:
    """What the latest starts on a cluster teach: planned against real waits. One query."""
    rows = Forecast.objects.filter(cluster_id=cluster_id, started_at__isnull=False)
    found = list(
        rows.order_by("-started_at").values_list("made_at", "planned_at", "started_at")[:KEPT]
    )
    return Calibration(
        ((planned_at - made_at).total_seconds(), (started_at - made_at).total_seconds())
        for made_at, planned_at, started_at in reversed(found)
        if started_at is not None
    )


def accuracy_of(cluster: Cluster, last: int = LAST) -> Accuracy:
    """How the estimates of the last starts on a cluster came true. One query."""
    rows = Forecast.objects.filter(cluster=cluster, started_at__isnull=False)
    found = list(rows.order_by("-started_at").values_list("p50", "p90", "started_at")[:last])
    if not found:
        return Accuracy(0, None, None, None)
    return Accuracy(
        starts=len(found),
        before_p50=sum(at is not None and at <= p50 for p50, _p90, at in found) / len(found),
        before_p90=sum(at is not None and at <= p90 for _p50, p90, at in found) / len(found),
        since=found[-1][2],
    )
