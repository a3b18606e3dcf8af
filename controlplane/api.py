"""The REST doors together: every app's addresses under /api/v1/, the OpenAPI document and its pages."""

from typing import Any

from csp.decorators import csp_update
from django.urls import include, path
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

import tenants.api.security  # noqa: F401  makes the schemes known to drf-spectacular
from controlplane.common.problems import CODES, title_of


@extend_schema(exclude=True)
class Schema(SpectacularAPIView):
    """OpenAPI, for anyone: it says what can be asked, not what there is."""

    permission_classes = ()
    authentication_classes = ()
    throttle_classes = ()


# Swagger UI brings inline styles; they are allowed on this page alone.
@method_decorator(csp_update({"style-src": ["'unsafe-inline'"], "img-src": ["data:"]}), "dispatch")
class Docs(SpectacularSwaggerSplitView):
    """The OpenAPI document to read and to try out."""

    permission_classes = ()
    authentication_classes = ()
    throttle_classes = ()


class Problems(APIView):
    """What the addresses in the `type` of problem documents lead to."""

    permission_classes = ()
    authentication_classes = ()

    @extend_schema(operation_id="problems_list", responses={200: dict})
    def get(self, request: Request) -> Response:
        """Status, code and title of each kind of refusal; a service may give a more exact code."""
        listed: list[dict[str, Any]] = [
            {"status": status, "code": code, "title": title_of(status)}
            for status, code in CODES.items()
        ]
        return Response({"results": listed, "next": None})


urlpatterns = [
    path("schema/", Schema.as_view(), name="schema"),
    path("docs/", Docs.as_view(url_name="schema"), name="api-docs"),
    path("problems/", Problems.as_view(), name="api-problems"),
    path("", include("tenants.api.urls")),
    path("", include("scheduler.api.urls")),
    path("", include("queues.api.urls")),
]
