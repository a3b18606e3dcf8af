"""Jobs and their lives: roles, dependencies, attempts, placements.

`services.lifecycle.transition_job` is the only writer of a job's phase; `scheduler` alone writes placements.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q

from queues.lifecycle import EndedBy, Outcome, Phase
from queues.models.catalogue import Cluster, Flavor, Preset
from queues.models.quotas import Queue
from tenants.models import Tenant


class Job(models.Model):
    """What a user submitted, its phase, and what came of it. Fields as in CONTRACT, units in names."""

    id = models.CharField(primary_key=True, max_length=32)  # "job_" and a ULID
    # "j" and the last 8 characters of the id: the root of pod and service names.
    job8 = models.CharField(max_length=9)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="jobs")
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="jobs")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs"
    )
    name = models.CharField(max_length=63)
    external_id = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001  unique where set
    # Rises only when what was asked, or the phase, changes: the ETag.
    version = models.PositiveIntegerField(default=1)

    phase = models.CharField(max_length=10, choices=Phase.choices, default=Phase.PENDING)
    outcome = models.CharField(max_length=16, choices=Outcome.choices, blank=True)
    message = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    attempt_number = models.PositiveIntegerField(default=0)
    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    # Own failures use up max_restarts; infrastructure faults have a budget of their own (DESIGN section 4).
    restarts_used = models.PositiveSmallIntegerField(default=0)
    # How often it was evicted for others: at most the planner's preemption budget.
    preemptions = models.PositiveSmallIntegerField(default=0, db_default=0)
    backoff_until = models.DateTimeField(null=True, blank=True)
    # What Kubernetes said no with, while the job backs off because of it (`refused_by_kubernetes`).
    refused_message = models.TextField(blank=True)

    # Where it may run.
    gpu_model = models.JSONField(default=list, blank=True)
    sharing = models.CharField(max_length=16, default="exclusive")
    min_cuda = models.CharField(max_length=8, blank=True)
    node_selector = models.JSONField(default=dict, blank=True)
    exclude_nodes = models.JSONField(default=list, blank=True)
    preset = models.ForeignKey(
        Preset, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    # What its pods share.
    image_pull_secret = models.CharField(max_length=40, blank=True)
    shared_memory_mib = models.PositiveIntegerField(null=True, blank=True)
    working_dir = models.CharField(max_length=4096, blank=True)
    env = models.JSONField(default=dict, blank=True)
    secret_env = models.JSONField(default=dict, blank=True)
    volumes = models.JSONField(default=list, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    annotations = models.JSONField(default=dict, blank=True)
    # When, how long, how it ends.
    priority = models.PositiveSmallIntegerField(default=500)
    preemptible = models.BooleanField(default=True)
    on_preemption = models.CharField(max_length=8, default="requeue")
    max_runtime_seconds = models.PositiveIntegerField(null=True, blank=True)
    grace_seconds = models.PositiveIntegerField(default=30)
    checkpoint_interval_seconds = models.PositiveIntegerField(null=True, blank=True)
    checkpoint_grace_seconds = models.PositiveIntegerField(null=True, blank=True)
    checkpoint_notice = models.CharField(max_length=8, default="signal")
    max_restarts = models.PositiveSmallIntegerField(default=0)
    stall_timeout_seconds = models.PositiveIntegerField(null=True, blank=True)
    # What happens when it stalls: "alert" (tell the owner) or "restart" (end the attempt as `stalled`).
    on_stall = models.CharField(max_length=8, default="alert", db_default="alert")
    begin_at = models.DateTimeField(null=True, blank=True)
    # The role whose end decides (CONTRACT); the first role unless another is named.
    decides = models.CharField(max_length=20, default="main")

    # What the planner said: the class whose verdict applies, and the reason last shown (rule 6).
    class_key = models.CharField(max_length=40, blank=True)
    reason_code = models.CharField(max_length=40, blank=True)
    reason_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "external_id"],
                condition=Q(external_id__isnull=False),
                name="job_external_id_once_per_tenant",
            ),
            models.UniqueConstraint(fields=["tenant", "job8"], name="job8_once_per_tenant"),
            models.CheckConstraint(condition=Q(phase__in=Phase.values), name="job_phase_known"),
            models.CheckConstraint(
                condition=Q(outcome__in=[*Outcome.values, ""])
                & (
                    (Q(phase="finished") & ~Q(outcome="") & Q(finished_at__isnull=False))
                    | (~Q(phase="finished") & Q(outcome="") & Q(finished_at__isnull=True))
                ),
                name="job_outcome_with_finished",
            ),
            models.CheckConstraint(condition=Q(priority__lte=1000), name="job_priority_range"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="job_by_tenant"),
            models.Index(
                fields=["queue", "-priority", "submitted_at", "id"],
                condition=Q(phase="pending"),
                name="job_waiting_order",
            ),
            models.Index(
                fields=["phase", "queue"],
                condition=~Q(phase="finished"),
                name="job_unfinished_by_phase",
            ),
            models.Index(fields=["user", "-id"], name="job_by_user"),
            models.Index(fields=["finished_at"], name="job_by_finish"),
        ]

    def __str__(self) -> str:
        return self.id


class JobRole(models.Model):
    """A set of identical pods of a job. Most jobs have one, named `main`."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="roles")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=20)
    replicas = models.PositiveIntegerField()
    min_replicas = models.PositiveIntegerField()
    gpus_per_replica = models.PositiveSmallIntegerField()
    cpu_millis_per_replica = models.PositiveIntegerField()
    memory_mib_per_replica = models.PositiveIntegerField()
    image = models.CharField(max_length=512)
    command = models.JSONField(default=list, blank=True)
    args = models.JSONField(default=list, blank=True)
    env = models.JSONField(default=dict, blank=True)
    topology_level = models.CharField(max_length=20, blank=True)
    topology_mode = models.CharField(max_length=10, default="preferred")
    topology_preferred_level = models.CharField(max_length=20, blank=True)
    slice_replicas = models.PositiveIntegerField(null=True, blank=True)
    slice_level = models.CharField(max_length=20, blank=True)
    tensor_parallel = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["job", "position"]
        constraints = [
            models.UniqueConstraint(fields=["job", "name"], name="role_name_once"),
            models.UniqueConstraint(fields=["job", "position"], name="role_position_once"),
            models.CheckConstraint(
                condition=Q(min_replicas__gte=1) & Q(min_replicas__lte=models.F("replicas")),
                name="role_min_replicas_range",
            ),
            models.CheckConstraint(
                condition=Q(topology_mode__in=["required", "preferred"]),
                name="role_topology_mode_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.name}"


class JobDependency(models.Model):
    """`job` waits until `on` has finished (`condition` finished) or succeeded (`condition` succeeded)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies")
    on = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependents")
    condition = models.CharField(max_length=10)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "on"], name="dependency_once"),
            models.CheckConstraint(
                condition=Q(condition__in=["succeeded", "finished"]),
                name="dependency_condition_known",
            ),
            models.CheckConstraint(condition=~Q(job=models.F("on")), name="dependency_not_itself"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} after {self.on_id}"


class Attempt(models.Model):
    """One life of a job, from placement to end."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    flavor = models.ForeignKey(Flavor, null=True, on_delete=models.PROTECT, related_name="+")
    placed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=16, choices=EndedBy.choices, blank=True)
    message = models.TextField(blank=True)
    # Why its pods are being stopped; `ended_by` becomes this when the last pod is gone.
    stop_cause = models.CharField(max_length=16, choices=EndedBy.choices, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_grace_seconds = models.PositiveIntegerField(null=True, blank=True)
    # The API server said no (quota, pod security, a webhook): nobody's fault, and no fault of a node.
    refused = models.BooleanField(default=False)
    # The node that was at fault takes no pods any more: the first restart need not wait.
    cause_removed = models.BooleanField(default=False, db_default=False)
    # Its start took too long and nobody knows why: the job is tried elsewhere, as after a fault of the infrastructure.
    elsewhere = models.BooleanField(default=False, db_default=False)
    unknown_since = models.DateTimeField(null=True, blank=True)
    # What the job itself reported (`attempts/me/checkpoint/`, or an annotation of its pods): the last save.
    last_checkpoint_at = models.DateTimeField(null=True, blank=True)
    last_checkpoint_step = models.BigIntegerField(null=True, blank=True)
    checkpoint_uri = models.CharField(max_length=1024, blank=True, default="", db_default="")
    lost_gpu_seconds = models.BigIntegerField(default=0)
    # SHA-256 of the attempt's own token (MUSTER_TOKEN); the token itself is derived, never stored.
    token_hash = models.CharField(max_length=64, blank=True)
    asked_level = models.CharField(max_length=20, blank=True)
    achieved_level = models.CharField(max_length=20, blank=True)
    # The headless Service and the Secret are being made, or are there; None again once they are removed.
    service_created_at = models.DateTimeField(null=True, blank=True)
    # activeDeadlineSeconds of its pods, which nobody can raise once they run; None: they have none, or it is unknown.
    pods_end_after_seconds = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["job", "number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(ended_at__isnull=True), name="attempt_one_open_per_job"
            ),
            models.CheckConstraint(
                condition=Q(ended_by__in=[*EndedBy.values, ""])
                & (
                    (Q(ended_at__isnull=True) & Q(ended_by=""))
                    | (Q(ended_at__isnull=False) & ~Q(ended_by=""))
                ),
                name="attempt_ended_by_with_end",
            ),
        ]
        indexes = [
            models.Index(
                fields=["cluster"], condition=Q(ended_at__isnull=True), name="attempt_open"
            ),
            models.Index(
                fields=["token_hash"], condition=Q(ended_at__isnull=True), name="attempt_by_token"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.number}"


class Placement(models.Model):
    """Replica → node, decided; written before any pod exists. Also the pod that is wanted and what was seen of it.

    The `cluster` process creates and binds what has no `created_at` / `bound_at`, deletes what has
    `delete_requested_at`, and writes back what it sees. A row holds its node's capacity until `released_at`.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="placements")
    role = models.ForeignKey(JobRole, on_delete=models.CASCADE, related_name="+")
    replica = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    node = models.CharField(max_length=253)
    gpus = models.PositiveSmallIntegerField()
    cpu_millis = models.PositiveIntegerField()
    memory_mib = models.PositiveIntegerField()
    # {"leaf": "leaf-01", "spine": "spine-00"} at the time of placing.
    domains = models.JSONField(default=dict, blank=True)
    # `<job8>-<attempt>-<role>-<replica>-<try>`; try counts pods re-created before all have started.
    try_number = models.PositiveSmallIntegerField(default=1)
    pod_name = models.CharField(max_length=63)
    pod_uid = models.CharField(max_length=36, blank=True)
    created_at = models.DateTimeField(null=True, blank=True)
    bound_at = models.DateTimeField(null=True, blank=True)
    delete_requested_at = models.DateTimeField(null=True, blank=True)
    delete_sent_at = models.DateTimeField(null=True, blank=True)
    # Kubernetes' word for the phase, as last seen; empty before the pod exists.
    pod_phase = models.CharField(max_length=12, blank=True)
    waiting_reason = models.CharField(max_length=64, blank=True)
    waiting_since = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    end_reason = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    # What the replica itself reported last (`attempts/me/heartbeat/`).
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    heartbeat_step = models.BigIntegerField(null=True, blank=True)
    # The pod is gone from the API (its log has been kept before).
    gone_at = models.DateTimeField(null=True, blank=True)
    log_bytes = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["attempt", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "role", "replica"], name="placement_once"),
            models.UniqueConstraint(fields=["attempt", "rank"], name="placement_rank_once"),
        ]
        indexes = [
            models.Index(
                fields=["node"], condition=Q(released_at__isnull=True), name="placement_held"
            ),
            models.Index(
                fields=["attempt"], condition=Q(gone_at__isnull=True), name="placement_not_gone"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} rank {self.rank} on {self.node}"
