"""Where rows and Kubernetes were found to differ, since when, and what healed it. The `cluster` process writes."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queues.models import Cluster


class DriftKind(models.TextChoices):
    """What differs."""

    UNCLAIMED = "unclaimed", _("pod of a job that no row knows")
    LEFT_OVER = "left_over", _("pod of an attempt that has ended")
    STRAY = "stray", _("pod made twice, or under an older try")
    ELSEWHERE = "elsewhere", _("pod on another node than planned")
    OVERFULL = "overfull", _("node holds more than it offers")
    SEATS = "seats", _("seats do not match placements")
    NAMESPACE = "namespace", _("namespace was changed")
    NODE = "node", _("node is not as wanted")


class Healing(models.TextChoices):
    """How a drift went."""

    DELETED = "deleted", _("the pod was deleted")
    ADOPTED = "adopted", _("the attempt was adopted")
    STOPPED = "stopped", _("the attempt was stopped, to be placed anew")
    APPLIED = "applied", _("applied again")
    ITSELF = "itself", _("it went by itself")


class Drift(models.Model):
    """One difference. key tells those of one kind apart (a pod's uid, a node, a namespace, a placement).

    Open while healed_at is empty. What waits for a person (unclaimed, overfull, seats) stays open until it is gone.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drifts")
    kind = models.CharField(max_length=10, choices=DriftKind.choices)
    key = models.CharField(max_length=253)
    node = models.CharField(max_length=253, blank=True)
    namespace = models.CharField(max_length=63, blank=True)
    pod = models.CharField(max_length=253, blank=True)
    job = models.CharField(
        max_length=63, blank=True
    )  # as the pod's label says: there may be no such row
    attempt = models.PositiveIntegerField(null=True, blank=True)
    detail = models.TextField(blank=True)
    since = models.DateTimeField()
    healed_at = models.DateTimeField(null=True, blank=True)
    healed_how = models.CharField(max_length=8, choices=Healing.choices, blank=True)

    class Meta:
        ordering = ["-since", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "key"],
                condition=Q(healed_at__isnull=True),
                name="drift_open_once",
            ),
            models.CheckConstraint(condition=Q(kind__in=DriftKind.values), name="drift_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
