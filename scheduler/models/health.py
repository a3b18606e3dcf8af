"""The ledger of GPUs and of what befell them: states, timeline, rules, budget, reports, burn-ins.

Written only by `scheduler.services.health_*` and its neighbours. A node's own state is in `Node.health`, which the
planner reads; what only the health process needs of a node is in `NodeWatch`.
"""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queues.models import Attempt, Cluster, Preset
from scheduler.models.nodes import HealthState, Node


class Gpu(models.Model):
    """One GPU by UUID, where it is, how it stands and what it measured last."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpus")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=80)
    index = models.PositiveSmallIntegerField()
    model = models.CharField(max_length=80, blank=True)
    state = models.CharField(
        max_length=10, choices=HealthState.choices, default=HealthState.HEALTHY
    )
    since = models.DateTimeField()
    cause = models.CharField(max_length=200, blank=True)
    evidence = models.TextField(blank=True)
    next_step = models.CharField(max_length=200, blank=True)
    # Measured last; empty where the exporter does not say: unknown is never zero. Written about once a minute.
    utilisation = models.FloatField(null=True, blank=True)
    memory_copy = models.FloatField(null=True, blank=True)
    temperature_c = models.FloatField(null=True, blank=True)
    memory_used_mib = models.FloatField(null=True, blank=True)
    # Whether the exporter tells ECC counts (they are off by default).
    ecc_known = models.BooleanField(default=False)
    # [[namespace, pod], …] as the exporter's labels say.
    holders = models.JSONField(default=list)
    # What was judged already: {"xid": 79, "ecc_dbe_vol": 1, …}. An older sign is no news after a restart.
    judged = models.JSONField(default=dict)
    seen_at = models.DateTimeField()
    # Since when nothing is known of it: its exporter is silent, or no longer tells of it.
    unknown_since = models.DateTimeField(null=True, blank=True)
    # An operator's word, which rules do not overrule until it expires.
    override_state = models.CharField(max_length=10, choices=HealthState.choices, blank=True)
    override_reason = models.TextField(blank=True)
    override_by = models.CharField(max_length=150, blank=True)
    override_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uuid"], name="gpu_once"),
            models.CheckConstraint(
                condition=Q(state__in=HealthState.values), name="gpu_state_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["cluster", "state"], condition=~Q(state="healthy"), name="gpu_not_healthy"
            )
        ]

    def __str__(self) -> str:
        return self.uuid


class NodeWatch(models.Model):
    """What the health process knows of a node: its exporter, and how it joins or returns. One row a node."""

    node = models.OneToOneField(
        Node, on_delete=models.CASCADE, primary_key=True, related_name="watch"
    )
    # Exporter: the last answer, since when it has been silent, its generation of names.
    answered_at = models.DateTimeField(null=True, blank=True)
    unknown_since = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=300, blank=True)
    generation = models.CharField(max_length=1, blank=True)
    gpus_seen = models.PositiveSmallIntegerField(null=True, blank=True)
    # The state that findings about the node itself (conditions, reports) have put it in.
    state = models.CharField(
        max_length=10, choices=HealthState.choices, default=HealthState.HEALTHY
    )
    since = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=200, blank=True)
    evidence = models.TextField(blank=True)
    # Taken out by rule: when; its boot id then (another one later means that it was restarted).
    out_since = models.DateTimeField(null=True, blank=True)
    out_boot_id = models.CharField(max_length=64, blank=True)
    # An operator says that it has been repaired, and why.
    repaired_at = models.DateTimeField(null=True, blank=True)
    repaired_by = models.CharField(max_length=150, blank=True)
    # [{"name", "ok", "told", "kubectl"}, …] while it joins or returns.
    checklist = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.node_id}"


class HealthEvent(models.Model):
    """One line of a node's fault timeline."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="health_events")
    node = models.CharField(max_length=253)
    gpu = models.CharField(max_length=80, blank=True)
    at = models.DateTimeField()
    # signal, state, action, proposal, budget, report, override, burn_in, joining, return
    kind = models.CharField(max_length=12)
    rule = models.CharField(max_length=20, blank=True)
    before = models.CharField(max_length=10, blank=True)
    after = models.CharField(max_length=10, blank=True)
    cause = models.CharField(max_length=200, blank=True)
    evidence = models.TextField(blank=True)
    # How old the signal was when Muster saw it, in seconds.
    signal = models.CharField(max_length=12, blank=True)
    signal_age_seconds = models.FloatField(null=True, blank=True)
    xid = models.PositiveSmallIntegerField(null=True, blank=True)
    # [{"job", "tenant", "how": "on_gpu"|"possibly", "evicted": true|false}, …]
    jobs = models.JSONField(default=list)
    action = models.CharField(max_length=200, blank=True)
    next_step = models.CharField(max_length=200, blank=True)
    actor = models.CharField(max_length=150, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "node", "-id"], name="health_event_by_node"),
            models.Index(fields=["at"], name="health_event_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.node} {self.kind} {self.cause}"


class RuleMode(models.TextChoices):
    """What a rule may do by itself."""

    OFF = "off", _("off")
    PROPOSE = "propose", _("propose")
    ACT = "act", _("act")


class HealthRule(models.Model):
    """A rule as a platform admin has set it; without a row it is as `scheduler.health.rules` has it, and proposes."""

    key = models.CharField(max_length=20, primary_key=True)
    mode = models.CharField(max_length=8, choices=RuleMode.choices, default=RuleMode.PROPOSE)
    # {"above_c": 85, "seconds": 120}; what is missing has its default.
    parameters = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(mode__in=RuleMode.values), name="health_rule_mode_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.mode}"


class HealthPolicy(models.Model):
    """A cluster's budget, burn-in, and where its metrics are. Without a row the defaults hold."""

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="health_policy"
    )
    budget_percent = models.FloatField(default=5.0)
    budget_nodes = models.PositiveSmallIntegerField(default=2)
    budget_window_seconds = models.PositiveIntegerField(default=1800)
    # Burn-in: empty image means that the cluster has none.
    burn_in_image = models.CharField(max_length=500, blank=True)
    burn_in_command = models.JSONField(default=list, blank=True)
    burn_in_preset = models.ForeignKey(
        Preset, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    burn_in_limit_seconds = models.PositiveIntegerField(default=1800)
    # {node} and {address} are filled in; empty: exporter pods are found through the API.
    exporter_url = models.CharField(max_length=300, blank=True)
    # A Prometheus server to ask instead of the exporters.
    prometheus_url = models.CharField(max_length=300, blank=True)
    scrape_seconds = models.PositiveSmallIntegerField(default=15)

    def __str__(self) -> str:
        return f"{self.cluster_id}"


class HealthAction(models.Model):
    """A node that a rule took out, or would have: what budgets are counted from."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="health_actions")
    node = models.CharField(max_length=253)
    rule = models.CharField(max_length=20)
    at = models.DateTimeField()
    # out: cordoned, tainted and drained; suspect: by a tenant's report.
    what = models.CharField(max_length=10)

    class Meta:
        indexes = [models.Index(fields=["cluster", "-at"], name="health_action_by_time")]

    def __str__(self) -> str:
        return f"{self.node} {self.what}"


class NodeReport(models.Model):
    """What a training framework, or a person, said of a node."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="node_reports")
    node = models.CharField(max_length=253)
    # None for a person's report.
    attempt = models.ForeignKey(
        Attempt, null=True, blank=True, on_delete=models.SET_NULL, related_name="node_reports"
    )
    by = models.CharField(max_length=150)
    at = models.DateTimeField()
    kind = models.CharField(max_length=8)
    code = models.PositiveSmallIntegerField(null=True, blank=True)
    gpu = models.PositiveSmallIntegerField(null=True, blank=True)
    uuid = models.CharField(max_length=80, blank=True)
    replica = models.CharField(max_length=80, blank=True)
    message = models.TextField(blank=True)
    evidence = models.TextField(blank=True)
    # noted, suspect, beyond_budget
    verdict = models.CharField(max_length=14)

    class Meta:
        indexes = [models.Index(fields=["attempt", "-at"], name="node_report_by_attempt")]

    def __str__(self) -> str:
        return f"{self.node} {self.kind}"


class BurnInPhase(models.TextChoices):
    """Where a burn-in stands."""

    WANTED = "wanted", _("wanted")
    RUNNING = "running", _("running")
    PASSED = "passed", _("passed")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


class BurnIn(models.Model):
    """One pod on all GPUs of a node, in Muster's own namespace, that proves that the node may work.

    The row says what is wanted; the `cluster` process makes the pod and tells `services.burn_in` what became of it.
    """

    OVER = (BurnInPhase.PASSED, BurnInPhase.FAILED, BurnInPhase.CANCELLED)

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="burn_ins")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="burn_ins")
    phase = models.CharField(max_length=9, choices=BurnInPhase.choices, default=BurnInPhase.WANTED)
    image = models.CharField(max_length=500)
    command = models.JSONField(default=list)
    preset = models.ForeignKey(
        Preset, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    limit_seconds = models.PositiveIntegerField()
    gpus = models.PositiveSmallIntegerField()
    requested_at = models.DateTimeField()
    requested_by = models.CharField(max_length=150)
    pod_name = models.CharField(max_length=63, blank=True)
    pod_uid = models.CharField(max_length=36, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    message = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node"],
                condition=Q(phase__in=["wanted", "running"]),
                name="burn_in_one_open_per_node",
            ),
            models.CheckConstraint(
                condition=Q(phase__in=BurnInPhase.values), name="burn_in_phase_known"
            ),
        ]

    def __str__(self) -> str:
        return f"burn-in of {self.node_id}: {self.phase}"


class HealthSample(models.Model):
    """Ten minutes of a node's GPUs, for the dry run of rules; kept for a day.

    gpus: {index: [utilisation, memory copy, temperature]}, means over the ten minutes; null where unknown.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    gpus = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["at"], name="health_sample_by_time")]

    def __str__(self) -> str:
        return f"{self.node_id} {self.at:%H:%M}"
