"""WHAT IS ASKED AND ALLOWED, in rows: the catalogue, quotas and queues, jobs, and the planner's answers."""

from queues.models.answers import Estimate, Forecast, Verdict
from queues.models.catalogue import Cluster, ClusterMode, Flavor, Level, Preset, Sharing
from queues.models.jobs import Attempt, Job, JobDependency, JobRole, Placement
from queues.models.quotas import (
    Queue,
    QueueFlavor,
    QueueLimit,
    QueueState,
    Quota,
    QuotaRequest,
    UserLimit,
)

__all__ = [
    "Attempt",
    "Cluster",
    "ClusterMode",
    "Estimate",
    "Flavor",
    "Forecast",
    "Job",
    "JobDependency",
    "JobRole",
    "Level",
    "Placement",
    "Preset",
    "Queue",
    "QueueFlavor",
    "QueueLimit",
    "QueueState",
    "Quota",
    "QuotaRequest",
    "Sharing",
    "UserLimit",
    "Verdict",
]
