"""GPU health over REST: the ledger, timelines, rules and their dry runs, overrides, reports, who waits to join."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import query_error
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from queues.api.doors import IDEMPOTENCY_KEY, IF_MATCH, Door, only_field, versioned
from queues.api.shapes import ProblemShape
from scheduler.health.states import State
from scheduler.models import Gpu, HealthEvent, HealthPolicy, Node
from scheduler.selectors import gpu_health as seen
from scheduler.services.gpu_overrides import override_gpu
from scheduler.services.health.scene import policy_of
from scheduler.services.health_policies import change_policy
from scheduler.services.health_rules import change_rule, dry_run, spec_of
from scheduler.services.node_reports import KINDS, report_node
from scheduler.services.node_returns import burn_in_node, return_node
from scheduler.services.nodes import cluster_of, node_of
from tenants.access import Actor

SCOPES = {"read": "nodes:read", "write": "nodes:write"}
STATES = [*(state.value for state in State), "unknown"]


class GpuOverride(serializers.Serializer[Any]):
    """An operator's word that holds."""

    state = serializers.CharField()
    reason = serializers.CharField()
    by = serializers.CharField()
    until = serializers.DateTimeField(allow_null=True)


class GpuAnswer(serializers.Serializer[Any]):
    """A GPU. Values are null where nothing is known: unknown is never 0."""

    uuid = serializers.CharField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    index = serializers.IntegerField()
    model = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    since = serializers.DateTimeField()
    cause = serializers.CharField(allow_null=True)
    evidence = serializers.CharField(allow_null=True)
    next_step = serializers.CharField(allow_null=True)
    utilisation = serializers.FloatField(allow_null=True)
    memory_copy = serializers.FloatField(allow_null=True)
    temperature_c = serializers.FloatField(allow_null=True)
    memory_used_mib = serializers.FloatField(allow_null=True)
    ecc = serializers.ChoiceField(choices=["known", "unknown"])
    ecc_hint = serializers.CharField(allow_null=True)
    unknown_since = serializers.DateTimeField(allow_null=True)
    override = GpuOverride(allow_null=True)


class HitJob(serializers.Serializer[Any]):
    """A job that a fault has met."""

    job = serializers.CharField()
    how = serializers.ChoiceField(choices=["on_gpu", "possibly", "beside"])
    evicted = serializers.BooleanField()


class TimelineAnswer(serializers.Serializer[Any]):
    """A line of a node's fault timeline."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    gpu = serializers.CharField(allow_null=True)
    rule = serializers.CharField(allow_null=True)
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)
    cause = serializers.CharField(allow_null=True)
    evidence = serializers.CharField(allow_null=True)
    signal = serializers.CharField(allow_null=True)
    signal_age_seconds = serializers.FloatField(allow_null=True)
    xid = serializers.IntegerField(allow_null=True)
    jobs = HitJob(many=True)
    hidden_jobs = serializers.IntegerField()
    action = serializers.CharField(allow_null=True)
    next_step = serializers.CharField(allow_null=True)
    actor = serializers.CharField(allow_null=True)


class NodeHealthAnswer(serializers.Serializer[Any]):
    """A node's health: its own, its exporter's, its GPUs'."""

    node = serializers.CharField()
    cluster = serializers.CharField()
    health = serializers.CharField()
    closed = serializers.BooleanField()
    since = serializers.DateTimeField(allow_null=True)
    cause = serializers.CharField(allow_null=True)
    exporter = serializers.DictField()
    checklist = serializers.ListField(child=serializers.DictField())
    burn_in = serializers.DictField(allow_null=True)
    gpus = GpuAnswer(many=True)


class RuleAnswer(serializers.Serializer[Any]):
    """A rule in force."""

    key = serializers.CharField()
    title = serializers.CharField()
    mode = serializers.ChoiceField(choices=["off", "propose", "act"])
    parameters = serializers.DictField(child=serializers.FloatField())
    defaults = serializers.DictField(child=serializers.FloatField())
    takes_out = serializers.BooleanField()
    about_jobs = serializers.BooleanField()
    version = serializers.IntegerField()
    changed_by = serializers.CharField(allow_null=True)
    changed_at = serializers.DateTimeField(allow_null=True)


