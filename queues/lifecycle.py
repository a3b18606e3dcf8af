"""Phases, outcomes and ends of jobs, which phase may follow which, and what follows an attempt. Pure.

Called by `services.lifecycle` and `services.attempts`, which alone write a job's phase and an attempt's end.
docs/lifecycle.md shows the tables; a test compares the two (DESIGN section 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models
from django.utils.translation import gettext_lazy as _


class Phase(models.TextChoices):
    """Where a job is in its life."""

    PENDING = "pending", _("pending")
    HELD = "held", _("held")
    PLACED = "placed", _("placed")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    STOPPING = "stopping", _("stopping")
    FINISHED = "finished", _("finished")


class Outcome(models.TextChoices):
    """What became of a finished job."""

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    TIMED_OUT = "timed_out", _("timed out")
    PREEMPTED = "preempted", _("preempted")
    INFEASIBLE = "infeasible", _("infeasible")
    NODE_FAILURE = "node_failure", _("node failure")


class EndedBy(models.TextChoices):
    """What ended an attempt."""

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    TIMED_OUT = "timed_out", _("timed out")
    PREEMPTED = "preempted", _("preempted")
    NODE_FAILURE = "node_failure", _("node failure")
    MAINTENANCE = "maintenance", _("maintenance")
    RESIZE = "resize", _("resize")
    REQUEUED = "requeued", _("requeued")
    PLACEMENT_MISS = "placement_miss", _("placement miss")
    START_FAILED = "start_failed", _("start failed")
    STALLED = "stalled", _("stalled")


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.HELD, Phase.PLACED, Phase.FINISHED}),
    Phase.HELD: frozenset({Phase.PENDING, Phase.FINISHED}),
    Phase.PLACED: frozenset({Phase.STARTING, Phase.STOPPING}),
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.STOPPING}),
    Phase.RUNNING: frozenset({Phase.STOPPING}),
    Phase.STOPPING: frozenset({Phase.PENDING, Phase.FINISHED}),
    Phase.FINISHED: frozenset(),
}

# Phases in which an attempt is open and holds seats.
ACTIVE_PHASES = frozenset({Phase.PLACED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING})


def may_follow(before: Phase, after: Phase) -> bool:
    """Whether a job in phase `before` may go to phase `after`."""
    return after in TRANSITIONS[before]


# Faults that are nobody's but the infrastructure's: they have a budget of their own, and a back-off.
INFRASTRUCTURE_ENDS = frozenset({EndedBy.NODE_FAILURE, EndedBy.PLACEMENT_MISS})
INFRASTRUCTURE_BUDGET = 10
INFRASTRUCTURE_WINDOW_SECONDS = 24 * 3600
FIRST_BACKOFF_SECONDS = 10
LONGEST_BACKOFF_SECONDS = 600

# Failures of the job's own code: each restart uses up one of `max_restarts`.
OWN_ENDS = frozenset({EndedBy.FAILED, EndedBy.STALLED})

# Ends after which the job is always finished.
_FINAL: Mapping[EndedBy, Outcome] = {
    EndedBy.SUCCEEDED: Outcome.SUCCEEDED,
    EndedBy.CANCELLED: Outcome.CANCELLED,
    EndedBy.TIMED_OUT: Outcome.TIMED_OUT,
    # A wrong image or a missing secret is as wrong the next time.
    EndedBy.START_FAILED: Outcome.FAILED,
}


@dataclass(frozen=True, slots=True)
class RestartBudget:
    """What a job may still use up when an attempt ends.

    infrastructure_faults: attempts that ended so within the last 24 h, the one that ends now not counted.
    refused: Kubernetes said no to this one; that backs off as faults do, but never ends the job.
    cause_removed: what was at fault is out already, so that the first restart need not wait.
    elsewhere: a start that failed by taking too long, which is nobody's fault that is known.
    """

    max_restarts: int = 0
    restarts_used: int = 0
    on_preemption: str = "requeue"
    infrastructure_faults: int = 0
    refused: bool = False
    cause_removed: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class AfterAttempt:
    """What becomes of the job: another attempt (`pending`, after `backoff_seconds`) or its `outcome`."""

    phase: Phase
    outcome: Outcome | None = None
    backoff_seconds: int = 0
    uses_restart: bool = False


def after_attempt(ended_by: EndedBy, budget: RestartBudget) -> AfterAttempt:
    """What follows an attempt that ended so (DESIGN section 4). Every end is covered; see docs/lifecycle.md."""
    if ended_by is EndedBy.START_FAILED and budget.elsewhere:
        return _after_fault(budget)
    if ended_by in _FINAL:
        return _finished(_FINAL[ended_by])
    if ended_by in OWN_ENDS:
        if budget.restarts_used < budget.max_restarts:
            return AfterAttempt(Phase.PENDING, uses_restart=True)
        return _finished(Outcome.FAILED)
    if ended_by in INFRASTRUCTURE_ENDS:
        return _after_fault(budget)
    if ended_by is EndedBy.PREEMPTED and budget.on_preemption == "stop":
        return _finished(Outcome.PREEMPTED)
    return AfterAttempt(Phase.PENDING)


def backoff_seconds(fault: int) -> int:
    """The pause after the n-th infrastructure fault (from 1): 10 s, doubling, at most 10 min."""
    return min(FIRST_BACKOFF_SECONDS << min(fault - 1, 16), LONGEST_BACKOFF_SECONDS)


def _after_fault(budget: RestartBudget) -> AfterAttempt:
    if budget.infrastructure_faults >= INFRASTRUCTURE_BUDGET and not budget.refused:
        return _finished(Outcome.NODE_FAILURE)
    if budget.cause_removed and not budget.infrastructure_faults:
        return AfterAttempt(Phase.PENDING)
    return AfterAttempt(
        Phase.PENDING, backoff_seconds=backoff_seconds(budget.infrastructure_faults + 1)
    )


def _finished(outcome: Outcome) -> AfterAttempt:
    return AfterAttempt(Phase.FINISHED, outcome=outcome)
