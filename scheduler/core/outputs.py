"""What the planner answers: a `Plan` of starts, verdicts, bookings and evictions.

Read by `scheduler.apply` (which commits it to rows), by the what-if doors and by
`scheduler.replay`. All times are float seconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.core.inputs.jobs import EvictionRule, Hold, Seat
from scheduler.core.reasons import Number, Reason


@dataclass(frozen=True, slots=True)
class Start:
    """A gang to place now, whole.

    `seats` has one entry per replica, in rank order. `replicas` is their number (fewer than asked
    only for elastic jobs). Levels are names, widest to narrowest the cluster's plus `node`;
    `achieved_level` None means that the gang crosses the widest level; `asked_level` None that
    nothing was asked. `domains` are the (level, domain) pairs that hold the whole gang.
    `planned_end` None never ends. `planned_stop_at` is set when the job will be stopped at a
    checkpoint for a window that it crosses, and returns after `planned_return_at`.
    """

    job: str
    class_key: str
    flavor: str
    seats: tuple[Seat, ...]
    asked_level: str | None
    achieved_level: str | None
    domains: tuple[tuple[str, str], ...] = ()
    planned_end: float | None = None
    planned_stop_at: float | None = None
    planned_return_at: float | None = None
    job_version: int = 0

    @property
    def replicas(self) -> int:
        """How many replicas start."""
        return len(self.seats)

    @property
    def gpus(self) -> int:
        """GPUs that the gang takes."""
        return sum(seat.gpus for seat in self.seats)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The distinct nodes, in rank order."""
        return tuple(dict.fromkeys(seat.node for seat in self.seats))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a class of waiting jobs: that of its first job, `job`.

    `reason` is dominant: the first check that fails against the state left by the jobs ahead;
    `reasons` are all that hold, the dominant one first. `jobs` is how many of the class wait.
    """

    class_key: str
    job: str
    reason: Reason
    reasons: tuple[Reason, ...]
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Booking:
    """The future start that is kept for a blocked job.

    `nodes` are (node, GPUs) pairs; `until` None never ends.
    """

    job: str
    class_key: str
    flavor: str
    starts_at: float
    until: float | None
    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a waiting job starts if every job runs to its limit and nothing new arrives.

    `starts_at` None: beyond the plan's horizon (something that never ends is in the way).
    """

    job: str
    starts_at: float | None


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """One change to a waiting job that was tried on the state that the job met.

    `change` names fields of the job contract with their new values (`topology.level` None is
    "preferred only"). `estimated_start` is the plan's moment when it starts now.
    """

    change: Mapping[str, Number]
    starts_now: bool
    estimated_start: float | None


@dataclass(frozen=True, slots=True)
class Resize:
    """A running elastic job that should grow: it restarts from the checkpoint just written.

    `gain_seconds` is how much sooner it ends, the restart counted.
    """

    job: str
    attempt: int
    from_replicas: int
    to_replicas: int
    gain_seconds: float | None


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running job to stop (or shrink) for another, with its provenance.

    `keeps_replicas` > 0 shrinks an elastic job to that size. `lost_gpu_seconds` is what is lost
    since its last checkpoint. `numbers` are shares and quotas at that moment; `refused` the
    alternatives that were looked at, as (job, why not) pairs.
    """

    job: str
    attempt: int
    preemptor: str
    rule: EvictionRule
    lost_gpu_seconds: float
    keeps_replicas: int = 0
    numbers: Mapping[str, Number] = field(default_factory=dict)
    refused: tuple[tuple[str, str], ...] = ()


class FinishCause(StrEnum):
    """Why the planner would finish a job that has not run."""

    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Finish:
    """A waiting job that can never run as things are; whether to finish it is the caller's
    choice (`on_infeasible`)."""

    job: str
    cause: FinishCause
    reason: Reason


@dataclass(frozen=True, slots=True)
class OverAdmission:
    """A tenant or cohort that uses more than it may, after a quota cut or outside usage."""

    name: str
    flavor: str
    over_gpus: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What the pass did, for metrics."""

    considered: int = 0
    tried: int = 0
    skipped: int = 0
    classes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan. Same snapshot and options, same plan, to the last field.

    `verdicts` are per class key; `classes` maps every waiting job that does not start to its class
    key; `own_reasons` are reasons of single jobs and win over the class's. `order` lists the
    waiting jobs as they were considered (position, jobs ahead). `holds` are all holds to keep from now on, those of
    the snapshot that still count included. `withdrawn` are running jobs whose
    eviction was not yet signalled and is no longer wanted. `identity` hashes the decisions and the
    versions of what they touch.
    """

    now: float
    revision: int
    identity: str
    starts: tuple[Start, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    own_reasons: Mapping[str, Reason] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    bookings: tuple[Booking, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    counterfactuals: Mapping[str, tuple[Counterfactual, ...]] = field(default_factory=dict)
    resizes: tuple[Resize, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    holds: tuple[Hold, ...] = ()
    withdrawn: tuple[str, ...] = ()
    finishes: tuple[Finish, ...] = ()
    over_admissions: tuple[OverAdmission, ...] = ()
    stats: Stats = field(default_factory=Stats)

    def reason_of(self, job_id: str) -> Reason | None:
        """The dominant reason of a waiting job; None when it starts or is unknown."""
        own = self.own_reasons.get(job_id)
        if own is not None:
            return own
        key = self.classes.get(job_id)
        return None if key is None else self.verdicts[key].reason