class RuleSent(serializers.Serializer[Any]):
    """What changes; the rest stays."""

    mode = serializers.ChoiceField(choices=["off", "propose", "act"], required=False)
    parameters = serializers.DictField(child=serializers.FloatField(), required=False)


class DryRunAnswer(serializers.Serializer[Any]):
    """What a rule would have found over the last day; the first hundred findings are shown."""

    since = serializers.DateTimeField()
    samples = serializers.IntegerField()
    found = serializers.IntegerField()
    taken_out = serializers.IntegerField()
    beyond_budget = serializers.IntegerField()
    findings = serializers.ListField(child=serializers.DictField())


class OverrideSent(serializers.Serializer[Any]):
    """How the GPU stands, until when (7 days when not said), why."""

    state = serializers.ChoiceField(choices=["healthy", "suspect", "unhealthy"])
    reason = serializers.CharField()
    until = serializers.DateTimeField(required=False, allow_null=True)


class ReportSent(serializers.Serializer[Any]):
    """A report of a bad node."""

    kind = serializers.ChoiceField(choices=KINDS)
    code = serializers.IntegerField(required=False, allow_null=True)
    gpu = serializers.IntegerField(required=False, allow_null=True)
    uuid = serializers.CharField(required=False, allow_null=True)
    job = serializers.CharField(required=False, allow_null=True)
    message = serializers.CharField(required=False)
    evidence = serializers.CharField(required=False)


class ReportAnswer(serializers.Serializer[Any]):
    """What was made of a report."""

    id = serializers.IntegerField()
    node = serializers.CharField()
    kind = serializers.CharField()
    verdict = serializers.ChoiceField(choices=["suspect", "beyond_budget"])


class QuarantineAnswer(serializers.Serializer[Any]):
    """A node that is out, or watched, by health."""

    node = serializers.CharField()
    health = serializers.CharField()
    closed = serializers.BooleanField()
    since = serializers.DateTimeField(allow_null=True)
    age_seconds = serializers.IntegerField()
    cause = serializers.CharField(allow_null=True)
    gpus = serializers.ListField(child=serializers.CharField())
    next_step = serializers.CharField(allow_null=True)
    burn_in = serializers.DictField(allow_null=True)


class JoiningAnswer(serializers.Serializer[Any]):
    """A node that waits to join. A step: name, ok (null: not known yet), told, kubectl."""

    node = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    steps = serializers.ListField(child=serializers.DictField())


class PolicyAnswer(serializers.Serializer[Any]):
    """A cluster's budget, burn-in, and where its metrics are."""

    budget_percent = serializers.FloatField()
    budget_nodes = serializers.IntegerField()
    budget_window_seconds = serializers.IntegerField()
    burn_in_image = serializers.CharField(allow_null=True)
    burn_in_command = serializers.ListField(child=serializers.CharField())
    burn_in_preset = serializers.CharField(allow_null=True)
    burn_in_limit_seconds = serializers.IntegerField()
    exporter_url = serializers.CharField(allow_null=True)
    prometheus_url = serializers.CharField(allow_null=True)
    scrape_seconds = serializers.IntegerField()


