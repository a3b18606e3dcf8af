"""Alerts over REST: operators see all, tenants their own; acknowledged, silenced or resolved by those who may."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import query_error, read_choice
from controlplane.common.parsers import json_object
from queues.api.doors import IDEMPOTENCY_KEY, Door, only_field
from queues.api.shapes import ProblemShape
from scheduler.alert_kinds import KINDS
from scheduler.models import Alert, AlertState, Severity
from scheduler.selectors.alerts import UNRESOLVED, alert_answer, alerts_visible_to
from scheduler.services import alerts

SCOPES = {"read": "nodes:read", "write": "nodes:write"}
STATES = [*AlertState, "unresolved"]


class AlertAnswer(serializers.Serializer[Any]):
    """An alert. `count`: how often it was raised anew; `runbook`: an address below this server's."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=sorted(KINDS))
    severity = serializers.ChoiceField(choices=Severity.choices)
    state = serializers.ChoiceField(choices=AlertState.choices)
    title = serializers.CharField()
    message = serializers.CharField()
    detail = serializers.CharField(allow_blank=True)
    numbers = serializers.DictField()
    cluster = serializers.CharField(allow_null=True)
    tenant = serializers.CharField(allow_null=True)
    node = serializers.CharField(allow_null=True)
    gpu = serializers.CharField(allow_null=True)
    job = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    first_seen = serializers.DateTimeField()
    last_seen = serializers.DateTimeField()
    acknowledged_by = serializers.CharField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(allow_blank=True)
    silenced_by = serializers.CharField(allow_null=True)
    silenced_until = serializers.DateTimeField(allow_null=True)
    resolved_by = serializers.CharField(allow_null=True)
    resolved_at = serializers.DateTimeField(allow_null=True)
    runbook = serializers.CharField(allow_null=True)


class NoteSent(serializers.Serializer[Any]):
    """What is being done about it."""

    note = serializers.CharField(allow_blank=True, default="")


class SilenceSent(serializers.Serializer[Any]):
    """Until when, at most 30 days, and why."""

    until = serializers.DateTimeField()
    reason = serializers.CharField()


class ResolveSent(serializers.Serializer[Any]):
    """Why it is over."""

    reason = serializers.CharField()


class Alerts(Door):
    """Alerts that the caller may see."""

    required_scopes = SCOPES
    serializer_class = AlertAnswer
    queryset = Alert.objects.none()
    seek_order = ("-pk",)

    @extend_schema(
        operation_id="alerts_list",
        parameters=[
            OpenApiParameter("state", str, enum=STATES, description="Only in this state."),
            OpenApiParameter("severity", str, enum=list(Severity), description="Only of this one."),
            OpenApiParameter("kind", str, description="Only of this kind."),
            OpenApiParameter("cluster", str, description="Only about this cluster."),
            OpenApiParameter("node", str, description="Only about this node."),
            OpenApiParameter("job", str, description="Only about this job."),
            OpenApiParameter("tenant", str, description="Only of this tenant."),
        ],
        responses=AlertAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first, resolved ones too unless `state` says otherwise."""
        rows = _wanted(request, alerts_visible_to(self.actor()))
        return self.page(rows, lambda found: [alert_answer(alert) for alert in found])


def _wanted(request: Request, rows: QuerySet[Alert]) -> QuerySet[Alert]:
    sent = request.query_params
    if state := sent.get("state"):
        if state not in STATES:
            raise query_error("state", "invalid", _("is no state of an alert"))
        rows = rows.filter(state__in=UNRESOLVED if state == "unresolved" else [state])
    read_choice(sent, "severity", list(Severity))
    columns = {
        "severity": "severity",
        "kind": "kind",
        "cluster": "cluster__name",
        "node": "node",
        "job": "job",
        "tenant": "tenant__slug",
    }
    return rows.filter(**{column: sent[name] for name, column in columns.items() if sent.get(name)})


class _One(Door):
    """What the views of one alert share."""

    required_scopes = SCOPES
    serializer_class = AlertAnswer

    def alert(self) -> Alert:
        """The alert in the address."""
        found = alerts_visible_to(self.actor()).filter(pk=self.kwargs["alert"]).first()
        if found is None:
            raise NotVisibleError(_("There is no such alert."))
        return found


class OneAlert(_One):
    """One alert."""

    @extend_schema(operation_id="alerts_retrieve", responses=AlertAnswer)
    def get(self, request: Request, alert: int) -> Response:
        """What, where, since when, and who has answered it."""
        return Response(alert_answer(self.alert()))


ANSWERS: Any = {200: AlertAnswer, 403: ProblemShape, 409: ProblemShape, 422: ProblemShape}


class Acknowledge(_One):
    """Say that you work on it."""

    @extend_schema(
        operation_id="alerts_acknowledge",
        parameters=[IDEMPOTENCY_KEY],
        request=NoteSent,
        responses=ANSWERS,
    )
    @idempotent()
    def post(self, request: Request, alert: int) -> Response:
        """It stays acknowledged until it is over, or grows graver."""
        note = only_field(request, "note", alerts.LONGEST_REASON)
        answered = alerts.acknowledge(self.actor(), self.alert(), note, timezone.now())
        return Response(alert_answer(answered))


class Silence(_One):
    """Tell nobody for a while."""

    @extend_schema(
        operation_id="alerts_silence",
        parameters=[IDEMPOTENCY_KEY],
        request=SilenceSent,
        responses=ANSWERS,
    )
    @idempotent()
    def post(self, request: Request, alert: int) -> Response:
        """Also when it is over and comes back before then."""
        until, reason = _silence(request)
        answered = alerts.silence(self.actor(), self.alert(), until, reason, timezone.now())
        return Response(alert_answer(answered))


class Resolve(_One):
    """Say that it is over."""

    @extend_schema(
        operation_id="alerts_resolve",
        parameters=[IDEMPOTENCY_KEY],
        request=ResolveSent,
        responses=ANSWERS,
    )
    @idempotent()
    def post(self, request: Request, alert: int) -> Response:
        """What still finds it raises it again."""
        reason = only_field(request, "reason", alerts.LONGEST_REASON)
        answered = alerts.resolve(self.actor(), self.alert(), reason, timezone.now())
        return Response(alert_answer(answered))


def _silence(request: Request) -> tuple[datetime, str]:
    body = json_object(request)
    for name in body.keys() - {"until", "reason"}:
        raise _field(name, "unknown_field", _("is not a field here"))
    reason, until = body.get("reason", ""), body.get("until")
    if not isinstance(reason, str):
        raise _field("reason", "not_a_string", _("must be a string; put it in quotes"))
    at = _moment(until) if isinstance(until, str) else None
    if at is None:
        raise _field("until", "not_a_time", _("must be a time with its zone, as RFC 3339 has it"))
    return at, reason


def _moment(sent: str) -> datetime | None:
    try:
        at = parse_datetime(sent)
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def _field(name: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"/{name}: {message}", errors=(FieldError(f"/{name}", code, message),))
