"""What the doors take and answer, for the OpenAPI document. They validate nothing: `queues.contract` does."""

from typing import Any

from rest_framework import serializers

from queues.lifecycle import EndedBy, Outcome, Phase


class Shape(serializers.Serializer[Any]):
    """A serializer that only describes."""


class SliceShape(Shape):
    """Every `replicas` replicas sit in one domain of `level`."""

    replicas = serializers.IntegerField(min_value=1)
    level = serializers.CharField()


class TopologyShape(Shape):
    """How close together the replicas must or should be."""

    level = serializers.CharField(allow_null=True, required=False)
    mode = serializers.ChoiceField(choices=["required", "preferred"], required=False)
    preferred_level = serializers.CharField(allow_null=True, required=False)
    slice = SliceShape(allow_null=True, required=False)


class VolumeShape(Shape):
    """A claim in the tenant's namespace, mounted."""

    claim = serializers.CharField()
    mount_path = serializers.CharField()
    read_only = serializers.BooleanField(required=False)  # type: ignore[assignment]


class CheckpointShape(Shape):
    """How often the job saves, how long that takes at most, how it is told to."""

    interval_seconds = serializers.IntegerField(min_value=1)
    grace_seconds = serializers.IntegerField(min_value=0, required=False)
    notice = serializers.ChoiceField(choices=["signal", "poll", "file"], required=False)


class DependencyShape(Shape):
    """A job that must end first, named by id or external id."""

    job = serializers.CharField(required=False)
    external_id = serializers.CharField(required=False)
    on = serializers.ChoiceField(choices=["succeeded", "finished"], required=False)


class PerReplicaShape(Shape):
    """What a role says of its replicas."""

    replicas = serializers.IntegerField(min_value=1, max_value=10_000, required=False)
    min_replicas = serializers.IntegerField(min_value=1, max_value=10_000, required=False)
    gpus_per_replica = serializers.IntegerField(min_value=0, required=False)
    cpu_per_replica = serializers.CharField(
        required=False, help_text="A Kubernetes quantity: 64, 500m."
    )
    memory_per_replica = serializers.CharField(
        required=False, help_text="A Kubernetes quantity: 512Gi."
    )
    image = serializers.CharField(required=False)
    command = serializers.ListField(child=serializers.CharField(), required=False)
    args = serializers.ListField(child=serializers.CharField(), required=False)
    env = serializers.DictField(child=serializers.CharField(), required=False)
    topology = TopologyShape(allow_null=True, required=False)
    tensor_parallel = serializers.IntegerField(min_value=1, required=False)


class RoleShape(PerReplicaShape):
    """A set of identical pods of a job."""

    name = serializers.CharField(max_length=20)
    gpus_per_replica = serializers.IntegerField(min_value=0)


class JobFields(PerReplicaShape):
    """What a job says, sent and answered."""

    name = serializers.CharField(max_length=63)
    tenant = serializers.CharField()
    queue = serializers.CharField()
    roles = RoleShape(many=True, required=False)
    decides = serializers.CharField(
        required=False, help_text="The role whose end decides; the first."
    )
    gpu_model = serializers.ListField(child=serializers.CharField(), required=False)
    sharing = serializers.ChoiceField(choices=["exclusive"], required=False)
    min_cuda = serializers.CharField(allow_null=True, required=False)
    shared_memory_mib = serializers.IntegerField(min_value=1, allow_null=True, required=False)
    image_pull_secret = serializers.CharField(allow_null=True, required=False)
    working_dir = serializers.CharField(allow_null=True, required=False)
    secret_env = serializers.DictField(child=serializers.CharField(), required=False)
    volumes = VolumeShape(many=True, required=False)
    preset = serializers.CharField(allow_null=True, required=False)
    node_selector = serializers.DictField(child=serializers.CharField(), required=False)
    exclude_nodes = serializers.ListField(child=serializers.CharField(), required=False)
    preemptible = serializers.BooleanField(required=False)
    on_preemption = serializers.ChoiceField(choices=["requeue", "stop"], required=False)
    max_runtime_seconds = serializers.IntegerField(min_value=1, allow_null=True, required=False)
    grace_seconds = serializers.IntegerField(min_value=0, max_value=3600, required=False)
    checkpoint = CheckpointShape(allow_null=True, required=False)
    max_restarts = serializers.IntegerField(min_value=0, max_value=1000, required=False)
    stall_timeout_seconds = serializers.IntegerField(min_value=60, allow_null=True, required=False)
    on_stall = serializers.ChoiceField(
        choices=["alert", "restart"],
        required=False,
        help_text="After that time without a sign of life: tell the owner, or start again.",
    )
    begin_at = serializers.DateTimeField(allow_null=True, required=False)
    depends_on = DependencyShape(many=True, required=False)
    external_id = serializers.CharField(max_length=200, allow_null=True, required=False)
    labels = serializers.DictField(child=serializers.CharField(), required=False)
    annotations = serializers.DictField(child=serializers.CharField(), required=False)


