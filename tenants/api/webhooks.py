"""Webhook endpoints over REST, a tenant's and the platform's, and what one wants to hear of by mail."""

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import NotVisibleError
from controlplane.common.idempotency import idempotent
from tenants import selectors
from tenants.api.shapes import OneOf
from tenants.api.views import KEY, READ_WRITE, PagedView, TenantView, checked
from tenants.models import MailChoice, OutboxMessage, WebhookEndpoint
from tenants.services import notices, webhooks


class EndpointAnswer(serializers.ModelSerializer[WebhookEndpoint]):
    """An endpoint without its secret. `tenant` is null for one of the platform."""

    tenant = serializers.CharField(source="tenant.slug", default=None, allow_null=True)
    kinds = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = WebhookEndpoint
        fields = [
            "id", "tenant", "url", "kinds", "description", "active", "disabled_reason",
            "failing_since", "created_at",
        ]  # fmt: skip


class NewEndpointAnswer(EndpointAnswer):
    """An endpoint with its signing secret, which is shown this once; null in an answer that is replayed."""

    secret = serializers.CharField(allow_null=True)

    class Meta(EndpointAnswer.Meta):
        fields = [*EndpointAnswer.Meta.fields, "secret"]


class EndpointSent(serializers.Serializer[Any]):
    """An endpoint to be registered. No tenant: the platform's. No kinds: every kind."""

    tenant = serializers.CharField(max_length=40, allow_null=True, default=None)
    url = serializers.CharField(max_length=500)
    kinds = serializers.ListField(child=serializers.CharField(), default=list)
    description = serializers.CharField(max_length=120, allow_blank=True, default="")


class EndpointChanges(serializers.Serializer[Any]):
    """What may be altered; `active: true` switches one on again."""

    url = serializers.CharField(max_length=500, required=False)
    kinds = serializers.ListField(child=serializers.CharField(), required=False)
    description = serializers.CharField(max_length=120, allow_blank=True, required=False)
    active = serializers.BooleanField(required=False)


class DeliveryAnswer(serializers.ModelSerializer[OutboxMessage]):
    """A message to an endpoint and how it fares."""

    class Meta:
        model = OutboxMessage
        fields = [
            "message_id", "kind", "created_at", "attempts", "next_attempt_at", "sent_at",
            "failed_at", "last_error",
        ]  # fmt: skip


class MailShape(serializers.Serializer[Any]):
    """Which alerts come by mail."""

    alerts = OneOf(choices=[level for level, _words in MailChoice.LEVELS])


class _One(TenantView):
    """What the views of one endpoint share."""

    required_scopes = READ_WRITE

    def endpoint(self) -> WebhookEndpoint:
        """The endpoint in the address, if the caller manages it."""
        rows = selectors.webhooks_visible_to(self.actor())
        found = rows.filter(pk=self.kwargs["endpoint"]).first()
        if found is None:
            raise NotVisibleError(_("There is no such endpoint."))
        return found


