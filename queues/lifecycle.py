"""Phases, outcomes and ends of jobs, and which phase may follow which (DESIGN section 4). Pure.

docs/lifecycle.md shows this table; a test compares the two. `services.lifecycle` is the only writer.
"""

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
