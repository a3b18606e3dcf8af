"""Warm snapshots of every cluster, and the planner's memo beside each. One thread uses them."""

from collections.abc import Collection
from dataclasses import dataclass, field

from queues.models import Cluster, Job
from scheduler.core.explain.calibration import Calibration
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Plan
from scheduler.core.planner import plan
from scheduler.selectors.forecasts import calibration_of
from scheduler.snapshot.warm import WarmSnapshot
from scheduler.whatif.ahead import Lookout

# As the loop's.
OPTIONS = Options()
CALIBRATE_SECONDS = 60.0


class UnknownClusterError(LookupError):
    """No cluster of that name."""


@dataclass(slots=True)
class Mirror:
    """One cluster, as its planner sees it now."""

    warm: WarmSnapshot
    memo: Memo = field(default_factory=Memo)
    # For plans of one job alone: what is remembered of running jobs would not hold there.
    memo_alone: Memo = field(default_factory=Memo)
    # For plans of a changed cluster.
    memo_changed: Memo = field(default_factory=Memo)
    lookout: Lookout = field(default_factory=Lookout)
    _calibration: Calibration | None = None
    _calibrated_at: float = 0.0
    _base: Plan | None = None

    def snapshot(self, now: float) -> Snapshot:
        """What the planner would read at `now`. Raises DatabaseError."""
        if self.warm.refresh():
            self._base = None
        return self.warm.snapshot(now)

    def calibration(self, now: float) -> Calibration:
        """What earlier estimates came to; read again every minute. Raises DatabaseError."""
        if self._calibration is None or now - self._calibrated_at > CALIBRATE_SECONDS:
            self._calibration = calibration_of(self.warm.cluster_id)
            self._calibrated_at = now
        return self._calibration

    def told(self, now: float, starts_at: float | None) -> dict[str, float | None]:
        """A planned start as people are told: the plan's own moment, and the range that experience makes of it."""
        if starts_at is None:
            return {"starts_at": None, "p50": None, "p90": None}
        found = self.calibration(now).range_for(now, starts_at)
        return {"starts_at": starts_at, "p50": found.p50, "p90": found.p90}

    @property
    def models(self) -> dict[str, str]:
        """Model label by flavor."""
        allowed = self.warm.policy.allowed.values()
        return {flavor.name: flavor.model for _queue, flavors in allowed for flavor in flavors}

    def ages(self, jobs: Collection[str]) -> dict[str, float]:
        """When these jobs were submitted. Raises DatabaseError."""
        rows = Job.objects.filter(pk__in=jobs).values_list("pk", "submitted_at")
        return {job: submitted_at.timestamp() for job, submitted_at in rows}

    def base_plan(self, snapshot: Snapshot, fresh_seconds: float = 2.0) -> Plan:
        """The plan without any what-if; the last one while it is fresh and nothing has changed."""
        if self._base is None or snapshot.now - self._base.now > fresh_seconds:
            self._base = plan(snapshot, OPTIONS, self.memo)
        return self._base


@dataclass(slots=True)
class Mirrors:
    """A mirror for each cluster that was asked about."""

    _known: dict[str, Mirror] = field(default_factory=dict)

    def of(self, cluster: str) -> Mirror:
        """The cluster's mirror. Raises UnknownClusterError."""
        if cluster not in self._known:
            cluster_id = Cluster.objects.filter(name=cluster).values_list("pk", flat=True).first()
            if cluster_id is None:
                raise UnknownClusterError(cluster)
            self._known[cluster] = Mirror(WarmSnapshot(cluster_id, cluster))
        return self._known[cluster]

    def keep_warm(self, now: float) -> None:
        """Read what changed, for every cluster, so that the next question finds little to read."""
        for name in Cluster.objects.values_list("name", flat=True):
            self.of(name).snapshot(now)

    def known(self) -> list[Mirror]:
        """Those that there are."""
        return list(self._known.values())

    def forget(self) -> None:
        """Throw all away: the database was lost in the middle of reading."""
        self._known.clear()
