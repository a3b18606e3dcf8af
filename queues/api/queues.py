"""Queues over REST. In addresses a queue is `tenant.queue`, or its own name where the caller sees one of it."""

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError, NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from queues.api import shapes
from queues.api.doors import IDEMPOTENCY_KEY, IF_MATCH, Door, versioned
from queues.filters import QueueFilter
from queues.models import Queue
from queues.selectors.offers import no_such_tenant
from queues.selectors.queues import (
    queue_answers,
    queue_key,
    queue_of,
    queues_visible_to,
    with_queue_parts,
)
from queues.services.queues import change_queue, create_queue
from tenants.models import Tenant
from tenants.selectors import tenant_of

SCOPES = {"read": "jobs:read", "write": "quotas:write"}


class Queues(Door):
    """The queues of the caller's tenants."""

    required_scopes = SCOPES
    serializer_class = shapes.QueueAnswer
    queryset = Queue.objects.none()
    filter_backends = (DjangoFilterBackend,)
    filterset_class = QueueFilter
    seek_order = ("pk",)

    @extend_schema(operation_id="queues_list", responses=shapes.QueueAnswer(many=True))
    def get(self, request: Request) -> Response:
        """With what waits and runs in each."""
        rows = self.filter_queryset(with_queue_parts(queues_visible_to(self.actor())))
        return self.page(rows, queue_answers)

    @extend_schema(
        operation_id="queues_create",
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.QueueSent,
        responses={
            201: shapes.QueueAnswer,
            409: shapes.ProblemShape,
            422: shapes.ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Tenant admins: a new queue."""
        sent = json_object(request)
        queue = create_queue(self.actor(), self.tenant(sent.get("tenant")), sent, timezone.now())
        address = request.build_absolute_uri(f"{queue_key(queue)}/")
        return versioned(queue_answers([queue])[0], status=201, Location=address)

    def tenant(self, slug: Any) -> Tenant:
        """The tenant that a body names. Raises InvalidError alike for unknown and hidden ones."""
        if slug is None:
            raise _tenant_error("required", _("is required"))
        if not isinstance(slug, str):
            raise _tenant_error("not_a_string", _("must be a string; put it in quotes"))
        try:
            return tenant_of(self.actor(), slug)
        except NotVisibleError:
            raise _tenant_error("unknown_tenant", no_such_tenant(slug)) from None


def _tenant_error(code: str, message: str) -> InvalidError:
    return InvalidError(f"/tenant: {message}", errors=(FieldError("/tenant", code, message),))


class OneQueue(Door):
    """One queue."""

    required_scopes = SCOPES
    serializer_class = shapes.QueueAnswer

    @extend_schema(operation_id="queues_retrieve", responses=shapes.QueueAnswer)
    def get(self, request: Request, queue: str) -> Response:
        """The queue."""
        return versioned(queue_answers([queue_of(self.actor(), queue)])[0])

    @extend_schema(
        operation_id="queues_change",
        parameters=[IF_MATCH],
        request=shapes.QueueFieldsShape,
        responses={
            200: shapes.QueueAnswer,
            409: shapes.ProblemShape,
            412: shapes.ProblemShape,
            422: shapes.ProblemShape,
            428: shapes.ProblemShape,
        },
    )
    def patch(self, request: Request, queue: str) -> Response:
        """Tenant admins: open, hold, close, tune. A queue opens only when its tenant has quota."""
        actor = self.actor()
        found = queue_of(actor, queue)
        version = wanted_version(request)
        changed = change_queue(actor, found, json_object(request), version, timezone.now())
        return versioned(queue_answers([changed])[0])
