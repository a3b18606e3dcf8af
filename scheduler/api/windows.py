"""Maintenance windows and reservations over REST: everyone who is signed in sees them, operators make them."""

import json
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import NotVisibleError
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import read_choice, read_flag
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from queues.api.doors import IDEMPOTENCY_KEY, IF_MATCH, Door, only_field, versioned
from queues.api.shapes import ProblemShape
from scheduler.api import window_shapes as shapes
from scheduler.models import MaintenanceWindow
from scheduler.selectors.overlaps import full_answers
from scheduler.selectors.windows import calendar_of, windows_visible_to
from scheduler.services.departures import outlook_answer
from scheduler.services.proposals import propose
from scheduler.services.window_exceptions import change_occurrence
from scheduler.services.windows import (
    cancel_window,
    change_window,
    create_window,
    finish_window,
    preview_window,
    window_of,
)
from tenants.access import Actor
from tenants.authentication import CookieAuthentication, TokenAuthentication
from tenants.models import User

Json = dict[str, Any]
SCOPES = {"read": "nodes:read", "write": "nodes:write"}
LONGEST_REASON = 1000
PLAN_ID = OpenApiParameter(
    "plan_id",
    str,
    description="Of the preview that this is to hold to; 409 when it no longer does.",
)
AT = OpenApiParameter(
    "at", str, OpenApiParameter.PATH, description="`occurrence` of the answer's `occurrences`."
)
PREVIEW = OpenApiParameter("preview", bool, description="Say what would happen, and store nothing.")


def is_preview(request: Request) -> bool:
    """Whether `?preview=1` was sent. A word that is neither yes nor no is refused, not taken for no."""
    return read_flag(request.query_params, "preview")


def one(actor: Actor, row: MaintenanceWindow) -> Json:
    """A window's answer, read anew."""
    return full_answers(actor, [window_of(actor, row.pk)], timezone.now())[0]


