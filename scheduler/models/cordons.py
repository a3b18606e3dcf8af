"""Who wants a node to take no new pods, and why. The `cluster` process makes Kubernetes agree."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from scheduler.models.nodes import Node


class CordonSource(models.TextChoices):
    """Who set a cordon; each lifts only its own."""

    OPERATOR = "operator", _("operator")
    WINDOW = "window", _("maintenance window")
    HEALTH = "health", _("health rule")


class Cordon(models.Model):
    """One party's wish that a node takes no new pods; the node is cordoned while any row names it.

    key tells the cordons of one source apart (the id of the window or rule; empty for an operator). `taint`: besides,
    the taint `muster.dev/out=<source>:NoSchedule` is wanted. `services.cordons` alone writes these rows and keeps
    Node.cordon_wanted, cordon_reason, cordon_by, cordon_since and cordon_source in step (the weightiest cordon speaks).
    found_cordoned: somebody outside Muster had cordoned the node before; that stays when this row goes.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="cordons")
    source = models.CharField(max_length=10, choices=CordonSource.choices)
    key = models.CharField(max_length=64, blank=True)
    reason = models.TextField()
    by = models.CharField(max_length=150)
    since = models.DateTimeField()
    taint = models.BooleanField(default=False)
    found_cordoned = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "source", "key"], name="cordon_once"),
            models.CheckConstraint(
                condition=Q(source__in=CordonSource.values), name="cordon_source_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} by {self.source}"
