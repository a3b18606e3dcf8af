"""What the `cluster` process sees: nodes, pods that are not ours, and how fresh that knowledge is."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from queues.models import Cluster, Flavor
from tenants.models import Tenant


class HealthState(models.TextChoices):
    """How a GPU, or a node, stands. The same words as `scheduler.health.states.State`."""

    HEALTHY = "healthy", _("healthy")
    SUSPECT = "suspect", _("suspect")
    UNHEALTHY = "unhealthy", _("unhealthy")
    DRAINING = "draining", _("draining")
    REPAIRING = "repairing", _("repairing")
    BURN_IN = "burn_in", _("burn-in")
    JOINING = "joining", _("joining")


class Node(models.Model):
    """A Kubernetes node as last observed, and what people want of it (cordon)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=36)
    boot_id = models.CharField(max_length=64, blank=True)
    flavor = models.ForeignKey(
        Flavor, null=True, blank=True, on_delete=models.SET_NULL, related_name="nodes"
    )
    managed = models.BooleanField(default=True)  # matches the cluster's node selector
    # Units of the flavor: what the machine has, and what the device plugin offers now.
    gpus_capacity = models.PositiveSmallIntegerField(default=0)
    gpus_allocatable = models.PositiveSmallIntegerField(default=0)
    cpu_millis = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)
    pods = models.PositiveIntegerField(default=0)
    # {"spine": "spine-00", "leaf": "leaf-01"}: values of the cluster's level labels.
    domains = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    conditions = models.JSONField(default=dict)
    driver = models.CharField(max_length=32, blank=True)
    cuda = models.CharField(max_length=8, blank=True)
    ready = models.BooleanField(default=False)
    ready_changed_at = models.DateTimeField(null=True, blank=True)
    unschedulable = models.BooleanField(default=False)  # as Kubernetes has it
    # Out of planning, by cause in order of weight: [{"code", "numbers"}]; empty means schedulable.
    out_causes = models.JSONField(default=list)
    # Wanted state: the cluster process makes Kubernetes agree. None: Muster has no opinion.
    cordon_wanted = models.BooleanField(null=True, blank=True)
    cordon_reason = models.TextField(blank=True)
    cordon_by = models.CharField(max_length=150, blank=True)
    cordon_since = models.DateTimeField(null=True, blank=True)
    cordon_source = models.CharField(max_length=10, blank=True, db_default="", default="")
    # Written by the health services alone: the worst of its GPUs and of itself. `health_closed`: takes no new pod.
    health = models.CharField(
        max_length=10,
        choices=HealthState.choices,
        default=HealthState.HEALTHY,
        db_default=HealthState.HEALTHY,
    )
    health_closed = models.BooleanField(default=False, db_default=False)
    health_since = models.DateTimeField(null=True, blank=True)
    health_cause = models.CharField(max_length=200, blank=True, default="", db_default="")
    # When its metrics were last judged; who waits for a verdict compares with this.
    health_judged_at = models.DateTimeField(null=True, blank=True)
    observed_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_name_once")]

    def __str__(self) -> str:
        return self.name


class ForeignPod(models.Model):
    """A pod on a node that matches no placement: others' work, leftovers, pods without a row.

    It counts as used on its node; in a tenant's namespace it counts as that tenant's usage (`outside`).
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="foreign_pods")
    uid = models.CharField(max_length=36)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    node = models.CharField(max_length=253)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Bears our labels, but we have no row for its job or attempt: shown as unclaimed.
    unclaimed = models.BooleanField(default=False)
    gpus = models.PositiveSmallIntegerField(default=0)
    cpu_millis = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)
    labels = models.JSONField(default=dict)
    terminating = models.BooleanField(default=False)
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="foreign_pod_once")]
        indexes = [models.Index(fields=["cluster", "node"], name="foreign_pod_by_node")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClusterState(models.Model):
    """How fresh our knowledge of a cluster is, and how its planner does. One row a cluster."""

    WATCHES: ClassVar = [
        ("never", _("never seen")),
        ("live", _("live")),
        ("catching_up", _("catching up")),
        ("unreachable", _("unreachable")),
    ]

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, related_name="state", primary_key=True
    )
    # Written by the cluster process.
    watch = models.CharField(max_length=12, choices=WATCHES, default="never")
    watch_since = models.DateTimeField(null=True, blank=True)
    watch_error = models.TextField(blank=True)
    heard_at = models.DateTimeField(null=True, blank=True)
    # Written by the loop: when the last cycle ended, how long it took, which event it had read.
    considered_at = models.DateTimeField(null=True, blank=True)
    cycle_ms = models.PositiveIntegerField(default=0)
    cycle_seq = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.watch}"
