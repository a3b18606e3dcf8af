"""Quotas and requests for more over REST."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import ErrorCollector, NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from queues.api import shapes
from queues.api.doors import IDEMPOTENCY_KEY, IF_MATCH, Door, only_field, versioned
from queues.contract.reading import Reader
from queues.models import QuotaRequest
from queues.selectors.answers import time_text
from queues.selectors.quotas import quota_answer, quota_requests_visible_to
from queues.services.planner import planner
from queues.services.quotas import (
    LONGEST_COMMENT,
    ask_for_quota,
    decide_quota_request,
    draft_quotas,
    set_quotas,
)
from tenants.access import Right, require
from tenants.models import Tenant
from tenants.selectors import tenant_of

SCOPES = {"read": "quotas:read", "write": "quotas:write"}


class QuotaDoor(Door):
    """A door to one tenant's quotas."""

    required_scopes = SCOPES

    def tenant(self) -> Tenant:
        """The tenant in the address, for those who may see its quotas."""
        actor = self.actor()
        tenant = tenant_of(actor, self.kwargs["tenant"])
        require(actor, Right.VIEW_QUOTAS, tenant)
        return tenant


class Quotas(QuotaDoor):
    """What a tenant may use, and what it uses."""

    serializer_class = shapes.QuotasAnswer

    @extend_schema(operation_id="quotas_retrieve", responses=shapes.QuotasAnswer)
    def get(self, request: Request, tenant: str) -> Response:
        """Shares by flavor, with limits of queues and users. The ETag is the version."""
        return versioned(quota_answer(self.tenant()))

    @extend_schema(
        operation_id="quotas_replace",
        parameters=[
            IF_MATCH,
            OpenApiParameter("plan_id", str, description="Apply only if the previewed plan holds."),
        ],
        request=shapes.QuotasSent,
        responses={
            200: shapes.QuotasAnswer,
            403: shapes.ProblemShape,
            409: shapes.ProblemShape,
            412: shapes.ProblemShape,
            422: shapes.ProblemShape,
            428: shapes.ProblemShape,
        },
    )
    def put(self, request: Request, tenant: str) -> Response:
        """Set them. 403 names each field that only a platform admin changes."""
        found, actor, now = self.tenant(), self.actor(), timezone.now()
        require(actor, Right.DIVIDE_QUOTA, found)
        version, sent = wanted_version(request), json_object(request)
        plan_id = request.query_params.get("plan_id")
        if plan_id is not None:
            draft_quotas(actor, found, sent)
            planner().check_quota_plan(found, sent, plan_id, now)
        changed = set_quotas(actor, found, sent, version, now)
        return versioned(quota_answer(changed))


class QuotaRequests(QuotaDoor):
    """What a tenant has asked for."""

    serializer_class = shapes.QuotaRequestAnswer
    seek_order = ("-pk",)

    @extend_schema(
        operation_id="quota_requests_list", responses=shapes.QuotaRequestAnswer(many=True)
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Newest first."""
        rows = quota_requests_visible_to(self.actor()).filter(tenant=self.tenant())
        parts = rows.select_related("tenant", "asked_by", "decided_by")
        return self.page(parts, lambda found: [request_answer(each) for each in found])

    @extend_schema(
        operation_id="quota_requests_create",
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.QuotaRequestSent,
        responses={201: shapes.QuotaRequestAnswer, 422: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, tenant: str) -> Response:
        """Ask for a change that a platform admin decides."""
        found = self.tenant()
        require(self.actor(), Right.ASK_FOR_QUOTA, found)
        errors = ErrorCollector()
        reader = Reader(json_object(request), "", errors)
        reader.required("changes")
        changes = reader.object("changes")
        comment = reader.text("comment", longest=LONGEST_COMMENT)
        reader.finish()
        errors.raise_if_any()
        sent = dict(changes.sent) if changes else {}
        asked = ask_for_quota(self.actor(), found, sent, comment, timezone.now())
        address = request.build_absolute_uri(f"{asked.pk}/")
        return Response(request_answer(asked), status=201, headers={"Location": address})


class OneQuotaRequest(QuotaDoor):
    """One of them."""

    serializer_class = shapes.QuotaRequestAnswer

    @extend_schema(operation_id="quota_requests_retrieve", responses=shapes.QuotaRequestAnswer)
    def get(self, request: Request, tenant: str, request_id: int) -> Response:
        """The change set and what was decided."""
        return Response(request_answer(self.asked(request_id)))

    def asked(self, request_id: int) -> QuotaRequest:
        """The request. Raises NotVisibleError."""
        rows = quota_requests_visible_to(self.actor()).filter(tenant=self.tenant(), pk=request_id)
        found = rows.select_related("tenant__cohort", "asked_by", "decided_by").first()
        if found is None:
            raise NotVisibleError(f"{request_id}")
        return found


class Decision(OneQuotaRequest):
    """Accept or refuse; which of them comes with the address."""

    required_scopes = {"write": "quotas:write"}
    http_method_names = ["post", "options"]
    accept = False

    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.CommentSent,
        responses={200: shapes.QuotaRequestAnswer, 409: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, tenant: str, request_id: int) -> Response:
        """Platform admins: decide. Accepting applies the change set to the quotas as they are now."""
        comment = only_field(request, "comment", LONGEST_COMMENT)
        decided = decide_quota_request(
            self.actor(),
            self.asked(request_id),
            accept=self.accept,
            comment=comment,
            now=timezone.now(),
        )
        return Response(request_answer(decided))


@extend_schema_view(post=extend_schema(operation_id="quota_requests_accept"))
class Accept(Decision):
    """Accept a request."""

    accept = True


@extend_schema_view(post=extend_schema(operation_id="quota_requests_refuse"))
class Refuse(Decision):
    """Refuse a request."""


def request_answer(request: QuotaRequest) -> dict[str, Any]:
    """A request as it is answered."""
    return {
        "id": request.pk,
        "tenant": request.tenant.slug,
        "changes": request.changes,
        "quota_version": request.quota_version,
        "comment": request.comment,
        "state": request.state,
        "asked_by": request.asked_by.get_username() if request.asked_by else None,
        "asked_at": time_text(request.asked_at),
        "decided_by": request.decided_by.get_username() if request.decided_by else None,
        "decided_at": time_text(request.decided_at),
        "decision_comment": request.decision_comment,
    }
