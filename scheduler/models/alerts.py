"""Alerts: what somebody should know, once, until it is over. Written only by `scheduler.services.alerts`."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queues.models import Cluster
from tenants.models import Tenant


class Severity(models.TextChoices):
    """How soon somebody should look."""

    INFO = "info", _("for information")
    WARNING = "warning", _("warning")
    CRITICAL = "critical", _("critical")


class AlertState(models.TextChoices):
    """Whether anybody still has to look."""

    OPEN = "open", _("open")
    ACKNOWLEDGED = "acknowledged", _("acknowledged")
    SILENCED = "silenced", _("silenced")
    RESOLVED = "resolved", _("resolved")


class Alert(models.Model):
    """One finding about one subject. While it is not resolved there is one row for its `key`.

    What it is about are names, since an alert outlives its subject; only tenant and cluster are rows.
    """

    key = models.CharField(max_length=400)
    kind = models.CharField(max_length=40)
    severity = models.CharField(max_length=8, choices=Severity.choices)
    state = models.CharField(max_length=12, choices=AlertState.choices, default=AlertState.OPEN)
    cluster = models.ForeignKey(
        Cluster, null=True, blank=True, on_delete=models.CASCADE, related_name="alerts"
    )
    # Without one only operators, auditors and platform admins see it.
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="alerts"
    )
    node = models.CharField(max_length=253, blank=True)
    gpu = models.CharField(max_length=80, blank=True)
    job = models.CharField(max_length=40, blank=True)
    # What the sentence of its kind is filled with, and evidence in the source's own words.
    numbers = models.JSONField(default=dict)
    detail = models.TextField(blank=True)
    # How often it was raised anew; raisings that say the same within a minute count once.
    count = models.PositiveIntegerField(default=1)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    acknowledged_by = models.CharField(max_length=150, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)
    silenced_by = models.CharField(max_length=150, blank=True)
    silenced_until = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=150, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    # How often people were told: part of the dedupe key of what they are told.
    tellings = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["key"], condition=~Q(state="resolved"), name="alert_once_unresolved"
            ),
            models.CheckConstraint(
                condition=Q(severity__in=["info", "warning", "critical"]),
                name="alert_severity_known",
            ),
        ]
        indexes = [
            models.Index(fields=["key", "-id"], name="alert_by_key"),
            models.Index(fields=["state", "-id"], name="alert_by_state"),
            models.Index(fields=["tenant", "-id"], name="alert_by_tenant"),
            models.Index(fields=["resolved_at"], name="alert_by_end"),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.state}"
