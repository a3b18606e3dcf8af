"""WHAT EXISTS AND IS DECIDED, in rows: nodes, what others use on them, seats, leases, the watcher's state,
bookings, holds, evictions, cordons, maintenance windows, drains."""

from scheduler.models.alerts import Alert, AlertState, Severity
from scheduler.models.cordons import Cordon, CordonSource
from scheduler.models.drift import Drift, DriftKind, Healing
from scheduler.models.health import (
    BurnIn,
    BurnInPhase,
    Gpu,
    HealthAction,
    HealthEvent,
    HealthPolicy,
    HealthRule,
    HealthSample,
    NodeReport,
    NodeWatch,
    RuleMode,
)
from scheduler.models.ledger import Lease, Seat
from scheduler.models.nodes import ClusterState, ForeignPod, HealthState, Node
from scheduler.models.plans import Booking, Eviction, EvictionRule, Hold
from scheduler.models.windows import (
    Crossing,
    Drain,
    MaintenanceWindow,
    Occurrence,
    OccurrenceState,
    RunningJobs,
    WantedLabel,
    WindowKind,
)

__all__ = [
    "Alert",
    "AlertState",
    "Booking",
    "BurnIn",
    "BurnInPhase",
    "ClusterState",
    "Cordon",
    "CordonSource",
    "Crossing",
    "Drain",
    "Drift",
    "DriftKind",
    "Eviction",
    "EvictionRule",
    "ForeignPod",
    "Gpu",
    "Healing",
    "HealthAction",
    "HealthEvent",
    "HealthPolicy",
    "HealthRule",
    "HealthSample",
    "HealthState",
    "Hold",
    "Lease",
    "MaintenanceWindow",
    "Node",
    "NodeReport",
    "NodeWatch",
    "Occurrence",
    "OccurrenceState",
    "RuleMode",
    "RunningJobs",
    "Seat",
    "Severity",
    "WantedLabel",
    "WindowKind",
]
