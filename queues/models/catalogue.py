"""The catalogue: clusters by name and mode, flavors, topology levels, presets. Platform admins edit it."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from tenants.models import slug_validator


class ClusterMode(models.TextChoices):
    """What Muster does to a cluster (CONTRACT, "Kubernetes side")."""

    OBSERVE = "observe", _("observe")
    SCHEDULE = "schedule", _("schedule")
    PAUSED = "paused", _("paused")


class Cluster(models.Model):
    """A Kubernetes cluster. How it is reached is the `cluster` process's business (KUBECONFIG)."""

    name = models.CharField(max_length=40, unique=True, validators=[slug_validator])
    mode = models.CharField(max_length=12, choices=ClusterMode.choices, default=ClusterMode.OBSERVE)
    # Labels a node must bear to be managed; empty means every node. Others are read-only.
    node_selector = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(mode__in=["observe", "schedule", "paused"]), name="cluster_mode_known"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Level(models.Model):
    """A topology level of a cluster, widest first; `node` is implied below the last."""

    NAMES = ("zone", "spine", "leaf", "nvlink")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="levels")
    name = models.CharField(max_length=20)
    node_label = models.CharField(max_length=316)
    position = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["cluster", "position"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="level_name_once"),
            models.UniqueConstraint(fields=["cluster", "position"], name="level_position_once"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.name}"


class Sharing(models.TextChoices):
    """How a flavor's units are handed out. All but `exclusive` come later (DESIGN section 10)."""

    EXCLUSIVE = "exclusive", _("exclusive")


class Flavor(models.Model):
    """A kind of accelerator capacity on one cluster."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="flavors")
    name = models.CharField(max_length=40, validators=[slug_validator])
    # The Kubernetes resource that a pod asks for, such as "nvidia.com/gpu".
    resource_name = models.CharField(max_length=253)
    # A node belongs to the flavor when this label has this value (GPU feature discovery's product label).
    model_label = models.CharField(max_length=316, default="nvidia.com/gpu.product")
    model = models.CharField(max_length=63)
    sharing = models.CharField(max_length=16, choices=Sharing.choices, default=Sharing.EXCLUSIVE)
    gpus_per_nvlink_domain = models.PositiveSmallIntegerField(default=8)
    # The most that any one node of the flavor has, in or out of service; 0 until a node was seen. The cluster
    # process keeps them (services.catalogue.record_node_sizes), since the nodes themselves are `scheduler`'s.
    gpus_per_node = models.PositiveSmallIntegerField(default=0)
    cpu_millis_per_node = models.PositiveIntegerField(default=0)
    memory_mib_per_node = models.PositiveIntegerField(default=0)
    # What a replica gets for each of its GPUs when its job does not say; never more than its share of a node.
    default_cpu_millis_per_gpu = models.PositiveIntegerField(default=8_000)
    default_memory_mib_per_gpu = models.PositiveIntegerField(default=65_536)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="flavor_name_once"),
            models.UniqueConstraint(
                fields=["cluster", "resource_name", "model", "sharing"], name="flavor_once"
            ),
            models.CheckConstraint(
                condition=Q(gpus_per_nvlink_domain__in=[1, 2, 4, 8, 72]), name="flavor_nvlink_size"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Preset(models.Model):
    """What a platform admin merges into pods: RDMA resources, capabilities, tolerations, mounts, variables.

    `spec` keys: resources, capabilities, runtime_class_name, tolerations, env, volumes, volume_mounts,
    annotations, labels, pod_security ("restricted" unless said). Shapes as in the Kubernetes pod API.
    """

    name = models.CharField(max_length=40, unique=True, validators=[slug_validator])
    description = models.CharField(max_length=200, blank=True)
    flavor = models.ForeignKey(
        Flavor, null=True, blank=True, on_delete=models.CASCADE, related_name="presets"
    )
    spec = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return self.name
