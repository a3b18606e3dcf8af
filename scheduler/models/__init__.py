"""WHAT EXISTS AND IS DECIDED, in rows: nodes, what others use on them, seats, leases, the watcher's state,
bookings, holds, evictions, cordons."""

from scheduler.models.alerts import Alert, AlertState, Severity
from scheduler.models.cordons import Cordon, CordonSource
from scheduler.models.ledger import Lease, Seat
from scheduler.models.nodes import ClusterState, ForeignPod, Node
from scheduler.models.plans import Booking, Eviction, EvictionRule, Hold

__all__ = [
    "Alert",
    "AlertState",
    "Booking",
    "ClusterState",
    "Cordon",
    "CordonSource",
    "Eviction",
    "EvictionRule",
    "ForeignPod",
    "Hold",
    "Lease",
    "Node",
    "Seat",
    "Severity",
]