class Endpoints(PagedView):
    """Endpoints."""

    required_scopes = READ_WRITE
    queryset = WebhookEndpoint.objects.none()
    serializer_class = EndpointAnswer

    @extend_schema(
        operation_id="webhooks_list",
        parameters=[OpenApiParameter("tenant", str, description="Only this tenant's.")],
        responses=EndpointAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Those that the caller manages, newest first."""
        rows = selectors.webhooks_visible_to(self.actor())
        if tenant := request.query_params.get("tenant"):
            rows = rows.filter(tenant__slug=tenant)
        return self.page(rows, EndpointAnswer)

    @extend_schema(
        operation_id="webhooks_create",
        parameters=[KEY],
        request=EndpointSent,
        responses={201: NewEndpointAnswer},
    )
    @idempotent(once=("secret",))
    def post(self, request: Request) -> Response:
        """The answer holds the signing secret, this once."""
        sent = checked(EndpointSent, request)
        named = sent.pop("tenant")
        tenant = selectors.tenant_of(self.actor(), named) if named else None
        wanted = webhooks.EndpointFields(**sent)
        made = webhooks.create_endpoint(self.actor(), tenant, wanted, timezone.now())
        return _with_secret(*made, status.HTTP_201_CREATED)


def _with_secret(endpoint: WebhookEndpoint, secret: str, code: int) -> Response:
    return Response({**EndpointAnswer(endpoint).data, "secret": secret}, status=code)


class OneEndpoint(_One):
    """One endpoint."""

    @extend_schema(operation_id="webhooks_retrieve", responses=EndpointAnswer)
    def get(self, request: Request, endpoint: int) -> Response:
        """Where it is, what it hears, whether it answers."""
        return Response(EndpointAnswer(self.endpoint()).data)

    @extend_schema(
        operation_id="webhooks_update", request=EndpointChanges, responses=EndpointAnswer
    )
    def patch(self, request: Request, endpoint: int) -> Response:
        """Fields that are not sent stay."""
        row = self.endpoint()
        kept = {name: getattr(row, name) for name in ("url", "kinds", "description", "active")}
        wanted = webhooks.EndpointFields(**kept | checked(EndpointChanges, request))
        changed = webhooks.change_endpoint(self.actor(), row, wanted, timezone.now())
        return Response(EndpointAnswer(changed).data)

    @extend_schema(operation_id="webhooks_destroy", responses={204: None})
    def delete(self, request: Request, endpoint: int) -> Response:
        """What it was still to be told is forgotten too."""
        webhooks.remove_endpoint(self.actor(), self.endpoint(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class RenewSecret(_One):
    """Another signing secret."""

    @extend_schema(
        operation_id="webhooks_renew_secret",
        parameters=[KEY],
        request=None,
        responses=NewEndpointAnswer,
    )
    @idempotent(once=("secret",))
    def post(self, request: Request, endpoint: int) -> Response:
        """The old one signs nothing more."""
        renewed = webhooks.renew_secret(self.actor(), self.endpoint(), timezone.now())
        return _with_secret(*renewed, status.HTTP_200_OK)


class TryEndpoint(_One):
    """A trial."""

    @extend_schema(
        operation_id="webhooks_try", parameters=[KEY], request=None, responses={202: DeliveryAnswer}
    )
    @idempotent()
    def post(self, request: Request, endpoint: int) -> Response:
        """Puts a message of kind `webhook.test` into the outbox; `deliveries/` shows how it fared."""
        message = webhooks.try_endpoint(self.actor(), self.endpoint(), timezone.now())
        return Response(DeliveryAnswer(message).data, status=status.HTTP_202_ACCEPTED)


class Deliveries(_One, PagedView):
    """Messages to an endpoint."""

    queryset = OutboxMessage.objects.none()
    serializer_class = DeliveryAnswer

    @extend_schema(operation_id="webhooks_deliveries", responses=DeliveryAnswer(many=True))
    def get(self, request: Request, endpoint: int) -> Response:
        """Newest first; kept for 30 days."""
        return self.page(OutboxMessage.objects.filter(endpoint=self.endpoint()), DeliveryAnswer)


class MyMail(TenantView):
    """What the caller wants by mail."""

    required_scopes = {"read": (), "write": ()}

    @extend_schema(operation_id="my_mail_retrieve", responses=MailShape)
    def get(self, request: Request) -> Response:
        """none, critical, warning (and graver) or info (all)."""
        return Response({"alerts": notices.mail_choice(self.actor().user)})

    @extend_schema(operation_id="my_mail_update", request=MailShape, responses=MailShape)
    def put(self, request: Request) -> Response:
        """Operators hear of everything, tenants' admins of their tenant, others of their jobs."""
        wanted = checked(MailShape, request)["alerts"]
        notices.choose_mail(self.actor().user, wanted)
        return Response({"alerts": wanted})