class JobSent(JobFields):
    """A job to submit. Only name, tenant, queue, image and gpus_per_replica are required (or `roles`)."""

    priority = serializers.JSONField(
        required=False, help_text="0 to 1000, or low (100), normal (500), high (900)."
    )


class ReasonShape(Shape):
    """Why a job waits."""

    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(allow_blank=True)
    numbers = serializers.DictField()


class EstimateShape(Shape):
    """When a waiting job is expected to start."""

    p50 = serializers.DateTimeField()
    p90 = serializers.DateTimeField(allow_null=True)


class PlacementShape(Shape):
    """Where one replica is."""

    role = serializers.CharField()
    replica = serializers.IntegerField()
    rank = serializers.IntegerField()
    pod = serializers.CharField()
    node = serializers.CharField()
    gpus = serializers.IntegerField()
    domains = serializers.DictField(child=serializers.CharField())


class JobAnswer(JobFields):
    """A job, and what has become of it. `placement` and `exit_codes` are those of the last attempt, in rank order."""

    priority = serializers.IntegerField()
    id = serializers.CharField()
    version = serializers.IntegerField()
    user = serializers.CharField()
    phase = serializers.ChoiceField(choices=Phase.choices)
    outcome = serializers.ChoiceField(choices=Outcome.choices, allow_null=True)
    message = serializers.CharField(allow_blank=True)
    attempt = serializers.IntegerField()
    unknown_since = serializers.DateTimeField(allow_null=True)
    position = serializers.IntegerField(allow_null=True)
    reason = ReasonShape(allow_null=True)
    reasons = ReasonShape(many=True)
    estimated_start = EstimateShape(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)
    exit_codes = serializers.ListField(child=serializers.IntegerField(allow_null=True))
    placement = PlacementShape(many=True)
    submitted_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class ProblemItem(Shape):
    """What is wrong with one field."""

    pointer = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    message = serializers.CharField()


class ProblemShape(Shape):
    """A refusal (RFC 9457)."""

    type = serializers.URLField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    hint = serializers.CharField(allow_blank=True)
    errors = ProblemItem(many=True)  # type: ignore[assignment]


class BatchSent(Shape):
    """Up to 500 jobs; each is accepted or refused by itself."""

    jobs = JobSent(many=True)


class BatchItem(Shape):
    """What became of one of them: `job` with 201, `problem` otherwise."""

    status = serializers.IntegerField()
    job = JobAnswer(required=False)
    problem = ProblemShape(required=False)


class BatchAnswer(Shape):
    """In the order in which they were sent."""

    results = BatchItem(many=True)