class Windows(Door):
    """Maintenance windows and reservations."""

    required_scopes = SCOPES
    serializer_class = shapes.WindowAnswer
    queryset = MaintenanceWindow.objects.none()
    seek_order = ("starts_at", "pk")

    @extend_schema(
        operation_id="maintenance_windows_list",
        parameters=[
            OpenApiParameter("cluster", str, description="Only windows of this cluster."),
            OpenApiParameter("kind", str, enum=shapes.KINDS, description="Only of this kind."),
            OpenApiParameter("all", bool, description="Those that are over or cancelled, too."),
        ],
        responses=shapes.WindowAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Those that go on or are to come, by their first start."""
        actor, now = self.actor(), timezone.now()
        rows = _wanted(windows_visible_to(actor), request)
        return self.page(rows, lambda found: full_answers(actor, found, now))

    @extend_schema(
        operation_id="maintenance_windows_create",
        parameters=[IDEMPOTENCY_KEY, PREVIEW, PLAN_ID],
        request=shapes.WindowSent,
        responses={
            200: shapes.OutlookAnswer,
            201: shapes.WindowAnswer,
            409: ProblemShape,
            422: ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Operators: a new window; with `preview`, only what its first occurrence would do to running jobs."""
        actor, now, sent = self.actor(), timezone.now(), json_object(request)
        if is_preview(request):
            return Response(outlook_answer(actor, preview_window(actor, sent, now)))
        row = create_window(actor, sent, now, request.query_params.get("plan_id"))
        address = request.build_absolute_uri(f"{row.pk}/")
        return versioned(one(actor, row), status=201, Location=address)


def _wanted(rows: QuerySet[MaintenanceWindow], request: Request) -> QuerySet[MaintenanceWindow]:
    sent = request.query_params
    if cluster := sent.get("cluster"):
        rows = rows.filter(cluster__name=cluster)
    if kind := read_choice(sent, "kind", shapes.KINDS):
        rows = rows.filter(kind=kind)
    if not read_flag(sent, "all"):
        going = Q(occurrences__state__in=["draining", "open", "checking"])
        ahead = Q(ends_at__gt=timezone.now()) | ~Q(rrule="")
        rows = rows.filter(going | (ahead & Q(cancelled_at__isnull=True))).distinct()
    return rows


class OneWindow(Door):
    """One window."""

    required_scopes = SCOPES
    serializer_class = shapes.WindowAnswer

    @extend_schema(operation_id="maintenance_windows_retrieve", responses=shapes.WindowAnswer)
    def get(self, request: Request, window: int) -> Response:
        """The window, what goes on, and when it comes next."""
        actor = self.actor()
        return versioned(one(actor, window_of(actor, window)))

    @extend_schema(
        operation_id="maintenance_windows_change",
        parameters=[IF_MATCH],
        request=shapes.WindowChanges,
        responses={
            200: shapes.WindowAnswer,
            409: ProblemShape,
            412: ProblemShape,
            422: ProblemShape,
            428: ProblemShape,
        },
    )
    def patch(self, request: Request, window: int) -> Response:
        """Operators: other fields. What drains or is open keeps its nodes and gets the new times."""
        actor, version = self.actor(), wanted_version(request)
        row = change_window(actor, window, json_object(request), version, timezone.now())
        return versioned(one(actor, row))

    @extend_schema(
        operation_id="maintenance_windows_cancel",
        parameters=[IF_MATCH],
        responses={200: shapes.WindowAnswer, 409: ProblemShape, 412: ProblemShape},
    )
    def delete(self, request: Request, window: int) -> Response:
        """Operators: no more of it. Nodes that drain go back to work; open ones are checked and come back."""
        actor, version = self.actor(), wanted_version(request)
        row = cancel_window(actor, window, version, "", timezone.now())
        return versioned(one(actor, row))


class FinishWindow(Door):
    """The work is done."""

    required_scopes = SCOPES
    serializer_class = shapes.WindowAnswer

    @extend_schema(
        operation_id="maintenance_windows_finish",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={200: shapes.WindowAnswer, 409: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, window: int) -> Response:
        """Operators: end the occurrence that is going on before its time; its nodes are checked and come back."""
        actor = self.actor()
        only_field(request, "reason", LONGEST_REASON)
        return versioned(one(actor, finish_window(actor, window, None, timezone.now())))


class OneOccurrence(Door):
    """One time of a recurring window, named by when the rule has it."""

    required_scopes = SCOPES
    serializer_class = shapes.WindowAnswer

    @extend_schema(
        operation_id="maintenance_windows_occurrence_change",
        parameters=[IF_MATCH, AT],
        request=shapes.OccurrenceChanges,
        responses={
            200: shapes.WindowAnswer,
            409: ProblemShape,
            412: ProblemShape,
            422: ProblemShape,
            428: ProblemShape,
        },
    )
    def patch(self, request: Request, window: int, at: str) -> Response:
        """Operators: skip it, move it, or (`skipped: false` alone) let it be as the rule says again."""
        return self._changed(request, window, at, json_object(request))

    @extend_schema(
        operation_id="maintenance_windows_occurrence_skip",
        parameters=[IF_MATCH, AT],
        responses={200: shapes.WindowAnswer, 409: ProblemShape, 412: ProblemShape},
    )
    def delete(self, request: Request, window: int, at: str) -> Response:
        """Operators: it does not take place; the others of the series do."""
        return self._changed(request, window, at, {"skipped": True})

    def _changed(self, request: Request, window: int, at: str, sent: Json) -> Response:
        actor, version, now = self.actor(), wanted_version(request), timezone.now()
        row = change_occurrence(actor, window, occurrence_in(at), sent, version, now)
        return versioned(one(actor, row))


def occurrence_in(text: str) -> datetime:
    """The start by the rule that an address names, as in answers or as 20270112T010000Z. Raises NotVisibleError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise NotVisibleError(_("The window has no occurrence that begins then by its rule."))
    return at


class Propose(Door):
    """When would be a good time."""

    required_scopes = {"POST": "nodes:write"}
    rate_limit = "simulate"
    serializer_class = shapes.ProposalsAnswer

    @extend_schema(
        operation_id="maintenance_windows_propose",
        request=shapes.ProposeSent,
        responses={200: shapes.ProposalsAnswer, 422: ProblemShape, 503: ProblemShape},
    )
    def post(self, request: Request) -> Response:
        """Operators: the three times that cost least, tried by the planner. Nothing is stored."""
        found = propose(self.actor(), json_object(request), timezone.now())
        return Response({"proposals": found})


# --- the calendar feed ---


def feed_key(user: User) -> str:
    """The secret part of a person's feed address. It opens the feed only, and ends with the password."""
    digest = salted_hmac("muster.calendar", f"{user.pk}/{user.get_session_auth_hash()}")
    return f"{user.pk}.{digest.hexdigest()[:40]}"


class FeedKeyAuthentication(BaseAuthentication):
    """`?key=…`: calendar programs send no headers."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """The key's user; None where none was sent."""
        sent = request.query_params.get("key")
        if sent is None:
            return None
        number = sent.partition(".")[0]
        user = None
        if number.isascii() and number.isdecimal() and len(number) < 19:
            user = User.objects.filter(pk=int(number), is_active=True).first()
        if user is None or not constant_time_compare(feed_key(user), sent):
            raise AuthenticationFailed(_("This calendar address is no longer valid."), "bad_token")
        return user, None

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="muster"'


class FeedKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The key in the OpenAPI document."""

    target_class = FeedKeyAuthentication
    name = "calendarKey"

    def get_security_definition(self, auto_schema: Any) -> Json:
        """An API key in the query."""
        return {"type": "apiKey", "in": "query", "name": "key"}


class CalendarRenderer(BaseRenderer):
    """text/calendar; problems stay JSON."""

    media_type = "text/calendar"
    format = "ics"
    charset = "utf-8"

    def render(self, data: Any, media_type: Any = None, context: Any = None) -> bytes:
        """The text as it is."""
        return (data if isinstance(data, str) else json.dumps(data, default=str)).encode()


class Calendar(Door):
    """All windows as an iCalendar file."""

    required_scopes = {"GET": "nodes:read"}
    authentication_classes = (FeedKeyAuthentication, TokenAuthentication, CookieAuthentication)
    renderer_classes = (CalendarRenderer, JSONRenderer)

    @extend_schema(
        operation_id="calendar",
        parameters=[OpenApiParameter("cluster", str, description="Only windows of this cluster.")],
        responses={(200, "text/calendar"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponse:
        """Occurrences of the last 30 days and the next year, in UTC. `key`, a token or the login opens it."""
        text = calendar_of(
            self.actor(),
            request.query_params.get("cluster", ""),
            request.build_absolute_uri("/calendar/"),
            timezone.now(),
        )
        response = HttpResponse(text, content_type="text/calendar; charset=utf-8")
        response["Content-Disposition"] = 'inline; filename="muster.ics"'
        response["Cache-Control"] = "private, max-age=60"
        return response


class CalendarAddress(Door):
    """Where one's own feed is."""

    required_scopes = {"GET": "nodes:read"}
    serializer_class = shapes.CalendarAddress

    @extend_schema(operation_id="calendar_address", responses=shapes.CalendarAddress)
    def get(self, request: Request) -> Response:
        """An address for a calendar program; it holds a key that opens nothing else."""
        key = feed_key(self.actor().user)
        return Response({"url": f"{request.build_absolute_uri(reverse('api-calendar'))}?key={key}"})