class Gpus(Door):
    """The GPU ledger."""

    required_scopes = SCOPES
    serializer_class = GpuAnswer
    queryset = Gpu.objects.none()
    seek_order = ("cluster_id", "node__name", "index", "pk")

    @extend_schema(
        operation_id="gpus_list",
        parameters=[
            OpenApiParameter("cluster", str, description="Only GPUs of this cluster."),
            OpenApiParameter("node", str, description="Only GPUs of this node."),
            OpenApiParameter("state", str, enum=STATES, description="Only GPUs in this state."),
        ],
        responses=GpuAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """By cluster, node and index."""
        sent = request.query_params
        state = sent.get("state")
        if state and state not in STATES:
            raise query_error("state", "invalid", _("is no state of a GPU"))
        rows = seen.gpus_visible_to(self.actor(), sent.get("cluster"), state)
        if node := sent.get("node"):
            rows = rows.filter(node__name=node)
        return self.page(rows, lambda found: [seen.gpu_answer(gpu) for gpu in found])


class Override(Door):
    """An operator's word about a GPU."""

    required_scopes = SCOPES
    serializer_class = GpuAnswer

    @extend_schema(
        operation_id="gpus_override",
        parameters=[IDEMPOTENCY_KEY],
        request=OverrideSent,
        responses={200: GpuAnswer, 403: ProblemShape, 422: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, uuid: str) -> Response:
        """Rules do not overrule it until it expires."""
        actor = self.actor()
        gpu = seen.gpus_visible_to(actor).filter(uuid=uuid).first()
        if gpu is None:
            raise NotVisibleError(_("There is no such GPU."))
        body = json_object(request)
        until = body.get("until")
        moment = parse_datetime(until) if isinstance(until, str) else None
        if until is not None and (moment is None or moment.tzinfo is None):
            message = _("must be a time such as 2026-11-29T12:00:00Z")
            raise InvalidError(
                f"/until: {message}", errors=(FieldError("/until", "invalid", message),)
            )
        state, reason = str(body.get("state", "")), str(body.get("reason", ""))
        row = override_gpu(actor, gpu, state, reason, moment, timezone.now())
        return Response(seen.gpu_answer(row))


class NodeHealth(Door):
    """A node's health."""

    required_scopes = SCOPES
    serializer_class = NodeHealthAnswer

    @extend_schema(operation_id="nodes_health", responses=NodeHealthAnswer)
    def get(self, request: Request, cluster: str, node: str) -> Response:
        """State, exporter, checklist, burn-in, GPUs."""
        return Response(seen.node_health_answer(node_of(cluster, node)))


class Timeline(Door):
    """A node's fault timeline."""

    required_scopes = SCOPES
    serializer_class = TimelineAnswer
    queryset = HealthEvent.objects.none()
    seek_order = ("-pk",)

    @extend_schema(operation_id="nodes_timeline", responses=TimelineAnswer(many=True))
    def get(self, request: Request, cluster: str, node: str) -> Response:
        """Newest first; jobs that the caller may not see are counted in `hidden_jobs`."""
        actor = self.actor()
        rows = seen.node_timeline(actor, node_of(cluster, node))
        return self.page(rows, lambda found: seen.timeline_answers(actor, found))


class Reports(Door):
    """Reports of a bad node."""

    required_scopes = SCOPES
    serializer_class = ReportAnswer

    @extend_schema(
        operation_id="nodes_report",
        parameters=[IDEMPOTENCY_KEY],
        request=ReportSent,
        responses={201: ReportAnswer, 403: ProblemShape, 422: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, cluster: str, node: str) -> Response:
        """By operators; a job reports its own nodes at `attempts/me/report/`."""
        report = report_node(
            self.actor(), node_of(cluster, node), json_object(request), timezone.now()
        )
        answer = {
            "id": report.pk,
            "node": report.node,
            "kind": report.kind,
            "verdict": report.verdict,
        }
        return Response(answer, status=201)


class _Asked(Door):
    """What a person asks for a node, with a reason; the answer is the node's health after it."""

    required_scopes = SCOPES
    serializer_class = NodeHealthAnswer
    ask: Callable[[Actor, Node, str, datetime], Node]

    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        responses={200: NodeHealthAnswer, 403: ProblemShape, 409: ProblemShape, 422: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, cluster: str, node: str) -> Response:
        """See the class."""
        reason = only_field(request, "reason", 1000)
        row = self.ask(self.actor(), node_of(cluster, node), reason, timezone.now())
        return Response(seen.node_health_answer(row))


@extend_schema_view(
    post=extend_schema(
        operation_id="nodes_return", description="Through burn-in, where the cluster has one."
    )
)
class Return(_Asked):
    """A repaired node comes back."""

    ask = staticmethod(return_node)


@extend_schema_view(
    post=extend_schema(
        operation_id="nodes_burn_in",
        description="Running jobs leave after their next checkpoint; the node is tried when empty, and comes back by "
        "itself.",
    )
)
class BurnInDoor(_Asked):
    """A burn-in of a node, on demand."""

    ask = staticmethod(burn_in_node)


class Quarantine(Door):
    """Nodes that are out, or watched, by health."""

    required_scopes = SCOPES
    serializer_class = QuarantineAnswer
    pagination_class = None

    @extend_schema(operation_id="clusters_quarantine", responses=QuarantineAnswer(many=True))
    def get(self, request: Request, cluster: str) -> Response:
        """The oldest first, with the next step of each."""
        rows = seen.quarantine(self.actor(), cluster_of(cluster))
        return Response({"results": seen.quarantine_answers(rows, timezone.now()), "next": None})


class Joining(Door):
    """Nodes that wait to join."""

    required_scopes = SCOPES
    serializer_class = JoiningAnswer
    pagination_class = None

    @extend_schema(operation_id="clusters_joining", responses=JoiningAnswer(many=True))
    def get(self, request: Request, cluster: str) -> Response:
        """Each with its checklist and the kubectl line for each step."""
        rows = seen.joining_checklists(self.actor(), cluster_of(cluster))
        return Response({"results": rows, "next": None})


class Policy(Door):
    """A cluster's budget and burn-in."""

    required_scopes = SCOPES
    serializer_class = PolicyAnswer

    @extend_schema(operation_id="clusters_health_policy", responses=PolicyAnswer)
    def get(self, request: Request, cluster: str) -> Response:
        """As it is in force."""
        self.actor()
        return Response(seen.policy_answer(policy_of(cluster_of(cluster))))

    @extend_schema(
        operation_id="clusters_health_policy_change",
        request=PolicyAnswer,
        responses={200: PolicyAnswer, 403: ProblemShape, 422: ProblemShape},
    )
    def patch(self, request: Request, cluster: str) -> Response:
        """By a platform admin; what is not sent stays."""
        policy: HealthPolicy = change_policy(
            self.actor(), cluster_of(cluster), json_object(request), timezone.now()
        )
        return Response(seen.policy_answer(policy))


class Rules(Door):
    """The health rules."""

    required_scopes = SCOPES
    serializer_class = RuleAnswer
    pagination_class = None

    @extend_schema(operation_id="health_rules_list", responses=RuleAnswer(many=True))
    def get(self, request: Request) -> Response:
        """All of them."""
        rows = [seen.rule_answer(spec, row) for spec, row in seen.rules_visible_to(self.actor())]
        return Response({"results": rows, "next": None})


class OneRule(Door):
    """One rule."""

    required_scopes = SCOPES
    serializer_class = RuleAnswer

    @extend_schema(operation_id="health_rules_retrieve", responses=RuleAnswer)
    def get(self, request: Request, key: str) -> Response:
        """In force, with its version."""
        spec = spec_of(key)
        rows = {each.key: row for each, row in seen.rules_visible_to(self.actor())}
        return versioned(seen.rule_answer(spec, rows[key]))

    @extend_schema(
        operation_id="health_rules_change",
        parameters=[IF_MATCH],
        request=RuleSent,
        responses={200: RuleAnswer, 403: ProblemShape, 412: ProblemShape, 422: ProblemShape},
    )
    def patch(self, request: Request, key: str) -> Response:
        """By a platform admin."""
        version = wanted_version(request)
        row = change_rule(self.actor(), key, json_object(request), version, timezone.now())
        return versioned(seen.rule_answer(spec_of(key), row))


class RuleDryRun(Door):
    """A rule tried on the last day."""

    required_scopes = {"read": "nodes:read", "write": "nodes:read"}
    rate_limit = "simulate"
    serializer_class = DryRunAnswer

    @extend_schema(
        operation_id="health_rules_dry_run",
        parameters=[OpenApiParameter("cluster", str, required=True)],
        request=RuleSent,
        responses={200: DryRunAnswer, 403: ProblemShape, 422: ProblemShape},
    )
    def post(self, request: Request, key: str) -> Response:
        """Nothing is changed."""
        cluster = cluster_of(request.query_params.get("cluster", ""))
        run = dry_run(self.actor(), cluster, key, json_object(request), timezone.now())
        return Response(
            {
                "since": run.since,
                "samples": run.samples,
                "found": run.found,
                "taken_out": run.taken_out,
                "beyond_budget": run.beyond_budget,
                "findings": run.findings,
            }
        )