class ReasonSent(Shape):
    """Why it is done; kept with the event."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=500)


class JobChanges(Shape):
    """What may be changed of a job."""

    priority = serializers.JSONField(required=False)
    queue = serializers.CharField(required=False)
    max_runtime_seconds = serializers.IntegerField(min_value=1, allow_null=True, required=False)


class AttemptAnswer(Shape):
    """One life of a job."""

    number = serializers.IntegerField()
    placed_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    ended_by = serializers.ChoiceField(choices=EndedBy.choices, allow_null=True)
    message = serializers.CharField(allow_blank=True)
    unknown_since = serializers.DateTimeField(allow_null=True)
    lost_gpu_seconds = serializers.IntegerField()
    asked_level = serializers.CharField(allow_null=True)
    achieved_level = serializers.CharField(allow_null=True)
    placement = PlacementShape(many=True)


class AttemptsAnswer(Shape):
    """All of them, first first."""

    results = AttemptAnswer(many=True)
    next = serializers.URLField(allow_null=True)


class QueueFieldsShape(Shape):
    """What a queue says of itself."""

    state = serializers.ChoiceField(choices=["open", "closed", "held"], required=False)
    flavors = serializers.ListField(child=serializers.CharField(), required=False)
    presets = serializers.ListField(child=serializers.CharField(), required=False)
    default_max_runtime_seconds = serializers.IntegerField(allow_null=True, required=False)
    longest_max_runtime_seconds = serializers.IntegerField(allow_null=True, required=False)
    highest_priority_submitter = serializers.IntegerField(required=False)
    highest_priority_admin = serializers.IntegerField(required=False)
    user_fair_share = serializers.BooleanField(required=False)
    bookings = serializers.IntegerField(required=False)
    booking_after_seconds = serializers.IntegerField(required=False)
    backfill_order = serializers.ChoiceField(
        choices=["shortest_limit", "order", "none"],
        required=False,
        help_text="What fills gaps; with none nobody passes a job that waits.",
    )
    min_runtime_seconds = serializers.IntegerField(
        required=False,
        help_text="So long after its start a job is neither preempted nor reclaimed; at most a day.",
    )
    on_waste = serializers.ChoiceField(
        choices=["alert", "lower", "stop"],
        required=False,
        help_text="What follows when a job leaves its GPUs idle.",
    )


class QueueSent(QueueFieldsShape):
    """A queue to be made; closed unless `state` says otherwise."""

    tenant = serializers.CharField()
    name = serializers.CharField()
    cluster = serializers.CharField(required=False)


class QueueJobs(Shape):
    """How many unfinished jobs a queue has."""

    pending = serializers.IntegerField()
    held = serializers.IntegerField()
    active = serializers.IntegerField()


class QueueAnswer(QueueFieldsShape):
    """A queue. `id` is its name in addresses; `used` counts GPUs held, by flavor."""

    id = serializers.CharField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    cluster = serializers.CharField()
    version = serializers.IntegerField()
    jobs = QueueJobs()
    used = serializers.DictField(child=serializers.IntegerField())


class FlavorQuotaSent(Shape):
    """A tenant's share of a flavor, in GPUs. null: no limit. What is left out stays as it is."""

    flavor = serializers.CharField()
    nominal = serializers.IntegerField(min_value=0, required=False)
    borrowing_limit = serializers.IntegerField(min_value=0, allow_null=True, required=False)
    lending_limit = serializers.IntegerField(min_value=0, allow_null=True, required=False)
    weight = serializers.FloatField(required=False)
    headroom = serializers.IntegerField(min_value=0, required=False)


class FlavorQuotaAnswer(FlavorQuotaSent):
    """With what is used of it."""

    cluster = serializers.CharField()
    used = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    lent = serializers.IntegerField()
    outside = serializers.IntegerField()


class QueueLimitShape(Shape):
    """How much one queue may use."""

    queue = serializers.CharField()
    flavor = serializers.CharField()
    limit = serializers.IntegerField(min_value=0)


class UserLimitShape(Shape):
    """How much one user may use."""

    user = serializers.CharField()
    flavor = serializers.CharField()
    limit = serializers.IntegerField(min_value=0)


class QuotasSent(Shape):
    """Quotas as they should be. A section that is left out stays; one that is sent replaces the old one."""

    flavors = FlavorQuotaSent(many=True, required=False)
    queues = QueueLimitShape(many=True, required=False)
    users = UserLimitShape(many=True, required=False)


class QuotasAnswer(Shape):
    """Quotas as they are."""

    version = serializers.IntegerField()
    cohort = serializers.CharField(allow_null=True)
    flavors = FlavorQuotaAnswer(many=True)
    queues = QueueLimitShape(many=True)
    users = UserLimitShape(many=True)


class QuotaRequestSent(Shape):
    """A change set: the body of a quota PUT, and why."""

    changes = QuotasSent()
    comment = serializers.CharField(required=False, allow_blank=True, max_length=2000)


