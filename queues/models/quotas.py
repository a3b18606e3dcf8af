"""What a tenant may use, and the queues in which its jobs wait. One service writes quotas: `services.quotas`."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queues.models.catalogue import Cluster, Flavor, Preset
from tenants.models import Tenant, slug_validator


class Quota(models.Model):
    """A tenant's share of a flavor, in units of the flavor (GPUs). As in Kueue; None means no limit."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quotas")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="quotas")
    nominal = models.PositiveIntegerField()
    borrowing_limit = models.PositiveIntegerField(null=True, blank=True)
    lending_limit = models.PositiveIntegerField(null=True, blank=True)
    weight = models.DecimalField(max_digits=8, decimal_places=3, default=1)
    headroom = models.PositiveIntegerField(default=0)
    # GPUs that pods in the tenant's namespace use which Muster did not create: kept by the cluster process
    # (services.catalogue.record_outside_use), since those pods are `scheduler`'s.
    outside = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "flavor"], name="quota_once"),
            models.CheckConstraint(condition=Q(weight__gt=0), name="quota_weight_positive"),
            models.CheckConstraint(
                condition=Q(lending_limit__isnull=True) | Q(lending_limit__lte=models.F("nominal")),
                name="quota_lends_at_most_nominal",
            ),
            models.CheckConstraint(
                condition=Q(headroom__lte=models.F("nominal")), name="quota_headroom_within_nominal"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.flavor_id}: {self.nominal}"


class QueueState(models.TextChoices):
    """`closed` takes no jobs, `held` starts none."""

    OPEN = "open", _("open")
    CLOSED = "closed", _("closed")
    HELD = "held", _("held")


class Queue(models.Model):
    """Where a tenant's jobs wait, on one cluster."""

    BACKFILL_ORDERS: ClassVar = [
        ("shortest_limit", _("shortest limit first")),
        ("order", _("queue order")),
        ("none", _("nothing: nobody passes a job that waits")),
    ]

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="queues")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="queues")
    name = models.CharField(max_length=40, validators=[slug_validator])
    state = models.CharField(max_length=8, choices=QueueState.choices, default=QueueState.OPEN)
    version = models.PositiveIntegerField(default=1)
    # In order of preference: a job without `gpu_model` tries them so.
    flavors = models.ManyToManyField(Flavor, through="QueueFlavor", related_name="queues")
    presets = models.ManyToManyField(Preset, blank=True, related_name="queues")
    default_max_runtime_seconds = models.PositiveIntegerField(null=True, blank=True)
    longest_max_runtime_seconds = models.PositiveIntegerField(null=True, blank=True)
    # Highest priority that each tenant role may ask for.
    highest_priority_submitter = models.PositiveSmallIntegerField(default=500)
    highest_priority_admin = models.PositiveSmallIntegerField(default=1000)
    # Whether a user's decayed usage comes before age within one priority (DESIGN section 5).
    user_fair_share = models.BooleanField(default=True)
    # Bookings: for this many of the first blocked jobs, and for every job that has waited so long.
    bookings = models.PositiveSmallIntegerField(default=1)
    booking_after_seconds = models.PositiveIntegerField(default=43_200)
    backfill_order = models.CharField(
        max_length=16, choices=BACKFILL_ORDERS, default="shortest_limit"
    )
    # A running job of this queue is safe from preemption and reclaim for so long after its start.
    min_runtime_seconds = models.PositiveIntegerField(default=600, db_default=600)
    # What follows when a job holds GPUs but leaves them idle: "alert" its owner, "lower" its protection, "stop" it.
    on_waste = models.CharField(max_length=8, default="alert", db_default="alert")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="queue_name_once"),
            models.CheckConstraint(
                condition=Q(state__in=["open", "closed", "held"]), name="queue_state_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name}"


class QueueFlavor(models.Model):
    """A flavor that a queue allows, and its place in the order of preference."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="queue_flavors")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="queue_flavors")
    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["queue", "flavor"], name="queue_flavor_once")
        ]

    def __str__(self) -> str:
        return f"{self.queue_id} {self.flavor_id}"


class QueueLimit(models.Model):
    """How much of a flavor one queue may use, within its tenant's quota."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="limits")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    limit = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "flavor"], name="queue_limit_once")]

    def __str__(self) -> str:
        return f"{self.queue_id} {self.flavor_id}: {self.limit}"


class UserLimit(models.Model):
    """How much of a flavor one user may use in a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="user_limits")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    limit = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user", "flavor"], name="user_limit_once")
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.user_id} {self.flavor_id}: {self.limit}"


class QuotaRequest(models.Model):
    """A change set: a tenant admin asks for more, a platform admin accepts or refuses it as one."""

    STATES: ClassVar = [("open", _("open")), ("accepted", _("accepted")), ("refused", _("refused"))]

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quota_requests")
    # The body of a quota PUT: {"flavors": [...], "queues": [...], "users": [...]}.
    changes = models.JSONField()
    quota_version = models.PositiveIntegerField()
    comment = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=STATES, default="open")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    asked_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_comment = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.state}"
