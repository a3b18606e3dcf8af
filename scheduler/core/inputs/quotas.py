"""Who may use how much: cohorts, tenants, queues, users.

Semantics follow Kueue's quota tree, per flavor, in GPUs. Read by `scheduler.core.quota` and
`scheduler.core.order`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OrderPolicy(StrEnum):
    """How the tenants of a cohort take turns."""

    CLASSIC = "classic"
    FAIR_SHARE = "fair_share"


class QueueState(StrEnum):
    """`closed` takes no new jobs, `held` starts none."""

    OPEN = "open"
    CLOSED = "closed"
    HELD = "held"


class BackfillOrder(StrEnum):
    """In which order a queue's backfill candidates are tried."""

    SHORTEST = "shortest"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class FlavorQuota:
    """A tenant's or cohort's quota of one flavor, in GPUs.

    `borrowing_limit` None: may borrow without bound; `lending_limit` None: lends everything.
    `headroom` (tenants only) is kept from non-preemptible jobs for the tenant's services;
    `outside` is what pods that Muster did not create use in the tenant's namespace.
    `weight` is the fair-share weight (0: comes last whenever it borrows).
    """

    flavor: str
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    weight: float = 1.0
    headroom: int = 0
    outside: int = 0


@dataclass(frozen=True, slots=True)
class Cohort:
    """A group of tenants and cohorts; its own quota is an extra shared pool."""

    name: str
    parent: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    order: OrderPolicy = OrderPolicy.CLASSIC


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, leaf of the quota tree; `cohort` None stands alone."""

    name: str
    cohort: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of one tenant and its policy.

    `name` is unique in the snapshot ("research/train"). `limits` are (flavor, GPUs in use at
    most) pairs. `booking_depth` blocked jobs get bookings in order (0: none, 1: EASY, a large
    number: conservative), and so does every job that has waited `booking_after_seconds`.
    With `backfill` off a blocked job blocks all behind it in its queue. With `user_fairness` jobs
    that have waited `booking_after_seconds` go first, then the first job of everybody who has
    nothing running, then by the user's decayed usage before age. `min_runtime_seconds` protects a
    running job from preemption and reclaim for so long after its start. `flavors` are those that
    it allows; empty where that is not told (counterfactuals then try all).
    """

    name: str
    tenant: str
    state: QueueState = QueueState.OPEN
    limits: tuple[tuple[str, int], ...] = ()
    booking_depth: int = 1
    booking_after_seconds: float | None = 43_200.0
    backfill: bool = True
    backfill_order: BackfillOrder = BackfillOrder.SHORTEST
    user_fairness: bool = False
    min_runtime_seconds: float = 600.0
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserLimit:
    """At most `limit` GPUs of `flavor` in use by `user` in `tenant` at one time."""

    tenant: str
    user: str
    flavor: str
    limit: int


@dataclass(frozen=True, slots=True)
class DecayedUsage:
    """Past use in GPU seconds, decayed to `Snapshot.now` by the half-life that the caller keeps.

    `user` None is the tenant's whole usage.
    """

    tenant: str
    user: str | None
    gpu_seconds: float