class QuotaRequestAnswer(Shape):
    """A change set and what was decided."""

    id = serializers.IntegerField()
    tenant = serializers.CharField()
    changes = QuotasSent()
    quota_version = serializers.IntegerField()
    comment = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(choices=["open", "accepted", "refused"])
    asked_by = serializers.CharField(allow_null=True)
    asked_at = serializers.DateTimeField()
    decided_by = serializers.CharField(allow_null=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    decision_comment = serializers.CharField(allow_blank=True)


class CommentSent(Shape):
    """A word with a decision."""

    comment = serializers.CharField(required=False, allow_blank=True, max_length=2000)


class LevelShape(Shape):
    """A topology level and the node label whose values are its domains."""

    name = serializers.ChoiceField(choices=["zone", "spine", "leaf", "nvlink"])
    node_label = serializers.CharField()


class ClusterChanges(Shape):
    """What a platform admin sets of a cluster."""

    mode = serializers.ChoiceField(choices=["observe", "schedule", "paused"], required=False)
    node_selector = serializers.DictField(child=serializers.CharField(), required=False)
    levels = LevelShape(many=True, required=False)


class ClusterAnswer(Shape):
    """A cluster."""

    name = serializers.CharField()
    version = serializers.IntegerField()
    mode = serializers.ChoiceField(choices=["observe", "schedule", "paused"])
    node_selector = serializers.DictField(child=serializers.CharField())
    levels = LevelShape(many=True)
    watch = serializers.ChoiceField(
        choices=["never", "live", "catching_up", "unreachable"],
        help_text="How fresh what is known of it is.",
    )
    watch_since = serializers.DateTimeField(allow_null=True)


class FlavorChanges(Shape):
    """What a platform admin sets of a flavor."""

    resource_name = serializers.CharField(required=False)
    model_label = serializers.CharField(required=False)
    model = serializers.CharField(required=False)
    gpus_per_nvlink_domain = serializers.ChoiceField(choices=[1, 2, 4, 8, 72], required=False)
    default_cpu_millis_per_gpu = serializers.IntegerField(required=False)
    default_memory_mib_per_gpu = serializers.IntegerField(required=False)


class FlavorSent(FlavorChanges):
    """A flavor to be made."""

    name = serializers.CharField()
    cluster = serializers.CharField()
    model = serializers.CharField()


class FlavorAnswer(FlavorSent):
    """A flavor. `gpus_per_node`: of its largest node, null until one was seen."""

    id = serializers.CharField()
    sharing = serializers.CharField()
    gpus_per_node = serializers.IntegerField(allow_null=True)


class PresetChanges(Shape):
    """What a platform admin sets of a preset; `spec` is merged into pods.

    Its keys: resources, capabilities, runtime_class_name, tolerations, node_selector, env, volumes, volume_mounts,
    annotations, labels, pod_security (restricted, baseline, privileged), run_as_user, host_network. Tolerations,
    volumes and mounts are as in the Kubernetes pod API.
    """

    description = serializers.CharField(required=False)
    flavor = serializers.CharField(allow_null=True, required=False)
    spec = serializers.DictField(required=False)


class PresetSent(PresetChanges):
    """A preset to be made."""

    name = serializers.CharField()


class PresetAnswer(PresetSent):
    """A preset."""


class UsageGroup(Shape):
    """What one group has used; of the names, those that were asked for with `group_by`."""

    tenant = serializers.CharField(required=False)
    queue = serializers.CharField(required=False)
    user = serializers.CharField(required=False)
    flavor = serializers.CharField(required=False)
    day = serializers.DateField(required=False, help_text="In UTC.")
    gpu_hours = serializers.FloatField()
    jobs = serializers.IntegerField(help_text="How many held GPUs then.")


class UsageAnswer(Shape):
    """GPU hours by group, sorted by its names."""

    group_by = serializers.ListField(child=serializers.CharField())
    results = UsageGroup(many=True)
    next = serializers.URLField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """With `from`, which Python does not take as a name, and `to`."""
        ends = {"from": serializers.DateTimeField(), "to": serializers.DateTimeField()}
        return {**ends, **super().get_fields()}
