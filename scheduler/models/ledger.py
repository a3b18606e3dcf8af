"""The ledger: one row per unit of a flavor in use, and the lease of whoever plans. `scheduler.apply` writes."""

from django.db import models

from queues.models import Cluster, Placement
from scheduler.models.nodes import Node


class Seat(models.Model):
    """The n-th unit of a node's flavor, taken by a placement. The unique index makes double use impossible."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="seats")
    index = models.PositiveSmallIntegerField()
    placement = models.ForeignKey(Placement, on_delete=models.PROTECT, related_name="seats")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="seat_once")]

    def __str__(self) -> str:
        return f"{self.node_id}[{self.index}]"


class Lease(models.Model):
    """Who plans for a cluster. `token` rises with every change of holder and fences off the old one.

    expires_at is in the database's own time. Apply transactions hold this row and check the token.
    """

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="lease"
    )
    holder = models.CharField(max_length=120, blank=True)
    token = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.holder} #{self.token}"
