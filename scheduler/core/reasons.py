"""The closed set of reasons for waiting, and the numbers that each always carries.

Messages are rendered elsewhere, from these numbers. A number's value is an int, a float
(seconds since the epoch where the key ends in `_at` or `_until`, seconds where it ends in
`_seconds`) or a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Number = int | float | str | None
Numbers = dict[str, Number]


class ReasonCode(StrEnum):
    """Why a job waits; the order is that of the planner's checks."""

    CLUSTER_UNREACHABLE = "cluster_unreachable"
    CLUSTER_PAUSED = "cluster_paused"
    CLUSTER_OBSERVING = "cluster_observing"
    QUEUE_HELD = "queue_held"
    QUEUE_CLOSED = "queue_closed"
    WAITING_FOR_DEPENDENCY = "waiting_for_dependency"
    BEGIN_TIME = "begin_time"
    BACKOFF = "backoff"
    REFUSED_BY_KUBERNETES = "refused_by_kubernetes"
    EXCEEDS_QUOTA_FOR_EVER = "exceeds_quota_for_ever"
    EXCEEDS_CLUSTER_FOR_EVER = "exceeds_cluster_for_ever"
    WAITING_FOR_PREEMPTED = "waiting_for_preempted"
    HIGHER_PRIORITY_AHEAD = "higher_priority_ahead"
    USER_LIMIT = "user_limit"
    WAITING_FOR_QUOTA = "waiting_for_quota"
    WAITING_FOR_FAIR_SHARE = "waiting_for_fair_share"
    WAITING_FOR_DRIVER = "waiting_for_driver"
    UNHEALTHY_NODES = "unhealthy_nodes"
    WAITING_FOR_NODES = "waiting_for_nodes"
    WAITING_FOR_TOPOLOGY = "waiting_for_topology"
    WAITING_FOR_RESERVATION = "waiting_for_reservation"
    WAITING_FOR_MAINTENANCE = "waiting_for_maintenance"
    WAITING_FOR_BOOKING = "waiting_for_booking"
    NOT_YET_CONSIDERED = "not_yet_considered"


_FIT = ("flavor", "needed_replicas", "needed_gpus", "needed_nodes")

REASON_NUMBERS: Mapping[ReasonCode, tuple[str, ...]] = {
    ReasonCode.CLUSTER_UNREACHABLE: ("cluster",),
    ReasonCode.CLUSTER_PAUSED: ("cluster",),
    ReasonCode.CLUSTER_OBSERVING: ("cluster",),
    ReasonCode.QUEUE_HELD: ("queue",),
    ReasonCode.QUEUE_CLOSED: ("queue",),
    ReasonCode.WAITING_FOR_DEPENDENCY: ("open_dependencies", "first_dependency"),
    ReasonCode.BEGIN_TIME: ("begin_at",),
    ReasonCode.BACKOFF: ("backoff_until",),
    ReasonCode.REFUSED_BY_KUBERNETES: ("refused_until", "refusal"),
    ReasonCode.EXCEEDS_QUOTA_FOR_EVER: ("flavor", "needed_gpus", "most_gpus", "tenant"),
    ReasonCode.EXCEEDS_CLUSTER_FOR_EVER: (*_FIT, "most_replicas", "level"),
    ReasonCode.WAITING_FOR_PREEMPTED: ("stopping_jobs", "freed_gpus", "free_at"),
    ReasonCode.HIGHER_PRIORITY_AHEAD: ("jobs_ahead", "first_job", "first_priority"),
    ReasonCode.USER_LIMIT: ("flavor", "needed_gpus", "used_gpus", "limit_gpus", "scope"),
    ReasonCode.WAITING_FOR_QUOTA: (
        "flavor",
        "needed_gpus",
        "used_gpus",
        "nominal_gpus",
        "available_gpus",
        "tenant",
    ),
    ReasonCode.WAITING_FOR_FAIR_SHARE: (
        "flavor",
        "needed_gpus",
        "available_gpus",
        "share",
        "lowest_share",
        "lowest_tenant",
    ),
    ReasonCode.WAITING_FOR_DRIVER: (*_FIT, "min_cuda", "new_enough_nodes", "too_old_nodes"),
    ReasonCode.UNHEALTHY_NODES: (*_FIT, "nodes_in", "nodes_out", "main_cause"),
    ReasonCode.WAITING_FOR_NODES: (
        *_FIT,
        "free_replicas",
        "free_gpus",
        "free_nodes",
        "limiting_resource",
        "frees_at",
        "frees_job",
    ),
    ReasonCode.WAITING_FOR_TOPOLOGY: (
        *_FIT,
        "level",
        "best_domain",
        "free_there",
        "replicas_there",
        "frees_at",
        "frees_job",
    ),
    ReasonCode.WAITING_FOR_RESERVATION: (*_FIT, "window", "reserved_nodes", "ends_at"),
    ReasonCode.WAITING_FOR_MAINTENANCE: (*_FIT, "window", "starts_at", "longest_seconds"),
    ReasonCode.WAITING_FOR_BOOKING: ("booked_job", "booked_at", "longest_seconds", "needed_gpus"),
    ReasonCode.NOT_YET_CONSIDERED: (),
}
"""For each code the keys that its numbers always have (a value may be None)."""

FOR_EVER = frozenset({ReasonCode.EXCEEDS_QUOTA_FOR_EVER, ReasonCode.EXCEEDS_CLUSTER_FOR_EVER})
"""Reasons that no passing of time removes: a simulation's verdict is `never`."""

OWN_REASONS = frozenset(
    {
        ReasonCode.WAITING_FOR_DEPENDENCY,
        ReasonCode.BEGIN_TIME,
        ReasonCode.BACKOFF,
        ReasonCode.REFUSED_BY_KUBERNETES,
        ReasonCode.WAITING_FOR_PREEMPTED,
    }
)
"""Reasons of a single job; all others belong to its class."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A code with its numbers; `numbers` has at least the keys of `REASON_NUMBERS[code]`."""

    code: ReasonCode
    numbers: Mapping[str, Number]
