"""Tenants, members, tokens, secrets and the audit trail over REST. Rights are the services' business."""

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from tenants import selectors
from tenants.access import Actor, Right, require
from tenants.api import shapes
from tenants.authentication import actor_of
from tenants.models import Membership, Tenant, User
from tenants.services import members, secrets, tenants, tokens

READ_WRITE = {"read": "quotas:read", "write": "quotas:write"}
KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Sent again within 24 h, the request acts once and is answered alike.",
)


def checked(kind: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """The body as `kind` reads it. Raises REST framework's ValidationError, or InvalidError for unknown fields."""
    body = json_object(request)
    unknown = [name for name in body if name not in kind().fields]
    if unknown:
        errors = tuple(
            FieldError(f"/{name}", "unknown_field", _("is not known here")) for name in unknown
        )
        raise InvalidError(f"/{unknown[0]}: {errors[0].message}", errors=errors)
    reader = kind(data=body)
    reader.is_valid(raise_exception=True)
    return dict(reader.validated_data)


class TenantView(APIView):
    """What the views of one tenant share."""

    required_scopes: dict[str, Any] = READ_WRITE

    def actor(self) -> Actor:
        """Who asks."""
        return actor_of(self.request)

    def tenant(self) -> Tenant:
        """The tenant in the address. 404 for strangers."""
        return selectors.tenant_of(self.actor(), self.kwargs["tenant"])


class PagedView(GenericAPIView[Any], TenantView):
    """A list in pages; `rows` says of what."""

    filter_backends = ()

    def page(self, rows: Any, kind: type[Serializer[Any]]) -> Response:
        """The page that was asked for."""
        found = self.paginate_queryset(rows)
        context = {**self.get_serializer_context(), "actor": self.actor()}
        return self.get_paginated_response(kind(found, many=True, context=context).data)


class Who(TenantView):
    """Who is calling."""

    required_scopes = {"GET": ()}

    @extend_schema(operation_id="whoami", responses=shapes.WhoAnswer)
    def get(self, request: Request) -> Response:
        """The caller's name, scopes and tenants: for checking a token."""
        actor = self.actor()
        found = {
            "user": actor.name,
            "platform_role": actor.user.platform_role or None,
            "via": actor.via,
            "scopes": None if actor.scopes is None else sorted(actor.scopes),
            "tenants": actor.memberships,
        }
        return Response(shapes.WhoAnswer(found).data)


class Tenants(PagedView):
    """Tenants that the caller sees."""

    required_scopes = {"GET": (), "POST": "quotas:write"}
    seek_order = ("slug",)
    serializer_class = shapes.TenantAnswer

    @extend_schema(operation_id="tenants_list", responses=shapes.TenantAnswer(many=True))
    def get(self, request: Request) -> Response:
        """In order of slug."""
        rows = selectors.tenants_visible_to(self.actor()).select_related("cohort")
        return self.page(rows, shapes.TenantAnswer)

    @extend_schema(
        operation_id="tenants_create",
        parameters=[KEY],
        request=shapes.TenantSent,
        responses={201: shapes.TenantAnswer},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Platform admins: a new tenant, without quota or members."""
        require(self.actor(), Right.MANAGE_TENANTS)
        sent = checked(shapes.TenantSent, request)
        slug = sent.pop("slug")
        fields = tenants.TenantFields(**sent)
        tenant = tenants.create_tenant(self.actor(), slug, fields, timezone.now())
        answer = shapes.TenantAnswer(tenant, context={"actor": self.actor()}).data
        return Response(
            answer,
            status=status.HTTP_201_CREATED,
            headers={"Location": request.build_absolute_uri(f"{slug}/")},
        )


class OneTenant(TenantView):
    """One tenant."""

    required_scopes = {"GET": (), "PATCH": "quotas:write"}

    @extend_schema(operation_id="tenants_retrieve", responses=shapes.TenantAnswer)
    def get(self, request: Request, tenant: str) -> Response:
        """The tenant."""
        return Response(shapes.TenantAnswer(self.tenant(), context={"actor": self.actor()}).data)

    @extend_schema(
        operation_id="tenants_change",
        request=shapes.TenantChanges,
        responses=shapes.TenantAnswer,
    )
    def patch(self, request: Request, tenant: str) -> Response:
        """Platform admins; `log_retention_days` also the tenant's admins."""
        found = self.tenant()
        changes = checked(shapes.TenantChanges, request)
        changed = tenants.change_tenant(self.actor(), found, changes, timezone.now())
        return Response(shapes.TenantAnswer(changed, context={"actor": self.actor()}).data)


class Members(PagedView):
    """Members of a tenant."""

    seek_order = ("id",)
    serializer_class = shapes.MemberAnswer

    @extend_schema(operation_id="members_list", responses=shapes.MemberAnswer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """In order of joining."""
        found = self.tenant()
        require(self.actor(), Right.VIEW_MEMBERS, found)
        rows = selectors.memberships_visible_to(self.actor()).filter(tenant=found)
        return self.page(rows.select_related("user"), shapes.MemberAnswer)

    @extend_schema(
        operation_id="members_add",
        parameters=[KEY],
        request=shapes.MemberSent,
        responses={201: shapes.MemberAnswer},
    )
    @idempotent()
    def post(self, request: Request, tenant: str) -> Response:
        """Add an existing account."""
        found = self.tenant()
        require(self.actor(), Right.MANAGE_MEMBERS, found)
        sent = checked(shapes.MemberSent, request)
        member = members.add_member(self.actor(), found, sent["user"], sent["role"], timezone.now())
        return Response(shapes.MemberAnswer(member).data, status=status.HTTP_201_CREATED)


class OneMember(TenantView):
    """One member of a tenant."""

    def member(self) -> Membership:
        """The membership in the address."""
        rows = selectors.memberships_visible_to(self.actor()).select_related("user", "tenant")
        found = rows.filter(tenant=self.tenant(), user__username=self.kwargs["user"]).first()
        if found is None:
            raise NotVisibleError(_("There is no such member."))
        return found

    @extend_schema(
        operation_id="members_change", request=shapes.RoleSent, responses=shapes.MemberAnswer
    )
    def patch(self, request: Request, tenant: str, user: str) -> Response:
        """Give another role."""
        found = self.member()
        require(self.actor(), Right.MANAGE_MEMBERS, found.tenant)
        role = checked(shapes.RoleSent, request)["role"]
        changed = members.change_role(self.actor(), found, role, timezone.now())
        return Response(shapes.MemberAnswer(changed).data)

    @extend_schema(operation_id="members_remove", responses={204: None})
    def delete(self, request: Request, tenant: str, user: str) -> Response:
        """End the membership and revoke the user's tokens for the tenant."""
        members.remove_member(self.actor(), self.member(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class Tokens(PagedView):
    """Tokens of a tenant: all for those who manage them, else one's own."""

    seek_order = ("-id",)
    serializer_class = shapes.TokenAnswer

    @extend_schema(operation_id="tokens_list", responses=shapes.TokenAnswer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """Newest first; without their text."""
        rows = selectors.tokens_visible_to(self.actor()).filter(tenant=self.tenant())
        return self.page(rows.select_related("user", "tenant"), shapes.TokenAnswer)

    @extend_schema(
        operation_id="tokens_create",
        parameters=[KEY],
        request=shapes.TokenSent,
        responses={201: shapes.NewTokenAnswer},
    )
    @idempotent(once=("token",))
    def post(self, request: Request, tenant: str) -> Response:
        """Make a token that reaches this tenant only. Its text is in this answer and nowhere else."""
        found = self.tenant()
        require(self.actor(), Right.MANAGE_TOKENS, found)
        sent = checked(shapes.TokenSent, request)
        wanted = tokens.NewToken(
            self._user(sent.get("user"), found), found, sent["name"], sent["scopes"], sent["days"]
        )
        token, text = tokens.create_token(self.actor(), wanted, timezone.now())
        answer = {**shapes.TokenAnswer(token).data, "token": text}
        return Response(answer, status=status.HTTP_201_CREATED)

    def _user(self, username: str | None, tenant: Tenant) -> User:
        """Whom the token acts as: a member of the tenant, or the caller."""
        if username is None or username == self.actor().name:
            return self.actor().user
        found = User.objects.filter(memberships__tenant=tenant, username=username).first()
        if found is None:
            message = _("must be a member of the tenant")
            raise InvalidError(message, errors=(FieldError("/user", "not_member", message),))
        return found


class OneToken(TenantView):
    """One token of a tenant."""

    @extend_schema(operation_id="tokens_revoke", responses={204: None})
    def delete(self, request: Request, tenant: str, token: int) -> Response:
        """Revoke it at once."""
        rows = selectors.tokens_visible_to(self.actor()).select_related("user", "tenant")
        found = rows.filter(tenant=self.tenant(), pk=token).first()
        if found is None:
            raise NotVisibleError(_("There is no such token."))
        tokens.revoke_token(self.actor(), found, timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class Secrets(PagedView):
    """Secrets of a tenant, by name."""

    seek_order = ("name",)
    serializer_class = shapes.SecretAnswer

    @extend_schema(operation_id="secrets_list", responses=shapes.SecretAnswer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """Names and versions; no value is ever read back."""
        found = self.tenant()
        require(self.actor(), Right.VIEW_SECRETS, found)
        rows = selectors.secrets_visible_to(self.actor()).filter(tenant=found)
        return self.page(rows.select_related("created_by"), shapes.SecretAnswer)

    @extend_schema(
        operation_id="secrets_store",
        parameters=[KEY],
        request=shapes.SecretSent,
        responses={200: shapes.SecretAnswer, 201: shapes.SecretAnswer},
    )
    @idempotent()
    def post(self, request: Request, tenant: str) -> Response:
        """Store a value: 201 under a new name, 200 in place of an older one."""
        found = self.tenant()
        require(self.actor(), Right.MANAGE_SECRETS, found)
        sent = checked(shapes.SecretSent, request)
        secret, is_new = secrets.set_secret(self.actor(), found, now=timezone.now(), **sent)
        code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
        return Response(shapes.SecretAnswer(secret).data, status=code)


class OneSecret(TenantView):
    """One secret of a tenant."""

    @extend_schema(operation_id="secrets_remove", responses={204: None})
    def delete(self, request: Request, tenant: str, name: str) -> Response:
        """Forget it."""
        tenant_row = self.tenant()
        require(self.actor(), Right.MANAGE_SECRETS, tenant_row)
        rows = selectors.secrets_visible_to(self.actor()).select_related("tenant")
        found = rows.filter(tenant=tenant_row, name=name).first()
        if found is None:
            raise NotVisibleError(_("There is no such secret."))
        secrets.remove_secret(self.actor(), found, timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class Audit(PagedView):
    """The audit trail."""

    required_scopes = {"GET": "audit:read"}
    seek_order = ("-id",)
    serializer_class = shapes.AuditAnswer

    @extend_schema(
        operation_id="audit_list",
        parameters=[
            OpenApiParameter("tenant", str, description="Slug of one tenant."),
            OpenApiParameter("actor", str, description="User name of whoever acted."),
            OpenApiParameter("action", str, description='Such as "member.added".'),
        ],
        responses=shapes.AuditAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        rows = selectors.audit_visible_to(self.actor()).select_related("tenant")
        for name, lookup in (("tenant", "tenant__slug"), ("actor", "actor"), ("action", "action")):
            if request.query_params.get(name):
                rows = rows.filter(**{lookup: request.query_params[name]})
        return self.page(rows, shapes.AuditAnswer)
