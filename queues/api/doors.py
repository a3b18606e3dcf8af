"""What the doors of this app share: the actor, documented parameters, pages of plain rows."""

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import etag
from tenants.access import Actor
from tenants.authentication import actor_of

LONGEST_REASON = 500
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Sent again within 24 h, the request acts once and is answered alike.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description='The ETag of the version that you change, or "*" for any.',
)
ON_INFEASIBLE = OpenApiParameter(
    "on_infeasible",
    str,
    enum=["wait", "reject", "finish"],
    default="wait",
    description="What becomes of a job that can never run.",
)


class Door(GenericAPIView[Any]):
    """A view that knows who asks. `required_scopes` by method, as `tenants.permissions` wants them."""

    filter_backends: Sequence[Any] = ()
    required_scopes: dict[str, Any] = {}

    def actor(self) -> Actor:
        """Who asks."""
        return actor_of(self.request)

    def page(
        self, rows: QuerySet[Any], answers: Callable[[list[Any]], Sequence[dict[str, Any]]]
    ) -> Response:
        """The page of `rows` that was asked for, answered by `answers`."""
        found = self.paginate_queryset(rows)
        return self.get_paginated_response(answers(list(found or [])))


def versioned(answer: dict[str, Any], status: int = 200, **headers: str) -> Response:
    """An answer whose `version` is its ETag."""
    return Response(answer, status=status, headers={"ETag": etag(answer["version"]), **headers})


def only_field(request: Request, name: str, longest: int) -> str:
    """The text of a body that has this one field, empty when there is no body. Raises InvalidError."""
    if not request.data:
        return ""
    body = json_object(request)
    unknown = next((key for key in body if key != name), None)
    if unknown is not None:
        raise _invalid(unknown, "unknown_field", _("is not a field here"))
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _invalid(name, "not_a_string", _("must be a string; put it in quotes"))
    if len(value) > longest:
        message = _("must have at most {longest} characters").format(longest=longest)
        raise _invalid(name, "too_long", message)
    return value


def _invalid(name: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"/{name}: {message}", errors=(FieldError(f"/{name}", code, message),))
