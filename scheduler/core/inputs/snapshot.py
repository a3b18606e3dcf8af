"""The whole input of one plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.core.inputs.cluster import Cluster, Flavor, Node, Window
from scheduler.core.inputs.jobs import Hold, RunningJob, WaitingJob
from scheduler.core.inputs.quotas import Cohort, DecayedUsage, Queue, Tenant, UserLimit


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one plan reads. `now` is in seconds since the epoch, UTC.

    Keep unchanged tuples and members identical (the same objects) from one snapshot to the next:
    a warm `Memo` then recomputes only what moved. `revision` is the event-log number up to
    which the snapshot is true; the planner only copies it. `half_life_seconds` is that by which
    `usage` was decayed.
    """

    now: float
    cluster: Cluster
    flavors: tuple[Flavor, ...]
    nodes: tuple[Node, ...]
    tenants: tuple[Tenant, ...]
    queues: tuple[Queue, ...]
    cohorts: tuple[Cohort, ...] = ()
    user_limits: tuple[UserLimit, ...] = ()
    usage: tuple[DecayedUsage, ...] = ()
    windows: tuple[Window, ...] = ()
    running: tuple[RunningJob, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    holds: tuple[Hold, ...] = ()
    half_life_seconds: float = 604_800.0
    revision: int = 0


class Effort(StrEnum):
    """How much of a pass is explained."""

    DECIDE = "decide"
    EXPLAIN = "explain"


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants of one plan.

    `effort` DECIDE leaves out reasons (replay); decisions are the same. `max_starts` bounds the
    starts of one plan (the next plan goes on), `max_bookings` its bookings, whatever the queues
    ask, and `max_moments` the moments that are tried for them on each flavor. `preempt` allows
    evictions; `preemption_budget` is how often one job may be evicted for others,
    `max_preemptors` how many jobs may search for victims in one plan. `start_allowance_seconds`
    is added to the planned end of a job until it runs. `estimates` is for how many waiting jobs,
    in order, a start is estimated beyond the bookings (after all decisions are made; it changes
    none). `probe` names jobs, and `probe_first` how many refused jobs in order, for which
    counterfactuals are tried. `dry_mode` plans as if the cluster's mode were `schedule`: what
    would it do?
    """

    effort: Effort = Effort.EXPLAIN
    max_starts: int | None = None
    max_bookings: int = 32
    max_moments: int = 200
    preempt: bool = True
    preemption_budget: int = 3
    max_preemptors: int = 8
    start_allowance_seconds: float = 60.0
    estimates: int = 0
    probe: frozenset[str] = frozenset()
    probe_first: int = 0
    dry_mode: bool = False
