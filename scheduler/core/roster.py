"""The running jobs of one flavor as arrays: when they end, what stopping them costs, what they hold.

The memo keeps a roster per flavor and moves it by the jobs that came and went, so that a warm plan
asks all running jobs at once. Read by the timeline, by preemption and by growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.core.calendar.ends import OVERDUE_SECONDS, nominal_end
from scheduler.core.inputs.jobs import RunningJob
from scheduler.core.quota.accounts import Group, usage_group
from scheduler.core.topology.grid import Ints
from scheduler.core.topology.spans import Spans, spans_of

Floats = NDArray[np.float64]

_NAN = float("nan")

_ROW = np.dtype(
    [
        ("end", "f8"),
        ("placed_at", "f8"),
        ("started_at", "f8"),
        ("reported_at", "f8"),
        ("interval", "f8"),
        ("may_stop", "?"),
        ("may_grow", "?"),
        ("is_elastic", "?"),
        ("preemptions", "i8"),
        ("priority", "i8"),
        ("gpus", "i8"),
        ("seats", "i8"),
        ("tenant", "i8"),
        ("queue", "i8"),
        ("group", "i8"),
    ]
)
"""One running job. Times are seconds since the epoch, NaN where there is none; names are numbers
in the roster's `Names`. `may_stop`: preemptible and not stopping yet; `may_grow`: of one role and
given fewer replicas than asked; `is_elastic`: of one role and larger than its least."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """A running job's nodes (ascending indexes) and (4, nodes) amounts on its grid."""

    job: RunningJob
    nodes: Ints
    amounts: Ints
    gpus: int


@dataclass(slots=True)
class Names:
    """Numbers for names, in the order in which they were met."""

    tenants: dict[str, int] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    groups: dict[Group, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """`holdings` are by job id; `rows` and `spans` have one row and one span for each."""

    holdings: list[Holding] = field(default_factory=list)
    rows: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=_ROW))
    spans: Spans = field(default_factory=lambda: spans_of(()))
    names: Names = field(default_factory=Names)

    def place_of(self, job_id: str) -> int | None:
        """Where the job's row is."""
        low, high = 0, len(self.holdings)
        while low < high:
            middle = (low + high) // 2
            if self.holdings[middle].job.id < job_id:
                low = middle + 1
            else:
                high = middle
        if low < len(self.holdings) and self.holdings[low].job.id == job_id:
            return low
        return None

    def ends(self, now: float) -> Floats:
        """The latest expected end of each job, always after `now` (see `calendar.ends`)."""
        ends = self.rows["end"]
        return np.where(ends > now, ends, now + OVERDUE_SECONDS)

    def lost_gpu_seconds(self, now: float) -> Floats:
        """What stopping each job now would lose: its GPUs × the time since it last saved (see
        `calendar.ends.saved_at`) or, without a checkpoint, since it started."""
        rows = self.rows
        started, interval = rows["started_at"], rows["interval"]
        made = np.floor((now - started) / interval)
        implied = np.where(made >= 1, started + made * interval, started)
        saved = np.where(np.isnan(rows["reported_at"]), implied, rows["reported_at"])
        lost = rows["gpus"] * np.maximum(0.0, now - np.fmax(saved, started))
        return np.where(np.isnan(started), 0.0, lost)

    def changed(self, gone: set[str], come: Sequence[Holding]) -> Roster:
        """The roster without some jobs and with others."""
        kept = [i for i, holding in enumerate(self.holdings) if holding.job.id not in gone]
        holdings = [*(self.holdings[i] for i in kept), *come]
        first = len(self.holdings)
        places = np.array([*kept, *range(first, first + len(come))], dtype=np.int64)
        order = sorted(range(len(holdings)), key=[h.job.id for h in holdings].__getitem__)
        places = places[order]
        fresh = np.array([_row(holding, self.names) for holding in come], dtype=_ROW)
        added = spans_of([(holding.nodes, holding.amounts) for holding in come])
        return Roster(
            [holdings[i] for i in order],
            np.concatenate((self.rows, fresh))[places],
            self.spans.followed_by(added).picked(places),
            self.names,
        )


def roster_of(holdings: Iterable[Holding]) -> Roster:
    """A fresh roster."""
    return Roster().changed(set(), list(holdings))


def _is_smaller(job: RunningJob, seats: int) -> bool:
    """Whether it was given fewer replicas than asked: not that some have ended, which is no reason to restart it."""
    role = job.ask.roles[0]
    return not job.replicas_ended and role.least_replicas <= seats < role.replicas


def _row(holding: Holding, names: Names) -> tuple[object, ...]:
    job, ask = holding.job, holding.job.ask
    group = usage_group(ask, job.flavor)
    leaves = job.stopping or job.evicted_for is not None
    one_role, seats = len(ask.roles) == 1, len(job.seats)
    return (
        nominal_end(job),
        job.placed_at,
        _NAN if job.started_at is None else job.started_at,
        _NAN if job.last_checkpoint_at is None else job.last_checkpoint_at,
        _NAN if ask.checkpoint is None else ask.checkpoint.interval_seconds or _NAN,
        ask.preemptible and not leaves,
        one_role and not leaves and _is_smaller(job, seats),
        one_role and seats > ask.roles[0].least_replicas >= 1,
        job.preemptions,
        ask.priority,
        holding.gpus,
        seats,
        names.tenants.setdefault(ask.tenant, len(names.tenants)),
        names.queues.setdefault(ask.queue, len(names.queues)),
        names.groups.setdefault(group, len(names.groups)),
    )
