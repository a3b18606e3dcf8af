"""Maintenance windows and reservations, each time they happen, drains by operators, labels wanted on nodes.

`services.windows` writes what people ask, `services.occurrences` and `services.drains` what becomes of it.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from queues.models import Cluster
from scheduler.models.nodes import Node


class WindowKind(models.TextChoices):
    """Kept free for work on the nodes, or kept for somebody."""

    MAINTENANCE = "maintenance", _("maintenance")
    RESERVED = "reserved", _("reserved")


class Crossing(models.TextChoices):
    """Which jobs may be placed across a window's start."""

    CHECKPOINTABLE = "checkpointable", _("jobs that write checkpoints")
    NEVER = "never", _("none")


class RunningJobs(models.TextChoices):
    """What becomes of jobs that run when the nodes are wanted."""

    FINISH = "finish", _("may finish")
    CHECKPOINT = "checkpoint", _("leave after a checkpoint")
    EVICT = "evict", _("leave at the start")


class MaintenanceWindow(models.Model):
    """Nodes × time. starts_at and ends_at are the first occurrence; `rrule` (RFC 5545) makes it come again.

    nodes: {"names", "domains": [{"level", "name"}], "labels", "flavor"} (`maintenance.selection`). latest_at: when jobs
    leave anyway; as a moment of the first occurrence, and at the same distance from the start of every later one.
    admits: {"tenants", "queues", "jobs"} of a reservation; all empty keeps the nodes as spares for swaps.
    exceptions: {start by the rule: {"starts_at", "ends_at" (None: skipped), "reason", "by", "since"}}, as RFC 3339.
    """

    title = models.CharField(max_length=200)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="windows")
    kind = models.CharField(max_length=12, choices=WindowKind.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    time_zone = models.CharField(max_length=64, default="UTC")
    rrule = models.CharField(max_length=300, blank=True)
    nodes = models.JSONField(default=dict)
    crossing = models.CharField(max_length=16, choices=Crossing.choices)
    running_jobs = models.CharField(max_length=12, choices=RunningJobs.choices)
    latest_at = models.DateTimeField(null=True, blank=True)
    notice_minutes = models.PositiveIntegerField(default=60)
    admits = models.JSONField(default=dict, blank=True)
    exceptions = models.JSONField(default=dict, db_default={}, blank=True)
    version = models.PositiveIntegerField(default=1)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()
    cancelled_by = models.CharField(max_length=150, blank=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at__gt=models.F("starts_at")), name="window_ends_after_start"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=WindowKind.values), name="window_kind_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["cluster"], condition=Q(cancelled_at__isnull=True), name="window_in_force"
            ),
        ]

    def __str__(self) -> str:
        return self.title


class OccurrenceState(models.TextChoices):
    """Where one occurrence of a window stands."""

    PLANNED = "planned", pgettext_lazy("window", "planned")
    NOTICED = "noticed", pgettext_lazy("window", "announced")
    DRAINING = "draining", pgettext_lazy("window", "draining")
    OPEN = "open", pgettext_lazy("window", "open")
    CHECKING = "checking", pgettext_lazy("window", "checking nodes")
    OVER = "over", pgettext_lazy("window", "over")
    CANCELLED = "cancelled", pgettext_lazy("window", "cancelled")


class Occurrence(models.Model):
    """One time that a window happens. nodes: their names, as of the start of draining.

    latest_at None: jobs are never made to leave. expected_empty_at is reckoned while draining; empty_at is when the
    last job had left. checks: {node: what keeps it from coming back}. held: {node: how it was before}.
    told: ids of the jobs whose owners were told ahead.
    """

    # States in which the nodes are somebody's business already.
    LIVE: ClassVar = Q(state__in=["planned", "noticed", "draining", "open", "checking"])

    window = models.ForeignKey(
        MaintenanceWindow, on_delete=models.CASCADE, related_name="occurrences"
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    latest_at = models.DateTimeField(null=True, blank=True)
    state = models.CharField(
        max_length=10, choices=OccurrenceState.choices, default=OccurrenceState.PLANNED
    )
    nodes = models.JSONField(default=list, blank=True)
    expected_empty_at = models.DateTimeField(null=True, blank=True)
    noticed_at = models.DateTimeField(null=True, blank=True)
    draining_at = models.DateTimeField(null=True, blank=True)
    empty_at = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField(null=True, blank=True)
    checking_at = models.DateTimeField(null=True, blank=True)
    over_at = models.DateTimeField(null=True, blank=True)
    checks = models.JSONField(default=dict, blank=True)
    held = models.JSONField(default=dict, blank=True)
    told = models.JSONField(default=list, db_default=[], blank=True)

    class Meta:
        ordering = ["starts_at"]
        constraints = [
            models.UniqueConstraint(fields=["window", "starts_at"], name="occurrence_once"),
            models.CheckConstraint(
                condition=Q(state__in=OccurrenceState.values), name="occurrence_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["state", "starts_at"], name="occurrence_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.window_id} at {self.starts_at:%Y-%m-%d %H:%M}"


class Drain(models.Model):
    """An operator wants a node empty: cordoned, its jobs leave as `running_jobs` says. Ended by an uncordon."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="drains")
    reason = models.TextField()
    running_jobs = models.CharField(max_length=12, choices=RunningJobs.choices)
    latest_at = models.DateTimeField(null=True, blank=True)
    by = models.CharField(max_length=150)
    since = models.DateTimeField()
    expected_empty_at = models.DateTimeField(null=True, blank=True)
    empty_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node"], condition=Q(ended_at__isnull=True), name="drain_one_open_per_node"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} by {self.by}"


class WantedLabel(models.Model):
    """A label that a node should bear; the `cluster` process makes Kubernetes agree. value None: should not bear it.

    The row goes when nobody has an opinion any more: the label then stays as it is.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="wanted_labels")
    key = models.CharField(max_length=317)
    value = models.CharField(max_length=63, null=True, blank=True)  # noqa: DJ001  None is "absent"
    by = models.CharField(max_length=150)
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "key"], name="wanted_label_once"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id}: {self.key}={self.value}"
