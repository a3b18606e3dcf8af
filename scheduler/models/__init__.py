"""WHAT EXISTS AND IS DECIDED, in rows: nodes, what others use on them, seats, leases, the watcher's state."""

from scheduler.models.ledger import Lease, Seat
from scheduler.models.nodes import ClusterState, ForeignPod, Node

__all__ = ["ClusterState", "ForeignPod", "Lease", "Node", "Seat"]
