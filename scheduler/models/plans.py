"""What the planner keeps between cycles: bookings, holds, and evictions with their provenance.

`scheduler.apply` writes bookings and holds. Evictions are ordered through `scheduler.services.evictions` by the loop,
by maintenance windows, by drains and by health rules, and carried out there.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queues.models import Attempt, Cluster, Flavor, Job


class Booking(models.Model):
    """The future (start, nodes) that is kept for a blocked job; gone when it starts, or is no longer blocked.

    nodes: [[node, GPUs], …].
    """

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, primary_key=True, related_name="booking"
    )
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="bookings")
    flavor = models.ForeignKey(Flavor, on_delete=models.CASCADE, related_name="+")
    starts_at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    nodes = models.JSONField(default=list)
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job_id} from {self.starts_at:%H:%M}"


class Hold(models.Model):
    """Capacity that is being freed for a preemptor, and kept for it until it starts or `expires_at`.

    nodes: [[node, GPUs, CPU millis, memory MiB, pods], …].
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="hold")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="holds")
    flavor = models.ForeignKey(Flavor, on_delete=models.CASCADE, related_name="+")
    nodes = models.JSONField(default=list)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job_id} until {self.expires_at:%H:%M}"


class EvictionRule(models.TextChoices):
    """By which rule a running attempt is stopped so that the job may come back."""

    PRIORITY = "priority", _("higher priority")
    RECLAIM = "reclaim", _("lent quota reclaimed")
    FAIR_SHARE = "fair_share", _("fair share")
    SHRINK = "shrink", _("elastic surplus given up")
    GROW = "grow", _("elastic growth")
    MAINTENANCE = "maintenance", _("maintenance window")
    DRAIN = "drain", _("drain by an operator")
    HEALTH = "health", _("health rule")


class Eviction(models.Model):
    """A running attempt that is to leave: for whom, by which rule, at what cost, and what was tried instead.

    wait_for_checkpoint: the stop waits for the job's next checkpoint, at the latest until `latest_at`.
    signalled_at: when the pods were told; until then an eviction can be withdrawn. keeps_replicas > 0 resizes.
    numbers are shares and quotas at that moment; refused [[job, why not], …].
    """

    OPEN: ClassVar = Q(withdrawn_at__isnull=True, ended_at__isnull=True)

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="evictions")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="evictions")
    rule = models.CharField(max_length=12, choices=EvictionRule.choices)
    preemptor = models.ForeignKey(
        Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="evictions_for"
    )
    keeps_replicas = models.PositiveIntegerField(default=0)
    lost_gpu_seconds = models.BigIntegerField(default=0)
    numbers = models.JSONField(default=dict, blank=True)
    refused = models.JSONField(default=list, blank=True)
    message = models.TextField(blank=True)
    ordered_by = models.CharField(max_length=150)
    ordered_at = models.DateTimeField()
    wait_for_checkpoint = models.BooleanField(default=False)
    latest_at = models.DateTimeField(null=True, blank=True)
    signalled_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt"],
                condition=Q(withdrawn_at__isnull=True, ended_at__isnull=True),
                name="eviction_one_open_per_attempt",
            ),
            models.CheckConstraint(
                condition=Q(rule__in=EvictionRule.values), name="eviction_rule_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["cluster"],
                condition=Q(withdrawn_at__isnull=True, ended_at__isnull=True),
                name="eviction_open",
            ),
            models.Index(fields=["cluster", "-ordered_at"], name="eviction_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} by {self.rule}"
