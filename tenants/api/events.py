"""The event log over REST, as a feed to wait on: `GET events/?after=SEQ&wait=30`."""

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.common.errors import GoneError
from controlplane.common.live import Heard
from controlplane.common.log import latest_seq
from controlplane.common.longpoll import wait_seconds, waits
from controlplane.common.models import Event
from controlplane.common.pagination import query_error, read_limit
from tenants.access import Actor
from tenants.api.shapes import EventAnswer, EventsAnswer
from tenants.authentication import actor_of
from tenants.selectors import events_visible_to, tenants_visible_to


class Events(APIView):
    """Events after a number, in the order in which they happened. There are no late arrivals."""

    required_scopes = {"GET": "jobs:read"}

    @extend_schema(
        operation_id="events_list",
        parameters=[
            OpenApiParameter("after", int, description="Number of the last event you know."),
            OpenApiParameter("wait", int, description="Seconds to wait for one, at most 60."),
            OpenApiParameter(
                "limit", int, description="Events at once; more than 200 count as 200."
            ),
            OpenApiParameter("tenant", str, description="Only events of this tenant."),
            OpenApiParameter(
                "kind", str, description='Only of this kind, or "job." for all of jobs.'
            ),
        ],
        responses=EventsAnswer,
    )
    def get(self, request: Request) -> Response:
        """At most `limit` events. 410 `resync` when older ones are asked for than are kept."""
        actor = actor_of(request)
        after = read_after(request.query_params.get("after"))
        limit = read_limit(request.query_params.get("limit"))
        wait_seconds(request.query_params.get("wait"))  # refuses nonsense before waiting
        newest = latest_seq()
        check_kept(after, newest)
        kind, tenant = (request.query_params.get(name, "") for name in ("kind", "tenant"))
        rows = events_visible_to(actor).filter(seq__gt=after, seq__lte=newest)
        if kind:
            rows = rows.filter(**{"kind__startswith" if kind.endswith(".") else "kind": kind})
        if tenant:
            rows = rows.filter(tenant=tenant)
        found = list(rows.order_by("seq")[: limit + 1])
        response = Response(_answer(request, found, limit, newest))
        return response if found else waits(response, newest, wanted_by(actor, tenant, kind))


def _answer(request: Request, found: list[Event], limit: int, newest: int) -> dict[str, Any]:
    shown = found[:limit]
    more = len(found) > limit
    after = shown[-1].seq if more else newest
    query = request.query_params.copy()
    query["after"] = str(after)
    address = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return {
        "results": EventAnswer(shown, many=True).data,
        "next": address if more else None,
        "after": after,
    }


def read_after(sent: str | None) -> int:
    """`?after=`, 0 where it is not sent. Raises InvalidError."""
    if not sent:
        return 0
    if not sent.isascii() or not sent.isdecimal() or len(sent) > 18:
        raise query_error("after", "invalid", _("must be the number of an event"))
    return int(sent)


def check_kept(after: int, newest: int) -> None:
    """Raise GoneError when events between `after` and now are no longer kept, or never were in this log.

    0 asks for whatever is kept.
    """
    if after == 0:
        return
    oldest = Event.objects.order_by("seq").values_list("seq", flat=True).first()
    if after > newest or (oldest is not None and after < oldest - 1):
        raise GoneError(
            _("Events after {after} are not kept any more.").format(after=after),
            hint=_("Read the lists again, and go on from the newest event."),
            extra={"newest": newest},
        )


def wanted_by(actor: Actor, tenant: str, kind: str) -> Any:
    """A predicate for the hub: whether an event may be one that this request waits for."""
    everything = actor.sees_all_tenants and actor.token_tenant_id is None
    slugs = {"", *tenants_visible_to(actor).values_list("slug", flat=True)}

    def wanted(heard: Heard) -> bool:
        seen = everything or heard.tenant in slugs
        of_kind = heard.kind.startswith(kind) if kind.endswith(".") else kind in ("", heard.kind)
        return seen and of_kind and tenant in ("", heard.tenant)

    return wanted
